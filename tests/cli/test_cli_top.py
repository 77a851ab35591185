"""``queue-db top``."""

import io
import re
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from sqlalchemy import text

from queue_db import QueueDB
from queue_db.cli import top
from queue_db.cli.top import Rates
from queue_db.monitoring.model import WorkerInfo
from queue_db.store import Transaction, worker_registry
from queue_db.testing import SettableClock
from queue_db.worker import Worker

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_one_refresh(ask, queue, db):
    queue.enqueue_many([("n", None)] * 4)
    (job,) = queue.claim()
    assert job.progress(0.4, "page 4 of 10")
    queue.limit(concurrency=5)
    values = {
        "host": "here/1/2",
        "pid": 7,
        "queues": f'{{"{queue.name}": 4}}',
        "state": "working",
        "in_hand": 2,
        "counters": '{"completed": 1234}',
    }
    with queue.transaction() as connection:
        worker_registry.heartbeat(Transaction(connection, db.store), "here:7#1", values)
    seen = ask("top", "--once").out
    assert queue.name in seen
    assert "≤ 5 at a time" in seen
    assert "1,234" in seen
    assert "40%" in seen
    record = ask("top", "--once", "--json").record
    (mine,) = [one for one in record["queues"] if one["queue"] == queue.name]
    assert (mine["available"], mine["progress"], mine["controls"]["concurrency"]) == (3, 0.4, 5)
    (worker,) = [one for one in record["workers"] if one["name"] == "here:7#1"]
    assert (worker["host"], worker["in_hand"], worker["queues"]) == ("here", 2, {queue.name: 4})
    with queue.transaction() as connection:
        worker_registry.deregister(Transaction(connection, db.store), "here:7#1")


@SQLITE
def test_the_doctor_reports_what_is_stuck(ask_at, tmp_path, kind):
    url = f"sqlite:///{tmp_path}/own.db"
    with QueueDB(url, clock=lambda: 1_000_000_000_000_000) as db:  # the year 2001
        db.migrate()
        db.queue("mail").enqueue("n")
    answer = ask_at(url, "doctor", "--json", status=1).record
    (sentence,) = answer["stuck"]
    assert answer["healthy"] is False
    assert "queue 'mail': 1 job has been due" in sentence
    assert "stuck: queue 'mail'" in ask_at(url, "doctor", status=1).out
    with QueueDB(url) as db:
        db.queue("mail").pause()
    answer = ask_at(url, "doctor", "--json").record
    assert (answer["healthy"], answer["stuck"]) == (True, [])
    assert "it is paused" in answer["slow"][0]
    assert ask_at(url, "doctor", "--strict", status=1).out.endswith("not healthy\n")


def minutes_left(answer):
    (sentence,) = [one for one in answer.record["stuck"] if "have no handler" in one]
    found = re.match(r"queue 'mail': 3 jobs of kind 'newsletter' have no handler; the first is dead in (\d+) min, with", sentence)
    assert found, sentence
    return int(found[1])


def test_the_doctor_names_kinds_that_no_worker_has_a_handler_for(ask_at, fresh_url, kind):
    with QueueDB(fresh_url) as db:
        db.migrate()
        mail = db.queue("mail")
        mail.enqueue_many([("newsletter", n) for n in range(3)] + [("welcome", None)])
        seen = []
        worker = Worker(db, "mail")
        worker.handles("welcome")(seen.append)
        worker.run(until_empty=True)
        assert len(seen) == 1
        assert minutes_left(ask_at(fresh_url, "doctor", "--json", status=1)) <= 60
        with mail.transaction() as connection:  # its time has come, and no worker came
            connection.execute(
                text("UPDATE jobs SET available_at = available_at - 90000000, unknown_since = unknown_since - 600000000")
            )
        assert minutes_left(ask_at(fresh_url, "doctor", "--json", status=1)) <= 50
    with QueueDB(fresh_url) as db:  # which has not yet seen where the oldest jobs are
        worker = Worker(db, "mail")
        worker.handles("newsletter")(seen.append)
        assert worker.run(until_empty=True).completed == 3
    assert ask_at(fresh_url, "doctor", "--strict", "--json").record["stuck"] == []


def reported(name, at, completed, *, started=0.0, silent=0.0):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return WorkerInfo(
        name=name,
        host="here",
        pid=1,
        queues={"mail": 4},
        state="working",
        in_hand=0,
        counters={"completed": completed},
        started_at=moment + timedelta(seconds=started),
        seen_at=moment + timedelta(seconds=at),
        silent=silent,
    )


def test_a_steady_worker_has_a_steady_rate():
    """It completes 13 jobs a second and reports about every 5 s; the screen refreshes every 2 s."""
    rates, reports = Rates(), [0.0, 4.2, 10.1, 15.0, 19.4, 25.6, 30.0]
    seen = []
    for look in range(0, 32, 2):
        last = max(report for report in reports if report <= look)
        seen.append(rates.update([reported("w", last, round(13 * last, 6))]).get("w"))
    assert seen[:3] == [None, None, None], "there was one report only"
    assert seen[3:] == [pytest.approx(13.0)] * 13


def test_a_rate_is_of_one_run_of_a_worker_and_ends_with_it():
    rates = Rates()
    rates.update([reported("w", 0, 100), reported("other", 0, 0)])
    assert rates.update([reported("w", 5, 150), reported("other", 5, 5)]) == {"w": 10.0, "other": 1.0}
    # Under the same name another process reports, which has counted from nothing.
    assert rates.update([reported("w", 10, 20, started=9), reported("other", 5, 5, silent=31)]) == {}
    assert rates.update([reported("w", 15, 30, started=9)]) == {"w": 2.0}
    assert rates.update([]) == {}


@SQLITE
def test_each_refresh_shows_the_rates_that_workers_reported(tmp_path, kind):
    clock = SettableClock()
    with QueueDB(f"sqlite:///{tmp_path}/own.db", clock=clock) as db:
        db.migrate()
        rates = Rates()

        def report(completed):
            values = {"host": "here/1/2", "pid": 7, "queues": '{"mail": 4}', "state": "working", "in_hand": 0}
            counters = {"counters": f'{{"completed": {completed}, "dead": 2}}', "stuck": 3}
            with db.queue("mail").transaction() as connection:
                worker_registry.heartbeat(Transaction(connection, db.store), "here:7#1", values | counters)

        report(0)
        assert top._record(top._read(db, rates))["workers"][0]["completed_per_second"] is None
        clock.advance(5)
        report(65)
        for _ in range(3):
            snapshot = top._read(db, rates)
            assert top._record(snapshot)["workers"][0]["completed_per_second"] == 13.0
            assert top._record(snapshot)["workers"][0]["stuck"] == 3
            clock.advance(2)
        console = Console(width=150, file=io.StringIO())
        console.print(top._tables(snapshot, console.width))
        row, total = [line.split() for line in console.file.getvalue().splitlines()][-2:]
        assert row[:8] == ["here:7#1", "working", "0", "3", "65", "13.0", "0", "2"]
        assert total == ["1", "workers,", "13.0", "done/s"]


@pytest.mark.parametrize("width", [80, 120])
def test_titles_are_whole_in_a_narrow_terminal(width):
    now = datetime.now(UTC)
    busy = WorkerInfo("here:4711#0123", "here", 4711, {"mail": 10}, "working", 3, {"completed": 12_345}, now, now, 1.2)
    snapshot = top._Snapshot([], {}, [busy], {busy.name: 120.3})
    console = Console(file=io.StringIO(), width=width)
    console.print(top._tables(snapshot, width))
    words = console.file.getvalue().split()
    titles = {*top._QUEUE_COLUMNS, *top._WORKER_COLUMNS} - ({"uptime"} if width == 80 else set())
    assert [word for title in titles for word in title.split() if word not in words] == []
    assert "12,345" in words
