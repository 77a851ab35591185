"""A worker that kills itself at a parent's completion: ``python -m tests.crash.parent URL QUEUE WHEN``.

WHEN: ``before`` the COMMIT of the transaction that completes the job, or ``after`` it.
"""

from __future__ import annotations

import os
import signal
import sys

from queue_db import QueueDB
from queue_db.dialects.transactions import Sender


def main(url: str, queue_name: str, when: str) -> None:
    """Complete one job."""
    with QueueDB(url) as db:
        (job,) = db.queue(queue_name).claim(lease=1.0)
        if when == "before":
            Sender.commit = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        job.complete()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
