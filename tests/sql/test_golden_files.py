"""The golden files show what real servers get. ``make lint`` compares them with what the code sends."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from queue_db import Optimistic, QueueDB, UnsupportedError
from queue_db.model import ProgressReport, StoredResult
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction
from queue_db.strategies import known_strategies
from tests.marks import begin_anew
from tests.sql import golden
from tests.sql.layout import fingerprint, laid_out

STRATEGIES: dict[str, Callable[[], Any]] = {
    **{name: partial(str, name) for name in known_strategies()},
    "slice": lambda: Optimistic(window=3, pick="slice", rng=random.Random(1)),
}

_CONTROL = re.compile(r"BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|DEALLOCATE|PRAGMA|SET|SELECT @@|ROLLBACK", re.IGNORECASE)
_PREPARE = re.compile(r"(?:DEALLOCATE \w+; )?PREPARE \w+ \(.*?\) AS (.*)", re.DOTALL)


@contextmanager
def sent_on(db: QueueDB) -> Iterator[list[str]]:
    """The statements that go to the server meanwhile: prepared ones when they are prepared."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        prepared = _PREPARE.fullmatch(statement)
        if prepared:
            found.append(prepared[1])
        elif not statement.startswith("EXECUTE ") and not _CONTROL.match(statement.lstrip()):
            found.append(statement)

    event.listen(db.database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(db.database.engine, "before_cursor_execute", note)


def unknown(db: QueueDB, kind: str, statements: list[str]) -> list[str]:
    known = golden.known_statements(kind, db.database.engine.dialect.server_version_info or ())
    return [statement for statement in dict.fromkeys(statements) if fingerprint(statement) not in known]


def test_the_files_are_what_the_code_sends() -> None:
    """``make lint`` compares them, too; ``make mutants`` has only this test for the SQL of servers."""
    assert list(golden.differences()) == []


def test_the_docs_show_the_claim_of_each_database() -> None:
    shown = dict(golden.shown_in(golden.DOCS / "concepts.md"))
    assert {path.partition("/")[0] for path in shown if "/claim_" in path} == {"postgresql", "mysql"}
    for path in shown:
        if path.startswith("mysql/"):
            assert golden.receivers(golden.FOLDER / path) >= {"mysql", "mariadb"}


def test_only_whitespace_is_laid_out() -> None:
    sql = "WITH a AS (SELECT x FROM t WHERE a BETWEEN 1 AND 2 AND b = '  (x,  y) ') UPDATE t SET a=1 WHERE id IN (SELECT x FROM a)"
    assert re.sub(r"\s", "", laid_out(sql)) == re.sub(r"\s", "", sql)
    assert laid_out(sql).count("\n") >= 10


def test_a_changed_statement_is_another_one() -> None:
    sql = "UPDATE jobs SET version = version + 1 WHERE id = %s AND version = %s"
    assert fingerprint(sql) == fingerprint(
        "UPDATE jobs\nSET version = version + 1\nWHERE id = :of_id\n  AND version = :of_version;"
    )
    assert fingerprint(sql) != fingerprint(sql.replace(" AND version = %s", ""))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_claim_that_is_sent_has_a_file(kind: str, strategy: str, own_url: str) -> None:
    try:
        db = QueueDB(own_url, STRATEGIES[strategy]())
    except UnsupportedError:
        return
    with db:
        queue = db.queue("golden")
        queue.claim()
        db.queue("other").claim()
        begin_anew(queue.core, queue.name, lambda: 0.0)
        with sent_on(db) as statements:
            assert queue.claim(3) == []
            queue.enqueue_many([("work", number) for number in range(200)])
            for limit in (1, 10):
                for _ in range(6):
                    assert queue.claim(limit)
                    assert queue.pop(limit)
            if strategy == "adaptive":
                # With more priorities, and more queues to look into, the same parts stand there more often.
                assert queue.claim_if_idle(["other"], 1, 60.0)
                assert queue.claim_if_idle(["other"], 5, 60.0)
                queue.enqueue("work", priority=5)
                begin_anew(queue.core, queue.name, lambda: 0.0)
                queue.claim(1)
                queue.claim(100)
                queue.claim(100)
    assert not unknown(db, kind, statements), "\n\n".join(unknown(db, kind, statements))


def test_each_claim_of_a_fair_queue_has_a_file(kind: str, own_url: str) -> None:
    with QueueDB(own_url) as db:
        queue = db.queue("golden")
        queue.fair()
        queue.enqueue_many([("work", number, {"group": f"group {number % 40}"}) for number in range(400)])
        queue.claim()
        with sent_on(db) as statements:
            for limit in (1, 10):
                for _ in range(6):
                    assert queue.claim(limit)
        queue.limit_groups(concurrency=3, rate=10)
        queue.limit_groups(prefix="group 1", concurrency=5)
        queue.claim()  # makes the rows of the limits
        with sent_on(db) as limited:
            for limit in (1, 10):
                assert queue.claim(limit)
    assert not unknown(db, kind, statements + limited), "\n\n".join(unknown(db, kind, statements + limited))


@pytest.mark.parametrize("removal", ["delete", "lock_then_delete", "delete_mark"])
def test_each_settle_that_is_sent_has_a_file(kind: str, removal: str, own_url: str) -> None:
    with QueueDB(own_url, removal=removal) as db:
        queue = db.queue("golden")
        queue.claim()
        with sent_on(db) as statements:
            queue.enqueue_many([("work", number) for number in range(60)])
            for count in (1, 3):
                assert all(queue.complete_many(queue.claim(count)))
                assert all(queue.complete_many(queue.claim(count), results=[StoredResult("1", 60_000_000)] * count))
                assert all(queue.fail_many(queue.claim(count), "no", retry_in=0.0))
                assert all(queue.fail_many(queue.claim(count), "no", retry_in=[float(n) for n in range(count)]))
                assert all(queue.fail_many(queue.claim(count), "no", last=[True] * count))
                assert all(queue.snooze_many(queue.claim(count), 0.0))
                assert all(queue.release_many(queue.claim(count)))
                assert all(queue.bury_many(queue.claim(count), [f"reason {n}" for n in range(count)]))
                assert all(queue.retry_unknown_kinds(queue.claim(count), "no handler", grace=60.0))
                assert all(queue.cancel_many(queue.claim(count)))
                jobs = queue.claim(count)
                assert all(queue.extend_many(jobs, 60.0))
                assert all(queue.extend_unlocked(jobs, 60.0))
                assert all(queue.adjust_attempts(jobs, -1))
                assert queue.progress_of(jobs[0], ProgressReport(0.5, "half"))
    assert not unknown(db, kind, statements), "\n\n".join(unknown(db, kind, statements))


def test_each_enqueue_that_is_sent_has_a_file(kind: str, own_url: str) -> None:
    with QueueDB(own_url) as db:
        queue = db.queue("golden")
        queue.claim()
        with sent_on(db) as statements:
            queue.enqueue("work")
            queue.enqueue("work", delay=1.0)
            queue.enqueue_many([("work", number, {"max_attempts": number + 1, "delay": number}) for number in range(3)])
            for policy in ("skip", "replace", "debounce", "skip"):
                queue.enqueue("work", policy, unique_key="key", on_duplicate=policy)
            queue.enqueue_many([("work", number, {"unique_key": f"key {number}"}) for number in range(3)], on_duplicate="skip")
            queue.enqueue("work", unique_key="rare", unique_for=60.0)
            queue.enqueue("work", unique_key="rare", unique_for=60.0, on_duplicate="skip")
            queue.enqueue("work", group="customer")
            queue.enqueue_batch([("work", 1, {"group": "customer"}), ("work", 2)], ("done", None))
            while jobs := queue.claim(10):
                queue.complete_many(jobs)
    assert not unknown(db, kind, statements), "\n\n".join(unknown(db, kind, statements))


@pytest.mark.parametrize("keyed", [False, True])
def test_each_statement_of_a_stream_has_a_file(kind: str, keyed: bool, own_url: str) -> None:
    with QueueDB(own_url) as db:
        queue = db.queue("golden")
        run = partial(db.database.run, name="stream")
        queue.enqueue_many([("work", number, {"unique_key": f"key {number}"} if keyed else {}) for number in range(50)])
        with sent_on(db) as statements:
            session = run(
                lambda connection: streams.open_stream(Transaction(connection, db.store), "stream", "golden", "reader", 60_000_000)
            )
            start = run(lambda connection: streams.initial(Transaction(connection, db.store), session))
            end = run(
                lambda connection: streams.allocate(
                    Transaction(connection, db.store), session, start, limit=30, ceiling=None, partitions=2
                )
            )
            (part,) = run(lambda connection: streams.partition(Transaction(connection, db.store), session, start, end))
            rows = run(
                lambda connection: streams.read_part(Transaction(connection, db.store), session.stream, part, after=0, limit=100)
            )
            assert len(rows) == 30
            lost = {(rows[0][0], rows[0][-1]): "no"}
            run(lambda connection: streams.mark_dead(Transaction(connection, db.store), session.stream, lost))
            run(lambda connection: streams.keep_alive(Transaction(connection, db.store), session))
            run(lambda connection: streams.complete(Transaction(connection, db.store), session, end))
            run(
                lambda connection: streams.allocate(
                    Transaction(connection, db.store), session, end, limit=30, ceiling=None, partitions=2
                )
            )
            run(lambda connection: streams.expired(Transaction(connection, db.store)))
            run(lambda connection: streams.release(Transaction(connection, db.store), "stream"))
    assert not unknown(db, kind, statements), "\n\n".join(unknown(db, kind, statements))
