"""The leases that this process has handed out: to settle them, their rows need not be read first.

The token of a lease is compared here; the database decides by id and version whether the lease holds. If the database is restored
from a backup, it gives versions that it gave before: then the service must be restarted, as workers must.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import repeat
from secrets import compare_digest

from queue_db.leased_job import LeasedJob, own_token, row_of
from queue_db.model import ClaimedRow
from queue_db.queue import Queue

#: Most leases that are remembered: 30 to 80 MB, with the length of names and keys.
MOST_REMEMBERED = 32_768


# Characters of a payload that is remembered with its row: to leave it out takes longer.
_SHORT = 200

# A lease that is handed out: the job, its row, and its own token.
Handed = tuple[LeasedJob, ClaimedRow, str]

# Queue, row without what is large, token of the claim, the job's own token, worker.
_Remembered = tuple[str, ClaimedRow, str, str, str | None]


def handed(job: LeasedJob) -> Handed:
    """The lease of a job that was just claimed, or extended."""
    row = row_of(job)
    if row.version != job.version:
        row = row._replace(version=job.version, available_at=job.lease_ends)
    return job, row, own_token(job.token, job.id)


class Leases:
    """The latest leases, by id and version, without long payloads. Safe to share between threads.

    :param most: beyond it the oldest are dropped, and read from the database.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._handed: OrderedDict[tuple[int, int], _Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handed)

    def remember(self, leases: Iterable[Handed]) -> None:
        """Remember leases that are handed out now."""
        new = {(row.id, row.version): (job.queue, _small(row), job.token, own, job.worker) for job, row, own in leases}
        with self._lock:
            self._handed.update(new)
            for _ in range(len(self._handed) - self._most):
                self._handed.popitem(last=False)

    def take(self, queue: Queue, leases: Sequence[tuple[int, int]], tokens: Sequence[str]) -> list[LeasedJob | None]:
        """The jobs of leases ``(id, version)``, by position, perhaps without payload; None: not remembered, or of another token.

        They are remembered no longer: they are about to be settled.
        """
        with self._lock:
            return [*map(self._take, repeat(queue), leases, tokens)]

    def _take(self, queue: Queue, lease: tuple[int, int], token: str) -> LeasedJob | None:
        remembered = self._handed.get(lease)
        if remembered is None:
            return None
        of_queue, row, secret, own, worker = remembered
        if of_queue != queue.name or not token.isascii() or not compare_digest(own, token):
            return None
        del self._handed[lease]
        return LeasedJob(row, queue, queue.core.codec, secret, worker)


def _small(row: ClaimedRow) -> ClaimedRow:
    """The row without what is large."""
    if len(row.payload) <= _SHORT and row.headers is None and row.last_error is None:
        return row
    return row._replace(payload="", headers=None, last_error=None)
