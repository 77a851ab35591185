"""Processes that are killed while they run a job of three steps: ``python -m tests.crash.stepper URL QUEUE TOGETHER|APART``.

There is a job for each statement and each COMMIT of a run, and a process that kills itself before it sends this one. Then one
process runs all jobs to their ends. It prints how many processes were killed. With APART the record of a step is written in a
transaction of its own, after that of the step's own SQL.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, MetaData, String, Table, event, insert

from queue_db import LeasedJob, QueueDB
from queue_db.slices import slices
from queue_db.steps import records, resumption

EFFECTS = Table("step_effects", MetaData(), Column("job_id", BigInteger), Column("step", String(20)))
STEPS = ("reserve", "charge", "ship")

#: More jobs than a run sends statements.
MOST = 100

LEASE = 3600
#: Microseconds by which the clock of the process that takes over is ahead: the leases of the killed ones have ended.
AHEAD = 2 * LEASE * 1_000_000

#: What the processes need is imported before they fork.
IMPORTED = (slices(), records, resumption)


def handle(job: LeasedJob, how: str) -> None:
    def write(connection: Connection, step: str) -> str:
        connection.execute(insert(EFFECTS).values(job_id=job.id, step=step))
        return step

    def write_apart(step: str) -> str:
        with job.source.transaction() as connection:
            return write(connection, step)

    for step in STEPS:
        done = job.step_transaction(step, write, step) if how == "TOGETHER" else job.step(step, write_apart, step)
        assert done == step


def run(url: str, queue_name: str, how: str, kill_at: int | None) -> None:
    """Claim a job, run it and complete it; without ``kill_at`` all jobs that were begun."""
    clock = None if kill_at is not None else lambda: time.time_ns() // 1000 + AHEAD
    with QueueDB(url, clock=clock) as db:
        queue = db.queue(queue_name)
        sent = 0

        def count(*_: Any) -> None:
            nonlocal sent
            sent += 1
            if sent == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        for name in ("before_cursor_execute", "commit"):
            event.listen(db.database.engine, name, count)
        for job in queue.claim(1 if kill_at is not None else MOST, lease=LEASE):
            handle(job, how)
            assert job.complete()


def in_a_fork(work: Callable[[], object]) -> bool:
    """Run this in a process of its own; return whether it was killed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert ended in {0, signal.SIGKILL}, ended
    return ended == signal.SIGKILL


def main(url: str, queue_name: str, how: str) -> None:
    """Kill a process before each statement, until one comes to its end."""

    def enqueue() -> None:
        with QueueDB(url) as db:
            db.queue(queue_name).enqueue_many([("order", None)] * MOST)

    assert not in_a_fork(enqueue)
    killed = 0
    while in_a_fork(partial(run, url, queue_name, how, killed + 1)):
        killed += 1
    assert killed < MOST
    assert not in_a_fork(partial(run, url, queue_name, how, None))
    print(killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
