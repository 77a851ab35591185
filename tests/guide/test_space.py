"""Bloat: the commands of the guide show it and remove it, and a transaction that stays open keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url

from queue_db import QueueDB
from tests.cli.harness import Ask
from tests.docs.test_docs import BLOCK
from tests.guide.page import TEXT, statements
from tests.patience import wait_for

JOBS = 2000


def fill_and_empty(url: str) -> None:
    with QueueDB(url) as db:
        for _ in range(2):
            db.queue("mail").enqueue_many([("k", "x" * 200)] * JOBS, ids=False)
            db.queue("mail").purge()


def asker(url: str) -> Callable[[str], list[Any]]:
    """Execute one statement as an administrator; return its rows."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")

    def ask(statement: str) -> list[Any]:
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement.replace("%", "%%"))
            return list(result.all()) if result.returns_rows else []

    return ask


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_a_transaction_that_stays_open_keeps_dead_rows(own_url: str, ask_at: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_db.cli.doctor.LONG_OPEN", 0.0)
    dead_rows, vacuum, reindex = statements("-- PostgreSQL: dead rows")
    ask = asker(own_url)

    def dead() -> int:
        ask("SELECT pg_stat_force_next_flush()")
        return next(row.n_dead_tup for row in ask(dead_rows) if row.relname == "jobs")

    ask("ALTER TABLE jobs SET (autovacuum_enabled = off)")  # it is the guide's command that shows
    holder = create_engine(own_url, isolation_level="REPEATABLE READ")
    with holder.connect() as open_transaction:
        open_transaction.exec_driver_sql("SELECT count(*) FROM jobs")
        fill_and_empty(own_url)
        ask(vacuum)
        assert dead() >= JOBS
        warnings = ask_at(own_url, "doctor", "--json").record["warnings"]
        (end,) = [one.partition("end it: ")[2] for one in warnings if "has been open for" in one]
        assert ask(end) == [(True,)]
        open_transaction.invalidate()
    holder.dispose()

    def removed() -> bool:
        ask(vacuum)
        return dead() < JOBS

    wait_for(removed)
    before = ask("SELECT pg_indexes_size('jobs')")[0][0]
    ask(reindex)
    assert ask("SELECT pg_indexes_size('jobs')")[0][0] < before


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_a_transaction_that_stays_open_keeps_the_history(kind: str, own_url: str) -> None:
    length, optimize = statements("-- MySQL: the history" if kind == "mysql" else "-- MariaDB: the history")
    ask = asker(own_url)

    def history() -> int:
        return int(ask(length)[0][-1])

    holder = create_engine(own_url, isolation_level="REPEATABLE READ")
    with holder.connect() as open_transaction:
        open_transaction.exec_driver_sql("SELECT count(*) FROM jobs")
        fill_and_empty(own_url)
        with QueueDB(own_url) as db:
            for _ in range(50):  # the history counts transactions that changed rows, of the whole server
                db.queue("mail").enqueue("k")
                assert len(db.queue("mail").pop()) == 1
        kept = history()
        assert kept >= 50  # all of these; what was there before the transaction opened may go meanwhile
    holder.dispose()
    if kind == "mysql":  # an idle server counts what it has removed only after 128 more rounds, which takes minutes
        ask("SET GLOBAL innodb_purge_rseg_truncate_frequency = 1")
    wait_for(lambda: history() < kept)
    with QueueDB(own_url) as db:
        db.queue("mail").enqueue("k")
        (job,) = db.queue("mail").claim()
        assert ask(optimize)[-1][-1] == "OK"
        assert job.complete()


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_file_shrinks(own_url: str) -> None:
    free, vacuum = statements("-- SQLite: unused")
    ask = asker(own_url)
    fill_and_empty(own_url)
    assert ask(free)[0][0] > 50
    ask("PRAGMA wal_checkpoint(TRUNCATE)")
    before = Path(str(make_url(own_url).database)).stat().st_size
    ask(vacuum)
    ask("PRAGMA wal_checkpoint(TRUNCATE)")
    assert ask(free) == [(0,)]
    assert Path(str(make_url(own_url).database)).stat().st_size < before


def test_the_tests_of_the_guide_execute_each_block_of_sql() -> None:
    """A block that no test executes would be a guess; the rights of who only enqueues are in tests/cli."""
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py")) + '"-- an application that only enqueues"'
    for language, code in BLOCK.findall(TEXT):
        if language == "sql":
            first = code.splitlines()[0]
            assert any(first.startswith(begins) for begins in _quoted(here)), first


def _quoted(text: str) -> list[str]:
    return re.findall(r'"(-- [^"]+)"', text)
