"""Operations on dead jobs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry

# Most ids in the target of an entry.
_SHOWN_IDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead jobs: those that fit everything that is given; at least one must be given, or ``everything``."""

    queue: str | None = None
    kind: str | None = None
    error_class: str | None = None  #: as for ``db.dead.list``; empty: a reason in place of an exception
    everything: bool = False  #: the dead jobs of all queues
    limit: int | None = None  #: at most this many

    def check(self, actor: Actor, *more: object) -> None:
        """Check that this may be changed by the actor.

        :param more: further conditions.
        :raises ArgumentError: nothing says which jobs: a forgotten filter must not change those of all queues.
        :raises ForbiddenError: the actor lacks the scope.
        """
        rights.check(actor, "manage", self.queue)
        if not self.everything and all(one is None for one in (self.queue, self.kind, self.error_class, *more)):
            raise ArgumentError("name the dead jobs by queue, kind or error class, or say that all of all queues are meant")

    def target(self) -> str:
        """The target of an entry in the action log: ``dead jobs of queue mail and kind x``."""
        parts = [] if self.queue is None else [f"queue {self.queue}"]
        parts += [] if self.kind is None else [f"kind {self.kind}"]
        parts += [] if self.error_class is None else [f"error class {self.error_class}" if self.error_class else "no error class"]
        return f"dead jobs of {' and '.join(parts) or 'all queues'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive(Selection):
    """Dead jobs that return to their queues."""

    ids: tuple[int, ...] | None = None  #: only these

    def target(self) -> str:
        """The target of an entry; of given ids ``dead job 17``, or ``dead jobs 17, 18``."""
        if not self.ids:
            return Selection.target(self)
        more = ", …" if len(self.ids) > _SHOWN_IDS else ""
        return f"dead job{'s' if len(self.ids) > 1 else ''} {', '.join(map(str, self.ids[:_SHOWN_IDS]))}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Selection):
    """Dead jobs that are deleted."""

    older_than: float | None = None  #: only jobs dead for at least so many seconds
    keep: int | None = None  #: keep as many of them, the last to die


def redrive(db: QueueDB, actor: Actor, which: Redrive, *, dry_run: bool = False) -> list[int]:
    """Return dead jobs to their queues, due now and with no attempts counted; return the ids.

    :param dry_run: change nothing; return the ids of the jobs that would be redriven.
    :raises JobNotFoundError: a given id is of no such dead job. No job was redriven.
    :raises DuplicateJobError: a single id was given, and a live job has its unique key.
    """
    which.check(actor, which.ids)
    # Of several given ids some may stay dead: the detail has those that returned.
    several = ("ids", lambda answer: answer[0]) if which.ids and len(which.ids) > 1 else None
    filters = {"queue": which.queue, "kind": which.kind, "error_class": which.error_class}
    try:
        log = entry(
            *(db, actor, "redrive", which.target()),
            detail={"limit": which.limit},
            of="dead.redrive",
            number=lambda answer: len(answer[0]),
            items=several,
        )
        with nullcontext() if dry_run else log:
            return db.dead.redrive(which.ids, **filters, limit=which.limit, dry_run=dry_run)
    except JobNotFoundError as error:
        if actor.allows_all("read"):
            raise
        # The error of the verb shows the queue, or the state, of a job that the actor may not see.
        where = "the dead jobs" if which.queue is None else f"the dead jobs of queue {which.queue!r}"
        raise JobNotFoundError(error.job_id, where) from None


def purge(db: QueueDB, actor: Actor, which: Purge, *, dry_run: bool = False) -> int:
    """Delete dead jobs; return how many.

    :param dry_run: delete nothing; return how many would be deleted.
    """
    which.check(actor, which.older_than, which.keep)
    bounds = {"older_than": which.older_than, "keep": which.keep, "limit": which.limit}
    with nullcontext() if dry_run else entry(db, actor, "purge", which.target(), detail=bounds, of="dead.purge"):
        return db.dead.purge(
            which.queue,
            kind=which.kind,
            error_class=which.error_class,
            older_than=which.older_than,
            keep=which.keep,
            limit=which.limit,
            dry_run=dry_run,
        )
