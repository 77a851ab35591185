"""A worker process to be killed: ``python -m tests.crash.drainer URL QUEUE BATCH LEASE EXECUTIONS LATE ENDED``.

It notes every job that it begins in a file, before it does anything, and writes one effect for each job in the transaction that
completes it. In the file LATE it notes the jobs that it held beyond their lease and that others have got. It ends when the queue is
empty and the file ENDED is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sqlalchemy import BigInteger, Column, MetaData, Table, insert

from queue_db import QueueDB

#: No unique key: a job that had its effect twice would stand there twice.
EFFECTS = Table("effects", MetaData(), Column("job_id", BigInteger))


def main(url: str, queue_name: str, batch: int, lease: float, executions: str, late: str, ended: str) -> None:
    """Drain the queue."""
    notes, beyond = (os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for name in (executions, late))
    with QueueDB(url, strategy="optimistic") as db:
        queue = db.queue(queue_name)
        while True:
            began = time.monotonic()
            jobs = queue.claim(batch, lease=lease)
            if not jobs:
                stats = queue.stats()
                if Path(ended).exists() and not stats.available + stats.running + stats.scheduled:
                    return
                time.sleep(0.05)  # the jobs of killed workers come back when their leases run out
                continue
            os.write(notes, b"".join(b"%d\n" % job.id for job in jobs))
            with db.database.begin() as connection:
                verdicts = queue.complete_many(jobs, using=connection)
                done = [{"job_id": job.id} for job, verdict in zip(jobs, verdicts, strict=True) if verdict]
                if done:
                    connection.execute(insert(EFFECTS), done)
            if time.monotonic() - began > lease:
                os.write(beyond, b"".join(b"%d\n" % job.id for job, verdict in zip(jobs, verdicts, strict=True) if not verdict))


if __name__ == "__main__":
    _, url, queue_name, batch, lease, executions, late, ended = sys.argv
    main(url, queue_name, int(batch), float(lease), executions, late, ended)
