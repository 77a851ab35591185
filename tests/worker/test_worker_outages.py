"""An outage is logged once for all threads, then every minute, and when it is over."""

import logging
import threading

import pytest

from queue_db import PermanentStorageError, QueueDB, StorageError, TransientStorageError
from queue_db.monitoring.sampling import Sampling
from queue_db.slices import Task
from queue_db.worker import Worker
from queue_db.worker.logs import REPEAT, Activity, Outages
from queue_db.worker.maintenance import logged
from queue_db.worker.registration import Registration
from tests.patience import PATIENCE

AWAY = TransientStorageError("the server is away", server_away=True)


class Log(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))

    def taken(self):
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def log():
    handler = Log()
    logging.getLogger("queue_db.worker").addHandler(handler)
    yield handler
    logging.getLogger("queue_db.worker").removeHandler(handler)


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def outages(now):
    return Outages(lambda: now[0])


def test_all_threads_together_log_an_outage_once_then_every_minute_then_its_end(log, outages, now):
    claiming, beating = Activity(outages), Activity(outages)
    for _ in range(100):
        claiming.failed("claiming", AWAY, 3.0)
        beating.failed("extending", AWAY, 3.0)
        Activity(outages).failed_rarely("sweeping", AWAY)
    assert log.taken() == [("WARNING", "claiming failed, trying again: the server is away")]
    for minute in (1, 2):
        now[0] += REPEAT
        for _ in range(5):
            beating.failed("extending", AWAY, 3.0)
        assert log.taken() == [("WARNING", f"extending still fails, for {60 * minute} s by now: the server is away")]
    claiming.worked()
    assert log.taken() == [], "it is not over while a thread fails"
    beating.worked()
    beating.worked()
    claiming.worked()
    assert log.taken() == [("WARNING", "back again after 120 s")]
    claiming.failed("claiming", AWAY, 3.0)
    assert len(log.taken()) == 1, "the next outage"


def test_a_thread_that_has_ended_does_not_keep_an_outage_going(log, outages):
    claiming, beating = Activity(outages), Activity(outages)
    for activity in (claiming, beating):
        activity.failed("it", AWAY, 3.0)
    beating.ended()
    log.taken()
    claiming.worked()
    assert [line for _, line in log.taken()] == ["back again after 0 s"]
    claiming.failed("it", AWAY, 3.0)
    log.taken()
    claiming.ended()
    assert log.taken() == [], "it is unknown whether it is back"


def test_a_thread_that_has_given_up_one_batch_logs_its_next_failure(log, outages, now):
    settling = Activity(outages)
    for _ in range(2):
        settling.failed("settling", AWAY, 3.0)
        assert [line for _, line in log.taken()] == ["settling failed, trying again: the server is away"]
        settling.gave_up()
        now[0] += REPEAT


def test_a_failure_that_comes_after_the_end_of_its_thread_keeps_no_outage_going(log, outages):
    claiming, beating = Activity(outages), Activity(outages)
    claiming.failed("claiming", AWAY, 3.0)
    beating.ended()
    beating.failed("extending", AWAY, 3.0)
    claiming.worked()
    assert log.taken() == [
        ("WARNING", "claiming failed, trying again: the server is away"),
        ("WARNING", "back again after 0 s"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        PermanentStorageError("no right", sqlstate="42501"),
        TransientStorageError("a lock timeout", sqlstate="55P03"),
        TransientStorageError("keys were taken by others again and again"),
        RuntimeError("a mistake"),
    ],
)
def test_an_error_that_says_nothing_about_the_others_hides_none_of_them(log, outages, error):
    beating, claiming = Activity(outages), Activity(outages)
    beating.failed("extending", error, 3.0)
    beating.failed("extending", error, 3.0)
    claiming.failed("claiming", StorageError("gone", server_away=True), 3.0)
    assert [line.partition(" ")[0] for _, line in log.taken()] == ["extending", "claiming"]
    claiming.worked()
    assert [line for _, line in log.taken()] == ["back again after 0 s"]


def test_a_permanent_error_is_hidden_neither_by_an_outage_nor_by_another_failure_of_its_thread(log, outages):
    claiming, sweeping, looking = (Activity(outages) for _ in range(3))
    no_right, busy = PermanentStorageError("no right", sqlstate="42501"), TransientStorageError("a lock timeout", sqlstate="55P03")
    claiming.failed("claiming", AWAY, 3.0)
    for error in (busy, no_right, no_right):
        sweeping.failed_rarely("sweeping", error)
        looking.failed("looking", error, 3.0)
    assert [line for _, line in log.taken()] == [
        "claiming failed, trying again: the server is away",
        "sweeping failed: a lock timeout",
        "looking failed, trying again: a lock timeout",
        "sweeping failed: no right",
        "looking failed, trying again: no right",
    ]
    looking.worked()
    assert len(log.taken()) == 1, "one activity is back again once"


def test_what_is_done_rarely_is_logged_once_a_minute_while_it_fails_alone(log, outages, now):
    sweeping = Activity(outages)
    for _ in range(3):
        sweeping.failed_rarely("sweeping", AWAY)
    now[0] += REPEAT
    sweeping.failed_rarely("sweeping", AWAY)
    assert log.taken() == [("WARNING", "sweeping failed: the server is away")] * 2


@pytest.mark.parametrize(
    ("enqueues", "lines"),
    [
        (True, ["ticking failed, trying again: the server is away", "back again after 0 s"]),
        (False, ["ticking failed: the server is away"]),
    ],
)
def test_a_task_that_enqueues_jobs_ends_its_outage(log, outages, enqueues, lines):
    answers = iter([AWAY, 5.0])

    def tick() -> float:
        if isinstance(answer := next(answers), float):
            return answer
        raise answer

    task = logged(Task("ticking", 1.0, tick, enqueues=enqueues), Activity(outages))
    assert 0.75 <= task() <= 1.25
    assert task() == 5.0
    assert log.taken() == [("WARNING", line) for line in lines]


def test_a_mistake_keeps_its_traceback(outages, caplog):
    Activity(outages).failed("claiming", RuntimeError("a mistake"), 3.0)
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.records[0].exc_info is not None
    Activity().failed("alone", AWAY, 3.0)
    assert caplog.records[1].exc_info is None


def test_a_success_of_another_thread_while_a_failure_is_logged_does_not_hide_it(log, outages):
    """The slot and the heartbeat share the activity of a span."""
    shared, clock = Activity(outages), outages.clock

    def after_a_success():
        outages.clock = clock
        shared.worked()
        return clock()

    outages.clock = after_a_success
    shared.failed("settling", AWAY, 3.0)
    shared.worked()
    assert [line for _, line in log.taken()] == ["settling failed, trying again: the server is away", "back again after 0 s"]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(("owner", "task"), [(Sampling, "counted"), (Registration, "rescue_dead")])
def test_a_task_that_outlives_its_worker_warns_of_no_closed_database(own_url, name, monkeypatch, caplog, owner, task):
    """Nobody waits for it: the program closes the database, and the next worker does it."""
    monkeypatch.setattr("queue_db.monitoring.registration.METRICS_EVERY", 0.0)
    began, go_on, closed = threading.Event(), threading.Event(), []
    real = getattr(owner, task)

    def late(self):
        began.set()
        assert go_on.wait(PATIENCE)
        closed.append(self._core.database.closed)
        return real(self)

    monkeypatch.setattr(owner, task, late)
    caplog.set_level(logging.DEBUG, "queue_db")
    with QueueDB(own_url) as db:
        db.queue(name).enqueue("n")
        worker = Worker(db, name)
        worker.handles("n")(lambda job: began.wait(PATIENCE))
        assert worker.run(until_empty=True).completed == 1
        (cleanup,) = [thread for thread in threading.enumerate() if thread.name == f"queue_db maintenance of {name!r}"]
    go_on.set()
    cleanup.join(PATIENCE)
    assert not cleanup.is_alive()
    assert closed == [True]
    assert db.counters.unregistered == 0
    assert {record.levelname for record in caplog.records if record.threadName == cleanup.name} <= {"DEBUG"}
