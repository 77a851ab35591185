"""The leases that this process has handed out: to settle them, their rows need not be read first.

The token of a lease is compared here; the database decides by id and version whether the lease holds. If the database is restored
from a backup, it gives versions that it gave before: then the service must be restarted, as workers must.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from secrets import compare_digest
from typing import Any

from queue_db.leased_job import LeasedJob, own_token
from queue_db.model import ClaimedRow
from queue_db.queue import Queue

_HEADERS, _LAST_ERROR, _ENDS = map(ClaimedRow._fields.index, ("headers", "last_error", "available_at"))

#: Most leases that are remembered: 30 to 80 MB, with the length of names and keys.
MOST_REMEMBERED = 32_768


# Queue, row without what may be large, token of the claim, the job's own token, worker: plain tuples, which the garbage collector
# soon leaves alone.
_Handed = tuple[str, tuple[Any, ...], str, str, str | None]


class Leases:
    """The latest leases, by id and version, without payloads. Safe to share between threads.

    :param most: beyond it the oldest are dropped, and read from the database.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._handed: OrderedDict[tuple[int, int], _Handed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handed)

    def remember(self, jobs: Iterable[tuple[LeasedJob, ClaimedRow]]) -> None:
        """Remember leases that are handed out now, each with ``job.snapshot_row()``."""
        handed = {
            (row.id, row.version): (job.queue, _small(row, job.lease_ends), job.token, own_token(job.token, row.id), job.worker)
            for job, row in jobs
        }
        with self._lock:
            self._handed.update(handed)
            for _ in range(len(self._handed) - self._most):
                self._handed.popitem(last=False)

    def take(self, queue: Queue, leases: Sequence[tuple[int, int, str]]) -> list[LeasedJob | None]:
        """The jobs of leases ``(id, version, token)``, by position, without payloads; None: not remembered, or of another token.

        They are remembered no longer: they are about to be settled.
        """
        with self._lock:
            return [self._take(queue, *lease) for lease in leases]

    def _take(self, queue: Queue, job_id: int, version: int, token: str) -> LeasedJob | None:
        handed = self._handed.get((job_id, version))
        if handed is None:
            return None
        of_queue, row, secret, own, worker = handed
        if of_queue != queue.name or not token.isascii() or not compare_digest(own, token):
            return None
        del self._handed[job_id, version]
        return LeasedJob(ClaimedRow._make(row), queue, queue.core.codec, secret, worker)


def _small(row: ClaimedRow, ends: int) -> tuple[Any, ...]:
    """The row, which has no payload, without what else may be large: headers and error.

    :param ends: of the lease; later than in the row if it was extended.
    """
    between, after = row[_HEADERS + 1 : _ENDS], row[_ENDS + 1 : _LAST_ERROR]
    return (*row[:_HEADERS], None, *between, ends, *after, None, *row[_LAST_ERROR + 1 :])
