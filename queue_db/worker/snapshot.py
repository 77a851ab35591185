"""The job as a handler in another process gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from queue_db import arguments
from queue_db.leased_job import JobData, LeasedJob
from queue_db.model import ClaimedRow, ProgressReport
from queue_db.store.schema import NOTE_LENGTH


class JobSnapshot(JobData):
    """The data of a :class:`~queue_db.LeasedJob` when its handler was called, without its verbs.

    The handler settles the job by what it returns. :attr:`fence` is as of the start: every extension of the lease raises it.
    """

    __slots__ = ("payload", "send")

    def __init__(self, row: ClaimedRow, queue: str, payload: Any) -> None:
        super().__init__(row, queue)
        #: The payload; if the handler has a schema, what the schema made of it.
        self.payload = payload
        #: Sends progress to the worker; None: there is no worker.
        self.send: Callable[[ProgressReport], None] | None = None

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report how far the work is, as :meth:`queue_db.LeasedJob.progress` does.

        :param fraction: 0 to 1.
        :param note: a short text, cut at 200 characters.
        """
        report = ProgressReport(arguments.fraction("fraction", fraction), arguments.text("note", note, NOTE_LENGTH))
        if self.send is not None:
            self.send(report)

    @classmethod
    def of(cls, job: LeasedJob) -> Self:
        """The job as it is now."""
        return cls(job.snapshot_row(), job.queue, job.payload)
