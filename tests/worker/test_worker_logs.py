"""What log records about jobs carry, and lines of JSON."""

import asyncio
import io
import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime

import pytest

from queue_db import LeaseLostError, Snooze
from queue_db.backoff import constant
from queue_db.cli.logs import MaskedFormatter
from queue_db.instrumentation.logging import JSONFormatter
from queue_db.worker import Worker
from queue_db.worker.events import EventType
from queue_db.worker.logs import current
from tests.patience import HOURS, PATIENCE

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def lines():
    """What the worker logs, as its JSON lines say it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.getLogger("queue_db")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().split("\n") if line]
    logger.removeHandler(handler)
    logger.setLevel(before)


@SQLITE
def test_records_about_a_job_say_which_and_what_became_of_it(queue, db, lines):
    worker = Worker(db, queue.name, unknown="dead")
    worker.handles("good")(lambda job: None)
    worker.handles("later")(lambda job: Snooze(1000))

    @worker.handles("bad", backoff=constant(1000))
    def bad(job):
        raise ValueError("schlecht: ä\u2028😀")

    ids = {kind: queue.enqueue(kind, {"password": "hunter2"}) for kind in ("good", "later", "bad", "unknown")}
    worker.run(until_empty=True)
    logged = [line for line in lines() if "job_id" in line]
    usual = {"queue": queue.name, "attempt": 1, "worker": db.worker}
    for kind, outcome in {"good": "completed", "later": "snoozed", "bad": "failed", "unknown": "dead"}.items():
        about = [line for line in logged if line["kind"] == kind]
        assert all(line["job_id"] == ids[kind] and usual.items() <= line.items() for line in about), about
        assert {line["outcome"] for line in about} == {outcome}
    assert all(line["seconds"] >= 0 for line in logged if line["kind"] != "unknown")
    (failed,) = [line for line in logged if line["level"] == "WARNING" and line["kind"] == "bad"]
    assert failed["message"].endswith("failed: ValueError: schlecht: ä\u2028😀")
    assert failed["exception"].startswith("Traceback")
    assert "in bad" in failed["exception"]
    assert "hunter2" not in json.dumps(lines())


# How a handler fails, and whether that has a traceback.
FAILURES = {"thread": True, "loop": True, "process": True, "timeout": False, "late loop": False, "snooze": False}


@SQLITE
@pytest.mark.parametrize(
    ("how", "mode"),
    # At most once a snooze is not granted.
    [(how, mode) for how in FAILURES for mode in ("at_least_once", "at_most_once") if (how, mode) != ("snooze", "at_most_once")],
)
def test_the_last_failure_of_a_job_is_one_line_with_all_that_is_known(queue, db, lines, how, mode):
    go = threading.Event()

    def breaks(job):
        raise ValueError("broken")

    async def breaks_there(job):
        raise ValueError("broken")

    async def waits(job):
        await asyncio.sleep(PATIENCE)

    handler, options = {
        "thread": (breaks, {}),
        "loop": (breaks_there, {}),
        "process": (broken, {"executor": "process"}),
        "timeout": (lambda job: go.wait(PATIENCE), {"timeout": 0.05}),
        "late loop": (waits, {"timeout": 0.05}),
        "snooze": (lambda job: Snooze(-1), {}),
    }[how]
    worker, events = Worker(db, queue.name, mode=mode), []
    worker.on(lambda event: (events.append(event), go.set() if event.type is EventType.DEAD else None))
    worker.handles("n", max_attempts=2, backoff=constant(0), **options)(handler)
    job_id = queue.enqueue("n", max_attempts=2)
    summary = worker.run(until_empty=True)
    late = "the handler ended after its job was abandoned"  # of the thread, not of the attempt
    logged = [line for line in lines() if line.get("job_id") == job_id and line["level"] != "DEBUG" and late not in line["message"]]
    outcomes = ["dead"] if mode == "at_most_once" else ["failed", "dead"]
    assert [line["outcome"] for line in logged] == outcomes
    assert [line["attempt"] for line in logged] == list(range(1, len(outcomes) + 1))
    death = logged[-1]
    assert f"after attempt {len(outcomes)}/2 (failed): " in death["message"]
    about = {"job_id", "queue", "kind", "attempt", "max_attempts", "worker", "outcome", "seconds", "reason"}
    assert about <= death.keys()
    assert ("exception" in death) == FAILURES[how]
    assert not FAILURES[how] or "broken" in death["exception"]
    dead = [event for event in events if event.type is EventType.DEAD]
    assert len(dead) == summary.dead == 1
    assert summary.failed == len(outcomes) - 1
    assert db.counters.dead == len(db.dead.list(queue.name)) == (mode == "at_least_once")


def broken(job):
    raise ValueError("broken")


@SQLITE
def test_the_last_failure_of_a_message_is_one_line(db, name, lines):
    feed = db.feed(f"f-{name}"[:40])
    feed.shared(name)  # its failed messages go to the queue of this name
    worker = Worker(db, feeds={f"{feed.name}:{name}": 1})
    worker.handles("n", max_attempts=1)(broken)
    feed.publish("n")
    assert worker.run(until_empty=True).dead == 1
    (death,) = [line for line in lines() if line["level"] == "WARNING"]
    assert (death["outcome"], death["attempt"], death["max_attempts"]) == ("dead", 1, 1)
    assert "ValueError: broken" in death["exception"]
    assert death["seconds"] >= 0


@SQLITE
def test_a_last_failure_that_is_no_death_has_its_traceback_too(queue, db, open_db, lines):
    """The lease was lost meanwhile."""

    def late(job):
        if job.attempts == 1:
            open_db().rescue(db.worker)
            job.limit_attempts(1)
            raise ValueError("broken")

    worker = Worker(db, queue.name)
    worker.handles("n")(late)
    queue.enqueue("n", max_attempts=2)
    assert worker.run(until_empty=True).dead == 0
    failed, lost = [line for line in lines() if line["level"] == "WARNING" and "job_id" in line]
    assert (failed["outcome"], lost["outcome"]) == ("failed", "lost")
    assert "ValueError: broken" in failed["exception"]


@SQLITE
def test_a_lost_lease_and_a_late_result_are_told_with_the_job(queue, db, open_db, lines):
    worker = Worker(db, queue.name)

    @worker.handles(None)
    def stolen(job):
        if job.attempts == 1:
            open_db().rescue(db.worker)

    job_id = queue.enqueue("n")
    worker.run(until_empty=True)
    (lost,) = [line for line in lines() if line.get("outcome") == "lost"]
    assert (lost["job_id"], lost["attempt"], lost["level"]) == (job_id, 1, "WARNING")


@SQLITE
@pytest.mark.parametrize("max_attempts", [1, 5])
def test_a_transaction_whose_lease_is_lost_is_one_line(queue, db, open_db, lines, max_attempts):
    def stolen(job):
        if job.attempts == 1:
            open_db().rescue(db.worker)
            job.limit_attempts(max_attempts)
            with job.transaction():
                pass

    worker = Worker(db, queue.name)
    worker.handles("n")(stolen)
    queue.enqueue("n")
    assert worker.run(until_empty=True).lost == 1
    (lost,) = [line for line in lines() if line["level"] == "WARNING" and "job_id" in line]
    assert lost["outcome"] == "lost"
    assert "LeaseLostError" not in lost["message"]


@SQLITE
def test_the_lost_lease_of_another_job_is_a_failure(queue, db, lines):
    def handler(job):
        raise LeaseLostError(job.id + 1, 1)

    worker = Worker(db, queue.name)
    worker.handles("n", backoff=constant(HOURS))(handler)
    queue.enqueue("n")
    assert worker.run(until_empty=True).failed == 1
    (failed,) = [line for line in lines() if line["level"] == "WARNING" and "job_id" in line]
    assert failed["outcome"] == "failed"
    assert "LeaseLostError" in failed["exception"]


@SQLITE
def test_a_handler_that_has_completed_its_job_was_not_abandoned_in_vain(queue, db, lines):
    """Its timeout is over, but not before its transaction."""

    def handler(job):
        if job.kind == "slow":
            with job.transaction():
                pass
            assert job.lost.wait(PATIENCE)

    worker = Worker(db, queue.name, concurrency=1)
    worker.handles("slow", timeout=0.05)(handler)
    worker.handles("n")(handler)
    queue.enqueue_many([("slow", None), ("n", None)])
    assert worker.run(until_empty=True).completed == 2
    (late,) = [line for line in lines() if line["level"] == "WARNING" and "job_id" in line]
    assert "its thread keeps a slot until it returns" in late["message"]
    assert "outcome" not in late


def record(message, *values, exc_info=None, **options):
    return logging.getLogger("shop").makeRecord("shop", logging.INFO, "file.py", 1, message, values, exc_info, **options)


def test_a_line_is_one_object_in_ascii():
    try:
        {}["ключ\n"]
    except KeyError:
        raised = sys.exc_info()
    made = record("%s\n%s", "ä\x9b\u2028", "\udc80", exc_info=raised, extra={"path": datetime, "count": 3})
    line = JSONFormatter().format(made)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    logged = json.loads(line)
    assert list(logged) == ["time", "level", "logger", "message", "pid", "path", "count", "exception"]
    assert logged["message"] == "ä\x9b\u2028\n\udc80"
    assert (logged["level"], logged["logger"], logged["path"], logged["count"]) == ("INFO", "shop", str(datetime), 3)
    assert logged["exception"].endswith(f"KeyError: {'ключ' + chr(10)!r}")
    assert logged["time"] == datetime.fromtimestamp(made.created, UTC).isoformat(timespec="microseconds")
    assert logged["time"].endswith("+00:00")


def test_a_formatter_of_ones_own_may_add_fields():
    class Shop(JSONFormatter):
        def fields(self, record):
            return super().fields(record) | {"shop": 7}

    assert json.loads(Shop().format(record("x")))["shop"] == 7


@SQLITE
@pytest.mark.parametrize("where", ["thread", "loop", "wrapper", "message"])
def test_what_a_handler_logs_has_the_fields_of_its_job(queue, db, name, lines, where):
    shop = logging.getLogger("queue_db.shop")  # below the logger that the fixture reads

    def work(job):
        shop.info("packing", extra={"parcel": 3})

    async def work_there(job):
        work(job)

    worker = Worker(db, queue.name, feeds={f"f-{name}"[:40] + ":c": 1} if where == "message" else None)
    worker.handles("n")(work_there if where == "loop" else print if where == "wrapper" else work)
    if where == "wrapper":
        worker.around(lambda job, call: work(job))
    if where == "message":
        feed = db.feed(f"f-{name}"[:40])
        feed.shared("c")
        job_id, of = feed.publish("n") and 1, f"{feed.name}:c"
    else:
        job_id, of = queue.enqueue("n"), queue.name
    worker.run(until_empty=True)
    shop.info("closed")
    packing, closed = [line for line in lines() if line["logger"] == "queue_db.shop"]
    about = {"job_id": job_id, "queue": of, "kind": "n", "attempt": 1, "worker": db.worker}
    assert (about | {"parcel": 3, "pid": os.getpid()}).items() <= packing.items()
    assert "job_id" not in closed


@SQLITE
def test_lines_of_worker_processes_show_their_number_and_their_job(queue, monkeypatch):
    record = logging.LogRecord("shop", logging.INFO, "", 0, "packing", (), None)
    assert f" INFO {os.getpid()} MainThread: packing" in MaskedFormatter(None).format(record)  # a supervisor, or the service
    monkeypatch.setenv("QUEUE_DB_PROCESS", "2")
    job_id = queue.enqueue("n")
    token = current.set(queue.claim()[0])
    try:
        line = MaskedFormatter(None).format(record)
        fields = json.loads(JSONFormatter().format(record))
    finally:
        current.reset(token)
    assert f" INFO 2/{os.getpid()} MainThread: job {job_id}: packing" in line
    assert (fields["process"], fields["pid"]) == ("2", os.getpid())
