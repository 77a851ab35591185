"""Many new jobs at once, by a way to load rows that is faster than INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from sqlalchemy import Table

from queue_db.dialects.opening import Opening
from queue_db.dialects.seam import ClaimSeam, Rows
from queue_db.dialects.transactions import Sender


class Bulk(ClaimSeam, Opening):
    """Many rows at once, with defaults that work on most databases."""

    #: Most jobs of one :meth:`load_new`, which waits for the database once or twice.
    loaded_at_once: ClassVar[int] = 1000
    #: The same if all jobs are in memory, so that it can read them while the database loads; 0: it does not work so.
    loaded_from_memory: ClassVar[int] = 0

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool
    ) -> tuple[int, Sequence[int]] | None:
        """Insert many new jobs without keys, groups and batches by a way of its own, in a transaction that has begun; return
        their number and, by position, their ids.

        Default: there is none that is faster than ``insert_new``: None, and nothing of ``chunks`` was read.

        :param chunks: read while the database loads those before.
        :param number: the most jobs that ``chunks`` may have.
        :param now: microseconds; None: the database's clock.
        :param ids: False: they are not needed, return none.
        :raises Exception: reading ``chunks`` raised it.
        """
        return None
