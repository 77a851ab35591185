"""Processes that are killed while they run a job of three steps: ``python -m tests.crash.stepper URL QUEUE TOGETHER|APART``.

There is a job for each statement and each COMMIT that follows a claim, and a process that kills itself before it sends this one.
Then one process runs all jobs to their ends. It prints how many processes were killed. With TOGETHER the record of each step is
written in the transaction of the step's own SQL, which is opened in another way for each step. With APART it is written in a
transaction of its own, after that one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, create_engine, event, insert
from sqlalchemy.orm import Session

from queue_db import LeasedJob, QueueDB

EFFECTS = Table("step_effects", MetaData(), Column("job_id", BigInteger), Column("step", String(20)))
STEPS = ("reserve", "charge", "ship")

#: More jobs than a run sends statements.
MOST = 50

LEASE = 3600
#: Microseconds by which the clock of the process that takes over is ahead: the leases of the killed ones have ended.
AHEAD = 2 * LEASE * 1_000_000


def handle(job: LeasedJob, how: str, engine: Engine) -> None:
    def write(connection: Connection | Session, step: str) -> str:
        connection.execute(insert(EFFECTS).values(job_id=job.id, step=step))
        return step

    def write_apart(step: str) -> str:
        with job.source.transaction() as connection:
            return write(connection, step)

    def write_on_a_connection(step: str) -> str:
        with job.source.transaction() as connection:
            return job.step(step, write, connection, step, using=connection)

    def write_in_a_session(step: str) -> str:
        with Session(engine) as session, session.begin():
            return job.step(step, write, session, step, using=session)

    together: list[Callable[[str], str]] = [
        lambda step: job.step_transaction(step, write, step),
        write_on_a_connection,
        write_in_a_session,
    ]
    for step, its_way in zip(STEPS, together, strict=True):
        done = its_way(step) if how == "TOGETHER" else job.step(step, write_apart, step)
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

        jobs = queue.claim(1 if kill_at is not None else MOST, lease=LEASE)
        engine = create_engine(url)  # as a handler has one
        for one in (db.database.engine, engine):
            for name in ("before_cursor_execute", "commit"):
                event.listen(one, name, count)
        for job in jobs:
            handle(job, how, engine)
            assert job.complete()
        engine.dispose()


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
    with QueueDB(url) as db:
        db.queue(queue_name).enqueue_many([("order", None)] * MOST)
    run(url, queue_name, how, MOST)  # what it imports and compiles, the forks of this process have
    killed = 0
    while in_a_fork(partial(run, url, queue_name, how, killed + 1)):
        killed += 1
    assert killed < MOST
    assert not in_a_fork(partial(run, url, queue_name, how, None))
    print(killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
