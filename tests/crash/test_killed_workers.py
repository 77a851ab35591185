"""Workers drain a queue and are killed one after the other. Nothing is lost and nothing has its effect twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select

from queue_db import QueueDB
from tests.crash.drainer import EFFECTS
from tests.patience import PATIENCE, wait_for

#: The lease is longer than a busy machine mostly stops a process: what is repeated was in the hands of a killed one, or of one that
#: tells that it took longer.
BATCH, LEASE = 20, 10.0


@dataclass(frozen=True)
class Drain:
    """How much is drained: before each kill this many jobs are enqueued, and half of them are begun."""

    workers: int
    kills: int
    jobs: int


SHORT, LONG = Drain(2, 3, 400), Drain(10, 10, 2000)


@pytest.mark.parametrize(
    "drain",
    [
        pytest.param(SHORT, id="3 kills"),
        pytest.param(LONG, id="10 kills", marks=pytest.mark.rest("three kills show the same, with less luck")),
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")
def test_killed_workers_lose_nothing_and_repeat_only_what_they_held(
    fresh_url: str, tmp_path: Path, drain: Drain, record_property: Callable[[str, object], None]
) -> None:
    executions, late, ended = (tmp_path / name for name in ("executions", "late", "ended"))
    executions.touch()
    engine = create_engine(fresh_url)
    EFFECTS.create(engine)
    ids: list[int | None] = []

    def start() -> subprocess.Popen[bytes]:
        options = [fresh_url, "crash", str(BATCH), str(LEASE), str(executions), str(late), str(ended)]
        return subprocess.Popen([sys.executable, "-m", "tests.crash.drainer", *options])

    def begun() -> list[int]:
        return [int(line) for line in executions.read_text().split()]

    with QueueDB(fresh_url) as db:
        db.migrate()
        workers = [start() for _ in range(drain.workers)]
        try:
            for number in range(drain.kills):
                ids += db.queue("crash").enqueue_many([("work", None)] * drain.jobs)
                wait_for(lambda number=number: len(begun()) > (number + 0.5) * drain.jobs)
                victim = workers.pop(0)
                victim.kill()
                victim.wait()
                workers.append(start())
            ended.touch()
            assert [worker.wait(PATIENCE) for worker in workers] == [0] * drain.workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    executed = Counter(begun())
    with engine.connect() as connection:
        effects = Counter(connection.execute(select(EFFECTS.c.job_id)).scalars())
    engine.dispose()
    assert set(executed) == set(ids), "a job was never begun"
    assert effects == Counter(ids), "a job had no effect, or more than one"
    repeats = executed.total() - len(executed)
    allowed = drain.kills * BATCH + len(late.read_text().split())
    assert repeats <= allowed, f"{repeats} repeats, but only {allowed} jobs were in flight at the kills or beyond their leases"
    record_property("repeats", repeats)
