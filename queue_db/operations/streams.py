"""Operations on the jobs that Spark streams hold."""

from __future__ import annotations

import os

from queue_db.db import QueueDB
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def complete(db: QueueDB, actor: Actor, stream: str, *, checkpoint: str | os.PathLike[str] | None = None) -> int:
    """Complete the jobs that a stream holds, for the sink has them; return how many.

    :param checkpoint: folder of the query's checkpoint, on this machine: only the batches that it has committed.
    :raises NoSuchStreamError: there is no such stream.
    """
    rights.stream(db, actor, stream)
    path = None if checkpoint is None else os.fspath(checkpoint)
    # A committed batch without jobs fences the query off, too.
    of, number = ("streams.complete_held", _jobs) if path is None else ("streams.complete_committed", _fenced)
    with entry(db, actor, "complete", f"stream {stream}", detail={"checkpoint": path}, of=of, number=number):
        return db.streams.complete(stream, checkpoint=path)


def release(db: QueueDB, actor: Actor, stream: str) -> int:
    """Return the jobs that a stream holds to the queue; return how many. Its checkpoints end.

    :raises NoSuchStreamError: there is no such stream.
    """
    rights.stream(db, actor, stream)
    with entry(db, actor, "release", f"stream {stream}", of="release", number=lambda answer: _fenced(answer[0])):
        return db.streams.release(stream)


def release_expired(db: QueueDB, actor: Actor) -> list[str]:
    """Release the streams without a reader for longer than their retention; return their names."""
    actor.check_all("manage")
    names = ("streams", lambda answer: [answer[0]])
    with entry(db, actor, "release", "expired streams", of="release_expired", number=_one, items=names):
        return db.streams.expire()


def _one(answer: tuple[str, int | None, int]) -> int:
    """The entry counts streams; each is released in a transaction of its own. One may hold no job any more: its checkpoint ends."""
    return 0 if answer[1] is None else 1


def _jobs(answer: int | None) -> int:
    return answer or 0


def _fenced(answer: int | None) -> int | None:
    """None jobs: there is no such stream. 0 jobs: its query is fenced off all the same."""
    return 0 if answer is None else answer or None
