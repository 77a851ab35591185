"""Ten workers drain 20,000 jobs; one is killed every second. Nothing is lost and nothing has its effect twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select

from queue_db import QueueDB
from tests.crash.drainer import EFFECTS

JOBS, WORKERS, BATCH, LEASE = 20_000, 10, 20, 10.0
#: Jobs that must be begun between two kills. Less than are in a second, but on a machine on which a process takes seconds to start:
#: there nobody would live to work.
BETWEEN_KILLS = 200
#: Enough for a slow machine; the run ends when the queue is empty.
LONGEST = 600


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")
def test_killed_workers_lose_nothing_and_repeat_only_what_they_held(
    fresh_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    executions = tmp_path / "executions"
    engine = create_engine(fresh_url)
    EFFECTS.create(engine)
    with QueueDB(fresh_url) as db:
        db.migrate()
        ids = db.queue("crash").enqueue_many(("work", number) for number in range(JOBS))

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.crash.drainer", fresh_url, "crash", str(BATCH), str(LEASE), str(executions)]
        return subprocess.Popen(command)

    def begun() -> list[int]:
        return [int(line) for line in executions.read_text().split()] if executions.exists() else []

    workers = [start() for _ in range(WORKERS)]
    killed = 0
    next_kill = BETWEEN_KILLS
    try:
        for _ in range(LONGEST):
            try:
                # Also the wait between two kills: the first worker that ends by itself has seen the empty queue.
                status = workers[-1].wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                if len(begun()) < next_kill:
                    continue
                next_kill = len(begun()) + BETWEEN_KILLS
                workers[0].kill()
                workers[0].wait()
                killed += 1
                workers = [*workers[1:-1], start(), workers[-1]]
            else:
                assert status == 0
                break
        else:
            pytest.fail(f"the queue was not empty after {LONGEST} s")
        assert [worker.wait(timeout=60) for worker in workers] == [0] * WORKERS
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()

    executed = Counter(begun())
    with engine.connect() as connection:
        effects = Counter(connection.execute(select(EFFECTS.c.job_id)).scalars())
    engine.dispose()
    assert killed >= 2, "the drain was over before anybody was killed"
    assert set(executed) == set(ids), "a job was never begun"
    assert effects == Counter(ids), "a job had no effect, or more than one"
    repeats = executed.total() - len(executed)
    assert repeats <= killed * BATCH, f"{repeats} repeats, but only {killed} × {BATCH} jobs were in flight at the kills"
    record_property("kills", killed)
    record_property("repeats", repeats)
