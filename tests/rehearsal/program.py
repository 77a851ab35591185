"""A producer or a worker of a rehearsal: ``python program.py producer|worker URL FOLDER NAME``, on the package of PYTHONPATH.

It uses only verbs that both versions have. It writes into FOLDER: ``NAME.begun``, a line for each run of a handler, and
``NAME.log``, what the package logged as a warning or worse. It ends at SIGTERM.
"""

import itertools
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from sqlalchemy import column, insert, table

from queue_db import QueueDB, TransientStorageError
from queue_db.worker import Worker

QUEUE, FEED, CURSOR = "rehearsed", "rehearsed", "readers"
WANTED = table("rehearsal_wanted", column("what"), column("made_by"), column("in_group"))
EFFECTS = table("rehearsal_effects", column("what"), column("done_by"))

#: What a handler raises where a first attempt is to fail.
FAILS = "the first attempt of this job fails, as it should"


class Lines(logging.Handler):
    """Each record a line of JSON, so that a traceback is one too."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._file = path.open("a", buffering=1)

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        entry = {"level": record.levelname, "logger": record.name, "says": record.getMessage(), "error": kind}
        self._file.write(json.dumps(entry) + "\n")


def produce(db: QueueDB, name: str, stopped: threading.Event) -> None:
    """A transaction makes what the tables of the rehearsal say it made: a COMMIT without an answer leaves no doubt."""
    queue, feed = db.queue(QUEUE), db.feed(FEED)
    for number in itertools.count():
        while not stopped.wait(0.05):
            try:
                with queue.transaction() as connection:
                    jobs = [
                        ("plain", f"{name}-{number}-plain", {}),
                        ("plain", f"{name}-{number}-later", {"delay": 0.3}),
                        ("plain", f"{name}-{number}-grouped", {"group": f"{name}-{number % 3}"}),
                        ("fails", f"{name}-{number}-fails", {}),
                    ]
                    queue.enqueue_many(jobs, using=connection)
                    messages = [("plain", f"{name}-{number}-message-{part}") for part in range(2)]
                    feed.publish_many(messages, using=connection)
                    rows = [{"what": what, "made_by": name, "in_group": more.get("group")} for _, what, more in jobs]
                    rows += [{"what": what, "made_by": name, "in_group": None} for _, what in messages]
                    connection.execute(insert(WANTED), rows)
            except TransientStorageError as error:
                logging.getLogger("rehearsal").warning("a round is made again: %s", error)
                continue
            break
        if stopped.is_set():
            return


def work(db: QueueDB, name: str, folder: Path) -> None:
    """Each job and message writes its effect in the transaction that completes it."""
    begun = os.open(folder / f"{name}.begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    worker = Worker(db, queues={QUEUE: 4, CURSOR: 1}, feeds={f"{FEED}:{CURSOR}": 1}, poll=0.1, grace=20)

    def effect(job) -> None:
        os.write(begun, f"{job.payload} {job.queue} {job.fence}\n".encode())
        with job.transaction() as connection:
            connection.execute(insert(EFFECTS), {"what": job.payload, "done_by": name})

    @worker.handles("plain", max_attempts=3)
    def plain(job) -> None:
        effect(job)

    @worker.handles("fails", max_attempts=3, backoff=lambda attempt: 0.1)
    def fails(job) -> None:
        if job.attempts == 1:
            os.write(begun, f"{job.payload} {job.queue} {job.fence}\n".encode())
            raise ValueError(FAILS)
        effect(job)

    (folder / f"{name}.ready").touch()
    worker.run()


def main(role: str, url: str, folder: str, name: str) -> None:
    """Run until SIGTERM."""
    logging.getLogger().addHandler(Lines(Path(folder) / f"{name}.log"))
    logging.captureWarnings(capture=True)
    with QueueDB(url) as db:
        if role == "worker":
            work(db, name, Path(folder))
            return
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
        produce(db, name, stopped)


if __name__ == "__main__":
    main(*sys.argv[1:])
