"""Clients that wait for the end of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from queue_db.errors import QueueDBError
from queue_db.service.live.arrivals import Waiter
from queue_db.service.live.waits import JOB, Waits


class Ends:
    """The clients of one event loop that wait for the end of a job."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._lines: dict[str, _Line] = {}

    def waiting(self, job_id: int) -> int:
        """How many clients wait for the end of a job."""
        line = self._lines.get(str(job_id))
        return 0 if line is None else len(line.waiters)

    @contextmanager
    def waiter(self, job_id: int) -> Iterator[Waiter]:
        """Within the block the end of the job wakes the client, also if it was before the block."""
        one, name = Waiter(ending=self._waits.ending), str(job_id)
        line = self._lines.setdefault(name, _Line())
        line.waiters.append(one)
        self._waits.join((JOB, name), line)
        try:
            yield one
        finally:
            line.waiters.remove(one)
            if not line.waiters:
                self._waits.leave((JOB, name))
                del self._lines[name]


class _Line:
    """The clients that wait for the end of one job."""

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []

    def news(self, found: object = None) -> None:
        """The job has left its queue, or may have."""
        for one in self.waiters:
            one.woken.set()

    def fail(self, error: QueueDBError) -> None:
        """The clients read, and get the error themselves."""
        self.news()

    def end(self) -> None:
        """Nobody waits any more."""
        for one in self.waiters:
            one.ending = True
            one.woken.set()


def ends_of(request: Request) -> Ends:
    """The ends of the application's event loop."""
    found: Ends = request.app.state.ends
    return found
