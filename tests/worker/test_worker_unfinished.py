"""Handlers whose work has not run when they return: they are refused when they are registered, or their attempts fail."""

import asyncio
import functools
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from queue_db import ArgumentError, Cancel, Dead, QueueDB, Retry, Snooze, State
from queue_db.testing import drain
from queue_db.worker import Worker
from tests.worker import in_processes
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])

RAN = []


async def send(job):
    RAN.append(job)


def decorated(function):
    """A decorator that nobody wrote for coroutines."""

    @functools.wraps(function)
    def call(job):
        return function(job)

    return call


def generates(job):
    RAN.append(job)
    yield 1


async def generates_too(job):
    RAN.append(job)
    yield 1


class Sends:
    def __init__(self, job=None):
        pass

    async def send(self, job):
        RAN.append(job)


class Generates:
    def __call__(self, job):
        yield job


class Awaitable:
    def __await__(self):
        yield


async def forgets(job):
    return send(job)


class Asynchronous:
    async def __call__(self, job):
        return 3


#: Handlers, with a part of the error of each attempt.
UNFINISHED = {
    "decorated": (decorated(send), "returned a coroutine"),
    "lambda": (lambda job: send(job), "returned a coroutine"),  # noqa: PLW0108 - as users write it
    "partial": (functools.partial(decorated(send)), "returned a coroutine"),
    "method": (lambda job: Sends().send(job), "returned a coroutine"),
    "forgotten await": (forgets, "returned a coroutine"),
    "awaitable": (lambda job: Awaitable(), "returned an awaitable"),
    "generator": (lambda job: generates(job), "returned a generator"),  # noqa: PLW0108
    "asynchronous generator": (decorated(generates_too), "returned an asynchronous generator"),
    "map": (lambda job: map(RAN.append, [job]), "returned a generator"),
    "function": (lambda job: functools.partial(generates, job), "returned a function"),
    "class": (lambda job: Snooze, "returned the class Snooze"),
    "error's class": (lambda job: ValueError, "returned the class ValueError"),
    "error": (lambda job: ValueError("no such user"), "returned ValueError('no such user'): raise it"),
}


@pytest.fixture(autouse=True, scope="module")
def _old_objects():
    gc.collect()
    gc.freeze()  # each test ends with a collection, which need not look at what others have left


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [one for one in caught if "never awaited" in str(one.message)] == []


@SQLITE
@pytest.mark.parametrize("how", ["worker", "drain", "at most once"])
def test_a_handler_that_never_ran_does_not_complete_its_job(queue, db, how):
    worker = Worker(db, queue.name, mode="at_most_once" if how == "at most once" else "at_least_once")
    events = []
    worker.on(events.append)
    for kind, (function, _) in UNFINISHED.items():
        worker.handles(kind)(function)
    ids = {kind: queue.enqueue(kind) for kind in UNFINISHED}
    if how == "drain":
        drain(worker, raises=False)
    else:
        worker.run(until_empty=True)
        assert (worker.summary.completed, worker.summary.failed + worker.summary.dead) == (0, len(UNFINISHED))
    assert RAN == []
    if how == "at most once":
        errors = {event.job.kind: str(event.outcome) for event in events if event.type == "dead"}
    else:
        errors = {kind: queue.get(job_id).last_error for kind, job_id in ids.items()}
    assert {kind: text for kind, (_, text) in UNFINISHED.items() if text not in errors[kind]} == {}
    assert "HandlerResultError: " in errors["lambda"] or how == "at most once"


@SQLITE
def test_the_text_of_a_returned_exception_has_its_traceback(queue, db):
    """Returned by a handler that caught it: where it came from is the half of it."""

    def catches(job):
        try:
            return {}["user"]
        except KeyError as error:
            return error

    job_id = queue.enqueue("n")
    drain(serving(queue, catches), raises=False)
    (error,) = db.errors(job_id)
    assert error.error_class == "HandlerResultError"
    assert 'return {}["user"]' in error.trace


@SQLITE
def test_a_task_that_nobody_awaits_is_cancelled_and_its_attempt_fails(queue):
    ended = []

    async def forgets_the_task(job):
        async def goes_on():
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(job.id)

        task = asyncio.create_task(goes_on())
        await asyncio.sleep(0)
        return task

    job_id = queue.enqueue("n")
    worker = serving(queue, forgets_the_task)
    worker.run(until_empty=True)
    assert ended == [job_id]
    assert "returned a task" in queue.get(job_id).last_error


@SQLITE
def test_a_future_is_not_a_result(queue):
    with ThreadPoolExecutor(1) as pool:
        job_id = queue.enqueue("n")
        drain(serving(queue, lambda job: pool.submit(RAN.append, 1)), raises=False)
    assert "returned a future" in queue.get(job_id).last_error


@SQLITE
def test_in_a_process_too(queue):
    worker = Worker(queue.db, queue.name)
    worker.handles("n", executor="process")(in_processes.returns_a_coroutine)
    job_id = queue.enqueue("n")
    worker.run(until_empty=True)
    assert worker.summary.completed == 0
    assert "HandlerResultError: the handler returned a coroutine" in queue.get(job_id).last_error


@SQLITE
def test_what_wraps_a_handler_may_await_what_it_returned(queue):
    """What counts is what comes out at the end."""
    worker = serving(queue, decorated(send))
    worker.around(lambda job, call: asyncio.run(call(job)))
    queue.enqueue("n")
    assert worker.run(until_empty=True).completed == 1
    assert len(RAN) == 1


@SQLITE
def test_a_message_whose_handler_never_ran_becomes_a_job(db, queue, name):
    feed = db.feed(f"f-{name}"[:40])
    feed.shared("c")
    feed.publish("n", {"user": 7})
    worker = Worker(db, queue.name, feeds={f"{feed.name}:c": 1})
    worker.handles(None)(decorated(send))
    assert worker.run(until_empty=True).completed == 0
    (job,) = db.queue("c").jobs("scheduled").jobs
    assert "returned a coroutine" in job.last_error


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (generates, "is a generator function"),
        (functools.partial(generates), "is a generator function"),
        (generates_too, "is an asynchronous generator function"),
        (functools.partial(functools.partial(generates_too)), "is an asynchronous generator function"),
        (Generates(), "is a generator function"),
        (Generates().__call__, "is a generator function"),
        (Sends, "is a class"),
        (functools.partial(Sends), "is a class"),
    ],
)
def test_a_function_that_a_call_does_not_run_is_refused_when_it_is_registered(function, reason):
    with QueueDB("sqlite://") as db:
        worker = Worker(db, "mail")
        with pytest.raises(ArgumentError, match=f"the handler of kind 'n' {reason}"):
            worker.handles("n")(function)
        with pytest.raises(ArgumentError, match=reason):
            worker.around(function)


@pytest.mark.parametrize("function", [send, functools.partial(send), generates, Asynchronous(), generates_too])
def test_what_is_called_and_not_awaited_is_a_plain_function(function):
    with QueueDB("sqlite://") as db:
        worker = Worker(db, "mail")
        for register in (
            worker.on,
            db.deaths.add,
            lambda function: worker.handles("n", backoff=function)(print),
            lambda function: worker.handles("n", schema=function)(print),
        ):
            with pytest.raises(ArgumentError, match="must be a plain function"):
                register(function)


@SQLITE
def test_a_hook_that_returns_a_coroutine_says_so(queue, log):
    worker = serving(queue, lambda job: None)
    worker.on(lambda event: send(event.job))
    queue.enqueue("n")
    worker.run(until_empty=True)
    assert log.has("the hook")


@SQLITE
def test_partials_of_coroutine_functions_run_on_the_loop(queue):
    worker = Worker(queue.db, queue.name)
    worker.handles("function")(functools.partial(send))
    worker.handles("object")(functools.partial(Asynchronous()))
    worker.handles("outcome")(lambda job: Cancel())
    queue.enqueue_many([("function", 1), ("object", 2), ("outcome", 3)])
    worker.run(until_empty=True)
    assert (worker.summary.completed, worker.summary.cancelled, len(RAN)) == (2, 1, 1)


@SQLITE
@pytest.mark.parametrize("outcome", [None, 7, "text", {"a": [1]}, Dead("no"), Retry("later"), Snooze(1000), object(), int])
def test_outcomes_and_results_are_as_they_were(queue, outcome):
    """The control: only what stands for work that did not run is refused."""
    job_id = queue.enqueue("n")
    drain(serving(queue, lambda job: outcome), raises=False)
    if isinstance(outcome, Dead | Retry | Snooze):
        assert queue.get(job_id).state in (State.DEAD, State.SCHEDULED)
        assert "HandlerResultError" not in (queue.get(job_id).last_error or "")
    else:
        assert queue.stats().by_kind == {}
