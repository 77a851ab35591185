"""Handlers in processes: what goes there and comes back, and that none of them outlives its job, its lease, its worker."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from queue_db import ArgumentError, JobNotFoundError, State
from queue_db.backoff import constant
from queue_db.errors import JobNotFinishedError, PayloadError, TransientStorageError, UnknownKindError
from queue_db.processes.main import Call
from queue_db.processes.pool import ProcessPool
from queue_db.testing import drain
from queue_db.worker import JobSnapshot, Worker, events
from tests.patience import PATIENCE, wait_for
from tests.worker import in_processes
from tests.worker.in_processes import Meeting

ROOT = Path(__file__).resolve().parents[2]
SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def meeting():
    with Meeting() as made:
        yield made


def apart(queue, function, kind=None, worker=None, handling=(), **options):
    """A worker whose handler runs in processes."""
    worker = worker or Worker(queue.db, queue.name, **options)
    worker.handles(kind, executor="process", **dict(handling))(function)
    return worker


@SQLITE
def test_a_process_is_used_again_and_ends_with_its_worker(queue, meeting, running):
    worker = apart(queue, in_processes.meets, concurrency=1, handling={"result_ttl": 100})
    ids = queue.enqueue_many([("n", {"port": meeting.port})] * 2)
    with running(worker):
        first = meeting.visitor()
        first.tell("return")
        second = meeting.visitor()
        assert first.pid == second.pid != os.getpid()
        assert second.alive
        second.tell("return")
        assert queue.db.wait(ids[1], PATIENCE).result == second.pid
    assert not second.alive, "a child was left when the worker had ended"
    assert worker.summary.completed == 2


@SQLITE
def test_it_has_not_the_number_of_the_worker(queue, monkeypatch):
    """A module that opens a port for the worker's metrics is imported there too."""
    monkeypatch.setenv("QUEUE_DB_PROCESS", "1")
    job_id = queue.enqueue("n")
    apart(queue, in_processes.number, handling={"result_ttl": 100}).run(until_empty=True)
    assert queue.db.wait(job_id, PATIENCE).result == "none"


@SQLITE
def test_a_handler_that_comes_while_the_worker_runs_has_its_process_too(queue, running):
    worker = Worker(queue.db, queue.name, result_ttl=100)
    worker.handles("before")(lambda job: None)
    with running(worker):
        queue.db.wait(queue.enqueue("before"), PATIENCE)
        apart(queue, in_processes.tells_of_its_job, "late", worker)
        told = queue.db.wait(queue.enqueue("late"), PATIENCE).result
    assert told["kind"] == "late"


@SQLITE
def test_there_are_never_more_processes_than_jobs_at_once(queue, meeting, running):
    worker = apart(queue, in_processes.meets, concurrency=2)
    queue.enqueue_many([("n", {"port": meeting.port})] * 6)
    with running(worker):
        pids = []
        for _ in range(3):
            pair = [meeting.visitor(), meeting.visitor()]
            pids += [one.pid for one in pair]
            for one in pair:
                one.tell("return")
    assert len(set(pids)) == 2
    assert worker.summary.completed == 6


def test_what_it_returns_becomes_of_the_job(queue):
    worker = apart(queue, in_processes.returns_by_kind)
    ids = {kind: queue.enqueue(kind) for kind in in_processes.OUTCOMES}
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.snoozed, summary.failed, summary.cancelled, summary.dead) == (1, 1, 1, 1, 1)
    assert (queue.get(ids["snooze"]).state, queue.get(ids["snooze"]).attempts) == (State.SCHEDULED, 0)
    assert (queue.get(ids["retry"]).state, queue.get(ids["retry"]).last_error) == (State.SCHEDULED, "not yet")
    assert (queue.get(ids["dead"]).state, queue.get(ids["dead"]).last_error) == (State.DEAD, "hopeless")
    for gone in ("cancel", "done"):
        with pytest.raises(JobNotFoundError):
            queue.get(ids[gone])


@SQLITE
def test_it_gets_the_jobs_data_and_no_verbs(queue, db):
    worker = apart(queue, in_processes.tells_of_its_job, handling={"result_ttl": 100})
    job_id = queue.enqueue("n", {"ä": [1, None]}, headers={"trace": "x"}, unique_key="only")
    (job,) = queue.claim()
    assert job.fail("not today", retry_in=0)
    assert worker.run(until_empty=True).completed == 1
    report = db.finished(job_id).result
    assert report.pop("due")
    assert report == {
        "fence": f"{job_id}:3",
        "id": job_id,
        "queue": queue.name,
        "kind": "n",
        "payload": {"ä": [1, None]},
        "headers": {"trace": "x"},
        "attempts": 2,
        "unique_key": "only",
        "last_error": "not today",
    }


@SQLITE
def test_it_gets_what_the_schema_makes_of_the_payload(queue, db, open_db):
    worker = apart(queue, in_processes.doubles, kind="picture", handling={"schema": in_processes.Picture, "result_ttl": 100})
    good = queue.enqueue("picture", {"width": 21})
    bad = open_db().queue(queue.name).enqueue("picture", {"height": 1})
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.dead) == (1, 1)
    assert db.finished(good).result == 42
    assert "does not fit Picture" in queue.get(bad).last_error


@SQLITE
@pytest.mark.parametrize(
    ("function", "name", "text"),
    [
        (in_processes.raises, "ValueError", "a bad one: 7"),
        (in_processes.raises_what_cannot_be_pickled, "TwoThings", "1 and 2"),
        (in_processes.Holder.raises, "KeyError", "{id}"),
    ],
)
def test_an_exception_comes_back_with_the_traceback_of_there(queue, db, function, name, text):
    worker = apart(queue, function, handling={"backoff": constant(1000)})
    job_id = queue.enqueue("n", 7)
    assert worker.run(until_empty=True).failed == 1
    text = text.format(id=job_id)
    (error,) = db.errors(job_id)
    assert (error.error_class, error.message) == (name, text)
    assert queue.get(job_id).last_error == f"{name}: {text}"
    assert "in_processes.py" in error.trace
    assert f"in {function.__name__}" in error.trace


@SQLITE
def test_a_kind_that_the_process_has_no_code_for_waits(queue, log):
    job_id = queue.enqueue("stranger")
    assert apart(queue, in_processes.knows_nothing, handling={"max_attempts": 1}).run(until_empty=True).snoozed == 1
    assert log.count("no code for stranger; its jobs wait for a worker that has one, and are dead after 3600 s") == 1
    queue.reschedule(job_id, delay=0)
    assert apart(queue, in_processes.knows_nothing, unknown="dead").run(until_empty=True).dead == 1
    assert queue.get(job_id).last_error == "parked: no code for stranger"


@pytest.mark.parametrize(
    "error",
    [
        UnknownKindError("a", ["b"], message="no code for a"),
        ArgumentError(argument="many", problem=" is 0"),
        PayloadError(reason="no number", kind="a"),
        JobNotFinishedError(7, "running"),
        TransientStorageError("no answer", outcome_unknown=True),
    ],
)
def test_an_error_of_the_library_comes_back_as_it_was(error):
    error.place = "job 3: "
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(back), str(back), back.wire, vars(back)) == (type(error), str(error), error.wire, vars(error))


@SQLITE
@pytest.mark.parametrize("keep", [0, 100])
def test_a_result_that_cannot_be_pickled_is_no_reason_to_do_the_work_again(queue, keep):
    """If it is to be kept, it is missed."""
    worker = apart(queue, in_processes.returns_what_cannot_be_pickled, handling={"result_ttl": keep})
    job_id = queue.enqueue("n")
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.dead) == ((0, 1) if keep else (1, 0))
    if keep:
        assert "its result cannot be kept: it cannot be sent from the process of the handler: " in queue.get(job_id).last_error


@SQLITE
def test_a_payload_that_cannot_be_decoded_lets_its_job_die(queue, db):
    worker = apart(queue, in_processes.returns_by_kind)
    job_id = queue.enqueue("n")
    with queue.transaction() as connection:
        jobs = db.store.tables.jobs
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(payload="{"))
    assert worker.run(until_empty=True).dead == 1
    assert queue.get(job_id).last_error.startswith("parked: payload of job kind 'n': the stored text cannot be decoded: ")


@SQLITE
def test_what_cannot_be_sent_fails_its_attempt(queue):
    worker = apart(queue, in_processes.raises, kind="n", handling={"schema": lambda payload: lambda: payload})
    job_id = queue.enqueue("n", 1)
    assert worker.run(until_empty=True).failed == 1
    assert queue.get(job_id).last_error.startswith("HandlerProcessError: the job cannot be sent to a process: ")


@SQLITE
@pytest.mark.parametrize(("how", "exit_text"), [("die", "exit status 3"), ("kill", "killed by SIGKILL")])
def test_a_process_that_dies_fails_its_own_attempt_and_no_other(queue, meeting, running, log, how, exit_text):
    worker = apart(queue, in_processes.meets, concurrency=2, handling={"backoff": constant(0)})
    unlucky, lucky = queue.enqueue_many([("n", {"port": meeting.port}), ("n", {"port": meeting.port})])
    with running(worker):
        one, other = meeting.visitor(), meeting.visitor()
        one.tell("die") if how == "die" else os.kill(one.pid, signal.SIGKILL)
        again = meeting.visitor()
        assert again.pid not in (one.pid, other.pid)
        assert other.alive
        for running_still in (again, other):
            running_still.tell("return")
    assert (worker.summary.failed, worker.summary.completed, worker.summary.lost) == (1, 2, 0)
    errors = [*queue.db.errors(unlucky), *queue.db.errors(lucky)]
    assert [(error.error_class, error.message) for error in errors] == [
        ("HandlerProcessError", f"the process of this handler died: {exit_text}")
    ]


@SQLITE
def test_a_process_that_dies_between_two_jobs_fails_neither(queue, meeting, running):
    worker = apart(queue, in_processes.meets, concurrency=1, handling={"result_ttl": 100})
    with running(worker):
        before = queue.enqueue("n", {"port": meeting.port})
        idle = meeting.visitor()
        idle.tell("return")
        assert queue.db.wait(before, PATIENCE).attempts == 1
        os.kill(idle.pid, signal.SIGKILL)
        assert idle.ends()
        after = queue.enqueue("n", {"port": meeting.port})
        meeting.visitor().tell("return")
        assert queue.db.wait(after, PATIENCE).attempts == 1
    assert (worker.summary.completed, worker.summary.failed) == (2, 0)


def test_one_that_talks_without_end_has_no_more_time_than_others(queue):
    queue.enqueue("k", max_attempts=1)
    summary = apart(queue, in_processes.talks_without_end, concurrency=1, handling={"timeout": 0.5}).run(until_empty=True)
    assert summary.dead == 1
    (dead,) = queue.db.dead.list(queue.name)
    assert dead.last_error == "TimeoutError: no result after 0.5 s"


@SQLITE
@pytest.mark.parametrize("stubborn", [False, True])
def test_at_a_timeout_the_process_has_ended_before_the_job_comes_back(queue, meeting, running, stubborn, monkeypatch):
    """One slot: the second attempt begins in it, and the process of the first one is gone by then, and all that it had started."""
    later = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + later)
    monkeypatch.setattr("queue_db.processes.pool.time", clock)
    if not stubborn:
        monkeypatch.setattr("queue_db.processes.pool.TERMINATE", PATIENCE)
    worker = apart(queue, in_processes.meets, concurrency=1, handling={"timeout": 3600.0, "backoff": constant(0)})
    job_id = queue.enqueue("n", {"port": meeting.port, "stubborn": stubborn, "starts": True})
    with running(worker):
        first = meeting.visitor()
        first.tell("progress")
        wait_for(lambda: queue.get(job_id).progress)  # the worker knows that its time has begun
        later = 3600.0
        # A stubborn one may be killed before it has said so.
        assert stubborn or first.hear() == "asked to end"
        second = meeting.visitor()
        assert not first.alive
        assert first.program_ends(), "what the handler had started runs on"
        second.tell("return")
    assert (worker.summary.failed, worker.summary.completed) == (1, 1)
    assert queue.db.errors(job_id)[0].message == "no result after 3600 s"


@SQLITE
def test_a_process_ends_when_the_lease_is_lost(queue, meeting, running, log, quick_beats):
    worker = apart(queue, in_processes.meets, concurrency=1, lease=600)
    job_id = queue.enqueue("n", {"port": meeting.port})
    with running(worker):
        one = meeting.visitor()
        wait_for(lambda: queue.cancel(job_id))  # it loses to a heartbeat at the same moment
        assert one.ends()
        log.wait("the result does not count")
        queue.enqueue("n", {"port": meeting.port})
        meeting.visitor().tell("return")
    assert (worker.summary.lost, worker.summary.completed) == (1, 1)


@SQLITE
def test_a_lease_that_is_lost_when_its_process_has_just_answered_ends_no_other_job(queue):
    queue.enqueue_many([("done", None)] * 2)
    late, other = queue.claim(2)
    handling = apart(queue, in_processes.returns_by_kind).handlers.of(late)
    pool = ProcessPool()
    process = pool._borrow(late)
    message = pickle.dumps(Call(handling.apart, pickle.dumps(JobSnapshot.of(late))))
    assert process.call(message, handling, late)
    pool.cancel(late)
    pool._put_back(late, process)
    assert pool.call(handling, other) == "fine"
    pool.close()


@SQLITE
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_stop_past_its_grace_ends_the_process_before_it_gives_the_job_back(queue, meeting, running, stubborn, monkeypatch):
    worker = apart(queue, in_processes.meets)
    job_id = queue.enqueue("n", {"port": meeting.port, "stubborn": stubborn})
    seen = []
    release = events.interrupt
    monkeypatch.setattr(events, "interrupt", lambda *args: seen.append(one.alive) or release(*args))
    with running(worker) as thread:
        one = meeting.visitor()
        worker.stop(grace=0)
        thread.join(PATIENCE)
        assert not one.alive
    assert seen == [False]
    job = queue.get(job_id)
    assert (job.state, job.attempts, worker.summary.released) == (State.AVAILABLE, 0, 1)


@SQLITE
def test_signals_for_everybody_do_not_end_a_process(queue, meeting, running):
    """Ctrl-C, or a service manager that signals each process: the worker decides."""
    worker = apart(queue, in_processes.meets)
    queue.enqueue("n", {"port": meeting.port})
    with running(worker):
        one = meeting.visitor()
        assert os.getsid(one.pid) == one.pid
        os.kill(one.pid, signal.SIGINT)
        os.kill(one.pid, signal.SIGTERM)
        one.tell("return")
    assert (worker.summary.completed, worker.summary.failed) == (1, 0)


@SQLITE
def test_processes_end_when_their_worker_is_killed(queue, url, meeting, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import os\n"
        "from queue_db import QueueDB\n"
        "from queue_db.worker import Worker\n"
        "from tests.worker.in_processes import meets\n"
        f"worker = Worker(QueueDB(os.environ['QUEUE_DB_URL']), {queue.name!r}, concurrency=2)\n"
        "worker.handles('n', executor='process')(meets)\n"
    )
    queue.enqueue_many([("n", {"port": meeting.port, "starts": True}), ("n", {"port": meeting.port, "stubborn": True})])
    environment = os.environ | {"QUEUE_DB_URL": url, "PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen([sys.executable, "-m", "queue_db", "work", "shop:worker"], cwd=tmp_path, env=environment)
    try:
        busy = [meeting.visitor(), meeting.visitor()]
        worker.kill()
        assert all(one.ends() and one.program_ends() for one in busy)
    finally:
        worker.kill()
        worker.wait(PATIENCE)


@SQLITE
def test_what_it_logs_is_written_here_with_its_job(queue, caplog):
    caplog.set_level(logging.INFO)
    worker = apart(queue, in_processes.logs)
    job_id = queue.enqueue("n", 7)
    assert worker.run(until_empty=True).completed == 1
    painted, spilt = [record for record in caplog.records if record.name == "shop"]
    assert (painted.levelname, painted.getMessage(), painted.color) == ("INFO", "painted for 'ä'", "blue")
    assert all((record.job_id, record.kind, record.attempt) == (job_id, "n", 1) for record in (painted, spilt))
    assert painted.process != os.getpid()
    assert "a bad one: 7" in spilt.exc_text
    assert "in raises" in spilt.exc_text


@SQLITE
def test_what_goes_around_a_handler_is_called_here(queue):
    worker = apart(queue, in_processes.raises, handling={"backoff": constant(1000)})
    seen, heard = [], []

    @worker.around
    def around(job, call):
        with pytest.raises(ValueError, match="a bad one"):
            call(job)
        seen.append((os.getpid(), job.source))
        return "saved"

    worker.on(lambda event: heard.append(str(event.type)))
    queue.enqueue("n")
    assert worker.run(until_empty=True).completed == 1
    assert seen == [(os.getpid(), queue)]
    assert heard == ["started", "completed"]


@SQLITE
def test_at_most_once(queue):
    worker = apart(queue, in_processes.raises, mode="at_most_once")
    queue.enqueue_many([("n", number) for number in range(3)])
    assert worker.run(until_empty=True).dead == 3
    assert queue.stats().by_kind == {}


@SQLITE
def test_in_a_test_of_ones_own_they_are_called_at_once(queue):
    worker = apart(queue, in_processes.returns_by_kind)
    queue.enqueue("done")
    assert len(drain(worker)) == 1


async def _coroutine(job):
    """Belongs on a loop."""


def _of(module):
    """A function that claims to be of this module."""
    made = types.FunctionType(compile("0", "x", "eval"), {}, "made")
    made.__module__, made.__qualname__ = module, "made"
    return made


@SQLITE
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda job: None, "cannot import it by this name; define it at the top of a module"),
        (in_processes.bound, "finds only functions of modules; define it at the top of a module"),
        (in_processes.part, "finds only functions of modules; define it at the top of a module"),
        (_of("__main__"), "made of the main program, which another process cannot import; define it"),
        (_of("no_such_module"), "no module 'no_such_module' can be imported; define it"),
        (_coroutine, "is async def: it runs on the worker's event loop"),
    ],
)
def test_a_function_that_no_process_can_find_is_refused_when_it_is_registered(queue, function, reason):
    with pytest.raises(ArgumentError, match=reason):
        apart(queue, function)


@SQLITE
def test_an_unknown_executor_is_refused(queue):
    def local(job):
        pass

    with pytest.raises(ArgumentError, match="must be one of thread, process"):
        Worker(queue.db, queue.name).handles("n", executor="fibre")(local)
    with pytest.raises(ArgumentError, match="cannot import it by this name"):
        apart(queue, local)
