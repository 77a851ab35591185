"""Jobs that die in a batch of a stream: reported as any others, after the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Row

from queue_db.core import Core, name_of
from queue_db.database.transaction import Run
from queue_db.model import DeathReason
from queue_db.notifications.deaths import Death, UnleasedJob
from queue_db.store import Transaction

_T = TypeVar("_T")

Buried = dict[int, Row[Any]]
"""The rows of jobs that a batch has buried, by id."""


def run_batch(core: Core, how: Run, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
    """``core.run`` for a function that adds the jobs that it buries to its argument ``buried``: their deaths are reported."""
    # One for all attempts: one whose COMMIT was not answered may have buried jobs, and the next finds its batch completed.
    buried: Buried = {}

    def report(tx: Transaction) -> _T:
        return function(tx, *args, buried=buried, **kwargs)

    answer, tx = core.commit(how._replace(name=how.name or name_of(function)), report)
    try:
        core.deaths.record(
            Death(UnleasedJob(row.id, row.queue, row.kind, row.attempts, row.max_attempts), DeathReason.REJECTED, row.last_error)
            for row in buried.values()
        )
    finally:
        tx.follow()
    return answer
