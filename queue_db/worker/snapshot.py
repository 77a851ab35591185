"""A job as a handler sees it that runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from queue_db import arguments
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport
from queue_db.store.schema import NOTE_LENGTH


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What a claimed job was when its handler was called: the data of a :class:`~queue_db.LeasedJob`, without its verbs.

    What becomes of the job is said by what the handler returns.
    """

    id: int
    queue: str
    kind: str
    payload: Any  #: what the schema made of it, if the handler has one
    headers: Mapping[str, Any]
    priority: int
    attempts: int  #: which attempt this is, from 1
    max_attempts: int
    version: int
    unique_key: str | None
    group: str | None
    batch: int | None
    created_at: datetime
    due_at: datetime | None
    last_error: str | None  #: why the attempt before failed
    #: Brings what is said to the worker; None: nobody is there to hear it.
    tell: Callable[[ProgressReport], None] | None = field(default=None, repr=False, compare=False)

    @property
    def fence(self) -> str:
        """``id:version`` as of the start: every extension of the lease raises it."""
        return f"{self.id}:{self.version}"

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Say how far the work is, as :meth:`queue_db.LeasedJob.progress` does.

        :param fraction: 0 to 1.
        :param note: a few words, cut at 200 characters.
        """
        said = ProgressReport(arguments.fraction("fraction", fraction), arguments.text("note", note, NOTE_LENGTH))
        if self.tell is not None:
            self.tell(said)

    @classmethod
    def of(cls, job: LeasedJob) -> Self:
        """The job as it is now."""
        return cls(
            id=job.id,
            queue=job.queue,
            kind=job.kind,
            payload=job.payload,
            headers=dict(job.headers),
            priority=job.priority,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            version=job.version,
            unique_key=job.unique_key,
            group=job.group,
            batch=job.batch,
            created_at=job.created_at,
            due_at=job.due_at,
            last_error=job.last_error,
        )
