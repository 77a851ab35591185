"""A process is killed before each statement of a job of three steps. Each step's own SQL has its effect once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from sqlalchemy import create_engine, select

from queue_db import QueueDB
from tests.crash.stepper import EFFECTS, MOST, STEPS


def effects(url: str, name: str, how: str) -> tuple[int, Counter[tuple[int, str]]]:
    """How many processes were killed, and how often each step of each job had its effect."""
    engine = create_engine(url)
    EFFECTS.create(engine, checkfirst=True)
    command = [sys.executable, "-m", "tests.crash.stepper", url, name, how]
    killed = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    with engine.connect() as connection:
        found = Counter((row.job_id, row.step) for row in connection.execute(select(EFFECTS)))
    EFFECTS.drop(engine)
    engine.dispose()
    return killed, found


REST = pytest.mark.rest("make test kills on SQLite and PostgreSQL")


@pytest.mark.parametrize(
    "kind",
    ["sqlite", "postgresql", pytest.param("mysql", marks=REST), pytest.param("mariadb", marks=REST)],
    scope="session",
)
def test_a_killed_process_repeats_no_step(own_url: str, name: str) -> None:
    killed, found = effects(own_url, name, "TOGETHER")
    assert killed >= 5 * len(STEPS), "a step sends more statements than that"
    assert set(found.values()) == {1}
    assert len(found) == MOST * len(STEPS)
    with QueueDB(own_url) as db:
        assert db.queues() == []


@pytest.mark.rest("the check without a loss runs there too")
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_record_in_another_transaction_repeats_steps(own_url: str, name: str) -> None:
    """The check notices it."""
    _, found = effects(own_url, name, "APART")
    assert set(found.values()) == {1, 2}
