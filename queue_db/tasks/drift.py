"""Drift: jobs wait that no task of a program runs, because a task was renamed or removed, or a kind is misspelt."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from queue_db.db import QueueDB
    from queue_db.tasks.registry import Tasks

# At most about this many jobs of a queue and a state are read.
_READ = 50_000


class Drift(NamedTuple):
    """Jobs of a kind that no task has."""

    queue: str
    kind: str
    #: How many were found; there may be more in a queue with more than 50,000 jobs.
    jobs: int
    #: The names of tasks that are much like the kind.
    like: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The sentence for people."""
        jobs = f"{self.jobs:,} job{'' if self.jobs == 1 else 's'} of kind {self.kind!r} wait{'s' if self.jobs == 1 else ''}"
        like = f"; did you mean {' or '.join(map(repr, self.like))}?" if self.like else ""
        return f"queue {self.queue!r}: {jobs}, and no task has this kind: give one aliases=[{self.kind!r}]{like}"


def drift(db: QueueDB, tasks: Tasks) -> list[Drift]:
    """The kinds of waiting jobs that no task has, of the queues of the tasks. It only reads."""
    known = tasks.by_kind
    return [
        Drift(
            queue, kind, found.available + found.scheduled + found.running + found.blocked, tuple(get_close_matches(kind, known, 2))
        )
        for queue in tasks.queues
        for kind, found in sorted(db.queue(queue).stats(most=_READ).by_kind.items())
        if kind not in known and (found.available or found.scheduled or found.running or found.blocked)
    ]
