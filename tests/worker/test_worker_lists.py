"""Handlers of many jobs: one call for a list, an outcome for each job, and one bad job that must not take the others with it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from queue_db import ArgumentError, Cancel, ConfigurationError, Dead, LeasedJob, Retry, Snooze, State, UnknownKindError
from queue_db.backoff import constant
from queue_db.errors import HandlerResultError, JobNotFoundError
from queue_db.instrumentation import opentelemetry
from queue_db.model import DeathReason
from queue_db.testing import drain
from queue_db.worker import Worker
from queue_db.worker.leases import InFlight
from queue_db.worker.lists import Lists
from tests.patience import HOURS, PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def states(queue, ids):
    """None: it has left."""
    found = []
    for one in ids:
        try:
            found.append(queue.get(one).state)
        except JobNotFoundError:
            found.append(None)
    return found


def test_one_call_gets_the_jobs_of_its_kind_and_each_is_settled_by_its_own_outcome(queue):
    worker = Worker(queue.db, queue.name, concurrency=20, schedules=False)
    calls: list[list[Any]] = []

    @worker.handles("index", many=10, result_ttl=60)
    def index(jobs):
        calls.append([job.payload for job in jobs])
        mine = {0: "found", 1: Snooze(HOURS), 2: Retry("later", HOURS), 3: Cancel(), 4: Dead("no"), 5: ValueError("wrong")}
        jobs[6].complete()
        return [mine.get(job.payload) for job in jobs]

    worker.handles("other")(lambda job: calls.append([job.payload]))
    ids = queue.enqueue_many([("index", number) for number in range(8)])
    queue.enqueue("other", "alone")
    worker.run(until_empty=True)
    assert sorted(calls, key=len) == [["alone"], list(range(8))]
    assert states(queue, ids[1:6]) == [State.SCHEDULED, State.SCHEDULED, None, State.DEAD, State.SCHEDULED]
    assert queue.db.wait(ids[0], timeout=PATIENCE).result == "found"
    assert queue.get(ids[1]).attempts == 0
    assert queue.get(ids[5]).last_error == "ValueError: wrong"
    summary = worker.summary
    assert (summary.completed, summary.snoozed, summary.failed, summary.cancelled, summary.dead) == (4, 1, 2, 1, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_list_that_is_not_full_waits_for_more(queue, running, asynchronous):
    """The second job is enqueued while the first one waits: without the wait there would be two calls."""
    worker = Worker(queue.db, queue.name, concurrency=4, schedules=False)
    calls: list[list[Any]] = []

    if asynchronous:

        @worker.handles("index", many=2, linger=HOURS)
        async def of_coroutine(jobs):
            calls.append([job.payload for job in jobs])
    else:

        @worker.handles("index", many=2, linger=HOURS)
        def of_function(jobs):
            calls.append([job.payload for job in jobs])

    with running(worker):
        queue.enqueue("index", 1)
        wait_for(lambda: queue.stats().running == 1)
        assert calls == []
        queue.enqueue("index", 2)
        wait_for(lambda: worker.summary.completed == 2)
    assert calls == [[1, 2]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stop_releases_a_list_that_waits(queue, running, asynchronous):
    worker = Worker(queue.db, queue.name, concurrency=4, schedules=False)

    async def of_coroutine(jobs):
        raise AssertionError

    def of_function(jobs):
        raise AssertionError

    worker.handles("index", many=4, linger=HOURS)(of_coroutine if asynchronous else of_function)
    ids = queue.enqueue_many([("index", 1), ("index", 2)])
    with running(worker):
        wait_for(lambda: queue.stats().running == 2)
    assert [(queue.get(one).state, queue.get(one).attempts) for one in ids] == [(State.AVAILABLE, 0)] * 2
    assert worker.summary.released == 2


def test_a_mapping_has_outcomes_of_some_jobs_and_the_others_are_complete(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("index", many=3)(lambda jobs: {jobs[1]: Retry("later", HOURS)})
    ids = queue.enqueue_many([("index", number) for number in range(3)])
    worker.run(until_empty=True)
    assert states(queue, ids) == [None, State.SCHEDULED, None]


@SQLITE
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_may_sort_or_empty_its_list(queue, asynchronous):
    """Outcomes are in the order of the list as it is then. A job that is taken out is settled all the same."""
    worker = Worker(queue.db, queue.name, schedules=False)

    def of_function(jobs):
        if jobs[0].kind == "emptied":
            return jobs.clear()
        jobs.sort(key=lambda job: job.payload)
        return [None, Retry("the larger one", HOURS)]

    async def of_coroutine(jobs):
        return of_function(jobs)

    for kind in ("sorted", "emptied"):
        worker.handles(kind, many=2)(of_coroutine if asynchronous else of_function)
    larger, smaller, *emptied = queue.enqueue_many([("sorted", 2), ("sorted", 1), ("emptied", 1), ("emptied", 2)])
    worker.run(until_empty=True)
    assert states(queue, [larger, smaller, *emptied]) == [State.SCHEDULED, None, None, None]


@SQLITE
@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (lambda jobs: [None], "1 outcomes for 2 jobs"),
        (lambda jobs: 7, "7 for 2 jobs: return nothing"),
        (lambda jobs: "ab", "'ab' for 2 jobs"),
        (lambda jobs: {7: None}, "a mapping with 7: its keys must be jobs"),
        (lambda jobs: [Dead, Dead], "the class Dead"),
        (lambda jobs: len, "return nothing"),
    ],
)
def test_a_wrong_return_value_fails_all_jobs(queue, returned, why):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("index", many=2, backoff=constant(HOURS))(returned)
    ids = queue.enqueue_many([("index", 1), ("index", 2)])
    worker.run(until_empty=True)
    for one in ids:
        assert queue.get(one).last_error.startswith(HandlerResultError.__name__)
        assert why in queue.get(one).last_error


def test_a_bad_job_dies_and_takes_none_of_its_list_with_it(queue):
    """Each attempt is in a list of half the length; a list of the same jobs again and again would die as one."""
    worker = Worker(queue.db, queue.name, concurrency=20, schedules=False)
    lists: list[int] = []

    @worker.handles("index", many=20, max_attempts=3, backoff=constant(0))
    def index(jobs):
        lists.append(len(jobs))
        if any(job.payload == "bad" for job in jobs):
            raise ValueError("one of them is bad")

    (bad, *good) = queue.enqueue_many([("index", "bad"), *[("index", number) for number in range(19)]])
    worker.run(until_empty=True)
    assert lists[0] == 20
    assert max(lists[1:]) <= 10
    assert states(queue, [bad]) == [State.DEAD]
    assert states(queue, good) == [None] * 19
    assert (worker.summary.completed, worker.summary.dead) == (19, 1)


def test_a_last_attempt_after_a_crash_is_alone_and_does_not_wait_for_a_list(queue):
    ids = queue.enqueue_many([("index", None, {"max_attempts": 2})] * 3)
    queue.claim(3)
    queue.db.rescue(queue.db.worker)
    worker = Worker(queue.db, queue.name, schedules=False)
    lists = []
    worker.handles("index", many=3, linger=HOURS)(lambda jobs: lists.append([job.id for job in jobs]))
    worker.run(until_empty=True)
    assert sorted(lists) == [[one] for one in ids]


@SQLITE
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("ends", ["sleep", "stop"])
def test_a_job_that_ends_the_run_of_its_list_fails_no_other_one(queue, asynchronous, ends):
    """It sleeps, or its worker stops at its step: the call ends for all, and no attempt counts, not even the last one."""
    worker = Worker(queue.db, queue.name, schedules=False)
    lists = []

    def of_function(jobs):
        lists.append([job.payload for job in jobs])
        for job in jobs:
            if job.payload == "ends":
                if ends == "stop":
                    worker._run.stopping.set()
                    job.step("one", lambda: None)
                job.sleep(HOURS)
            elif job.payload == "settled":
                job.complete()

    async def of_coroutine(jobs):
        await asyncio.to_thread(of_function, jobs)

    worker.handles("index", many=4)(of_coroutine if asynchronous else of_function)
    payloads = ["settled", "before", "ends", "after"]
    ids = queue.enqueue_many([("index", payload, {"max_attempts": 1}) for payload in payloads])
    worker.run(until_empty=True)
    if ends == "sleep":
        assert sorted(lists, key=len) == [["before", "after"], payloads]
        assert states(queue, ids) == [None, None, State.SCHEDULED, None]
        assert (worker.summary.snoozed, worker.summary.failed, worker.summary.lost) == (3, 0, 0)
    else:
        assert [(queue.get(one).state, queue.get(one).attempts) for one in ids[1:]] == [(State.AVAILABLE, 0)] * 3
        assert lists == [payloads]
        assert worker.summary.dead == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_timeout_fails_all_jobs_of_the_list_that_are_not_settled(queue, asynchronous):
    worker = Worker(queue.db, queue.name, schedules=False, grace=0)
    go = threading.Event()

    async def of_coroutine(jobs):
        await asyncio.to_thread(jobs[0].complete)
        await asyncio.sleep(HOURS)

    def of_function(jobs):
        jobs[0].complete()
        assert go.wait(PATIENCE)

    handler = of_coroutine if asynchronous else of_function
    worker.handles("index", many=3, timeout=0.05, backoff=constant(HOURS))(handler)
    ids = queue.enqueue_many([("index", number) for number in range(3)])
    worker.run(until_empty=True)
    go.set()
    assert states(queue, ids) == [None, State.SCHEDULED, State.SCHEDULED]
    assert all("no result after 0.05 s" in queue.get(one).last_error for one in ids[1:])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_lost_lease_does_not_end_the_call_of_the_others(queue, running, asynchronous):
    """The first job stands for its list: a cancellation that went by it alone would end the whole call."""
    worker = Worker(queue.db, queue.name, schedules=False)
    entered: list[list[LeasedJob]] = []
    events, go = [], threading.Event()
    worker.on(events.append)

    async def of_coroutine(jobs):
        entered.append(jobs)
        await asyncio.to_thread(jobs[0].lost.wait, PATIENCE)
        await asyncio.to_thread(go.wait, PATIENCE)

    def of_function(jobs):
        entered.append(jobs)
        assert jobs[0].lost.wait(PATIENCE)
        assert go.wait(PATIENCE)

    worker.handles("index", many=3)(of_coroutine if asynchronous else of_function)
    ids = queue.enqueue_many([("index", number) for number in range(3)])
    with running(worker):
        wait_for(lambda: bool(entered))
        first, *others = entered[0]
        assert queue.db.cancel(first.id)
        assert first.lost.wait(PATIENCE)
        assert not any(job.lost.is_set() for job in others)
        go.set()
        wait_for(lambda: worker.summary.completed == 2)
    assert states(queue, ids) == [None] * 3
    assert sorted(event.type for event in events) == ["completed"] * 2 + ["lost"] + ["started"] * 3
    assert (worker.summary.lost, worker.stuck) == (1, 0)


def test_a_coroutine_is_cancelled_when_all_jobs_of_its_list_are_lost(queue, running):
    worker = Worker(queue.db, queue.name, schedules=False)
    entered: list[list[LeasedJob]] = []
    cancelled = threading.Event()

    @worker.handles("index", many=2)
    async def index(jobs):
        entered.append(jobs)
        try:
            await asyncio.sleep(HOURS)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue.enqueue_many([("index", 1), ("index", 2)])
    with running(worker):
        wait_for(lambda: bool(entered))
        for job in entered[0]:
            assert not cancelled.is_set()
            queue.db.cancel(job.id)
            assert job.lost.wait(PATIENCE)
        assert cancelled.wait(PATIENCE)
        wait_for(lambda: worker.stuck == 0 and worker.summary.lost == 2)


@SQLITE
def test_no_job_joins_a_list_whose_call_is_to_be_cancelled(queue):
    """It would be cancelled with it, and its attempt would count."""
    calls: Any = SimpleNamespace(in_flight=InFlight([queue.name]))
    lists = Lists(calls)
    worker = Worker(queue.db, queue.name)

    @worker.handles("index", many=9, linger=HOURS)
    async def index(jobs): ...

    (spec,) = worker.handlers.all()
    queue.enqueue_many([("index", 1), ("index", 2)])
    first, second = queue.claim(2)
    calls.in_flight.add(queue.name, [first])
    assert lists.join([(first, spec)]) == [(first, spec)]
    assert calls.in_flight.remove(first)
    assert lists.to_cancel(first) is first
    assert lists.join([(second, spec)]) == [(second, spec)]


@SQLITE
def test_a_stop_after_the_grace_time_releases_the_jobs_of_a_running_list(queue, running):
    worker = Worker(queue.db, queue.name, schedules=False, grace=0)
    entered, go = threading.Event(), threading.Event()

    @worker.handles("index", many=2)
    def index(jobs):
        entered.set()
        assert go.wait(PATIENCE)

    ids = queue.enqueue_many([("index", 1), ("index", 2)])
    with running(worker):
        assert entered.wait(PATIENCE)
    go.set()
    assert [(queue.get(one).state, queue.get(one).attempts) for one in ids] == [(State.AVAILABLE, 0)] * 2


@SQLITE
def test_a_payload_that_does_not_fit_is_dead_and_the_rest_of_the_list_runs(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    seen, deaths = [], []
    worker.db.deaths.add(deaths.append)

    def small(payload):
        if payload > 1:
            raise ValueError("too large")
        return -payload

    queue.enqueue_many([("index", 1), ("index", 2)])
    worker.handles("index", many=2, schema=small)(lambda jobs: seen.extend(job.payload for job in jobs))
    worker.run(until_empty=True)
    worker.db.deaths.remove(deaths.append)
    del worker.db.schemas["index"]
    assert seen == [-1]
    assert [death.reason for death in deaths if death.job.queue == queue.name] == [DeathReason.PAYLOAD]


@SQLITE
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_list_of_a_handler_of_all_kinds_has_one_kind_so_that_an_unknown_one_harms_no_other(queue, asynchronous):
    ids = queue.enqueue_many([(kind, None, {"max_attempts": 1}) for kind in ("known", "stranger", "known", "stranger")])
    worker, calls = Worker(queue.db, queue.name, schedules=False), []

    def of_function(jobs):
        calls.append([job.kind for job in jobs])
        for job in jobs:
            if job.kind == "stranger":
                raise UnknownKindError(job.kind)

    async def of_coroutine(jobs):
        of_function(jobs)

    worker.handles(None, many=10)(of_coroutine if asynchronous else of_function)
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.snoozed) == (2, 2)
    assert sorted(calls) == [["known"] * 2, ["stranger"] * 2]
    assert states(queue, ids) == [None, State.SCHEDULED] * 2


@SQLITE
def test_wrappers_get_the_list(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    seen = []
    worker.around(lambda jobs, call: seen.append(len(jobs)) or call(jobs))
    worker.handles("index", many=2)(lambda jobs: None)
    queue.enqueue_many([("index", 1), ("index", 2)])
    worker.run(until_empty=True)
    assert seen == [2]
    assert worker.summary.completed == 2


@SQLITE
def test_at_most_once_a_list_reports_each_job(queue):
    worker = Worker(queue.db, queue.name, schedules=False, mode="at_most_once")

    @worker.handles("index", many=2)
    async def index(jobs):
        return [None, ValueError("lost")]

    queue.enqueue_many([("index", 1), ("index", 2)])
    worker.run(until_empty=True)
    assert (worker.summary.completed, worker.summary.dead) == (1, 1)


@SQLITE
@pytest.mark.parametrize("asynchronous", [False, True])
def test_drained_in_a_test_each_job_is_a_list(queue, asynchronous):
    worker = Worker(queue.db, queue.name, schedules=False)

    async def of_coroutine(jobs):
        return [Retry("no", HOURS) if job.payload == 2 else None for job in jobs]

    worker.handles("index", many=2)(of_coroutine if asynchronous else lambda jobs: asyncio.run(of_coroutine(jobs)))
    ids = queue.enqueue_many([("index", 1), ("index", 2)])
    drain(worker)
    assert states(queue, ids) == [None, State.SCHEDULED]


@SQLITE
def test_what_a_list_cannot_be_is_refused(queue):
    worker = Worker(queue.db, queue.name, concurrency=4)
    for options, why in [
        ({"many": 0}, "many"),
        ({"many": 1001}, "many"),
        ({"linger": 1}, "without many="),
        ({"many": 2, "linger": -1}, "linger"),
        ({"many": 2, "executor": "process"}, "a process gets one job at a time"),
    ]:
        with pytest.raises(ArgumentError, match=why):
            worker.handles("index", **options)(lambda jobs: None)
    worker.handles("index", many=5)(lambda jobs: None)
    with pytest.raises(ConfigurationError, match="concurrency=5"):
        worker.run(until_empty=True)


@SQLITE
def test_a_list_is_one_span_with_a_link_for_each_job(queue):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    worker = Worker(queue.db, queue.name, schedules=False)
    try:
        opentelemetry.instrument(worker, provider)
        worker.handles("index", many=2)(lambda jobs: [None, Dead("no")])
        for number in range(2):
            with provider.get_tracer("test").start_as_current_span(f"enqueue {number}"):
                queue.enqueue("index", number)
        worker.run(until_empty=True)
    finally:
        queue.db.header_provider = None
    spans = {
        name: [span for span in exporter.get_finished_spans() if span.name == f"{name} {queue.name}"]
        for name in ("enqueue", "process")
    }
    enqueued, (executed,) = spans["enqueue"], spans["process"]
    assert executed.attributes["messaging.batch.message_count"] == 2
    assert [link.context.span_id for link in executed.links] == [span.context.span_id for span in enqueued]
