"""``db.dead``: the jobs that were given up, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.codecs import Codec, decoded_or_text
from queue_db.errors import ArgumentError, DuplicateJobError, JobNotFoundError
from queue_db.leased_job import decode_headers
from queue_db.model import Job, State, from_micros
from queue_db.store import graveyard
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH

if TYPE_CHECKING:
    from queue_db.db import QueueDB

#: The class below has a method called ``list``.
JobIds = list[int]

_BATCH = 500


class DeadJobs:
    """Jobs whose attempts are used up, or that a handler gave up. They stay until redriven or purged."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db

    def list(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        limit: int = 100,
        after: Job | None = None,
    ) -> list[Job]:
        """Dead jobs, longest dead first; ``available_at`` is when they died. ``after``: the last job of the page before."""
        _check(queue, kind)
        arguments.whole("limit", limit, 1)
        if after is not None and not isinstance(after, Job):
            raise ArgumentError(f"after={arguments.shown(after)}: must be the last job of the page before")
        db = self._db
        db.ready()
        from_here = None if after is None else (arguments.moment("after", after.available_at) or 0, after.id)
        rows = db.database.run(
            lambda connection: graveyard.page(connection, db.store, queue=queue, kind=kind, limit=limit, after=from_here),
            name="dead list",
            write=False,
        )
        return [job_from_row(row, State.DEAD, db.codec) for row in rows]

    def redrive(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> JobIds:
        """Bring dead jobs back, due now, untried, under their old ids; return these.

        All of them, or those of the given ids, queue and kind, at most ``limit``. A job whose unique key a live job has stays dead.

        :raises JobNotFoundError: an id was given that is not dead, or not of that queue and kind. None of the others came back.
        :raises DuplicateJobError: one id was given, and a live job has its unique key.
        """
        _check(queue, kind)
        wanted = _ids(ids)
        if limit is not None:
            arguments.whole("limit", limit, 0)
        db = self._db
        db.ready()
        if wanted is not None:
            self._require_dead(set(wanted), queue, kind)
        back: JobIds = []
        left: dict[int, tuple[str, int | None]] = {}
        for some in [None] if wanted is None else _batches(sorted(set(wanted))):
            above = -1
            while limit is None or len(back) < limit:
                batch = _BATCH if limit is None else min(_BATCH, limit - len(back))
                redrive = partial(graveyard.redrive, store=db.store, queue=queue, kind=kind, ids=some, above=above, limit=batch)
                came, stayed = db.database.run(redrive, name="redrive")
                back += came
                left |= stayed
                if len(came) + len(stayed) < batch:
                    break
                above = max([*came, *stayed])
        if wanted is not None:
            missing = set(wanted) - set(back) - set(left)
            if missing and not back and limit != 0:  # another process was faster
                raise self._not_dead(min(missing))
            if len(wanted) == 1 and left:
                ((key, existing),) = left.values()
                raise DuplicateJobError(unique_key=key, existing_id=existing)
        return back

    def _require_dead(self, ids: set[int], queue: str | None, kind: str | None) -> None:
        """Before anything changes.

        :raises JobNotFoundError: one of these is not a dead job of that queue and kind.
        """
        db = self._db
        for some in _batches(sorted(ids)):
            look = partial(graveyard.which, store=db.store, ids=some, queue=queue, kind=kind)
            if missing := set(some) - db.database.run(look, name="dead look", write=False):
                raise self._not_dead(min(missing))

    def _not_dead(self, job_id: int) -> JobNotFoundError:
        try:
            job = self._db.get(job_id)
        except JobNotFoundError:
            return JobNotFoundError(job_id, "the dead table")
        if job.state is State.DEAD:
            which = f"of queue {job.queue!r} and kind {job.kind!r}"
            return JobNotFoundError(job_id, "the dead table", message=f"job {job_id} is {which}: it was not asked for")
        return JobNotFoundError(job_id, "the dead table", message=f"job {job_id} is not dead: it is {job.state.value}")

    def purge(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        older_than: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete dead jobs for good, in batches, those of one queue longest dead first; return how many.

        :param older_than: only those dead for so many seconds.
        :param keep: not those that died last, so many of the queue and kind, or of all.
        :param limit: at most so many.
        """
        _check(queue, kind)
        age = None if older_than is None else arguments.seconds("older_than", older_than)
        if keep is not None:
            arguments.whole("keep", keep, 0)
        if limit is not None:
            arguments.whole("limit", limit, 0)
        db = self._db
        db.ready()

        def last(connection: Connection) -> graveyard.Place | None:
            """The last one that goes."""
            places: list[graveyard.Place] = []
            if age is not None:
                places.append((db.store.read_clock(connection) - age, -1))
            if keep is not None:
                places.append(graveyard.border(connection, db.store, queue=queue, kind=kind, keep=keep))
            return min(places, default=None)

        bounded = age is not None or keep is not None
        upto = db.database.run(last, name="dead border", write=False) if bounded else None
        deleted = 0
        while limit is None or deleted < limit:
            batch = _BATCH if limit is None else min(_BATCH, limit - deleted)
            gone = db.database.run(
                partial(graveyard.forget, store=db.store, queue=queue, kind=kind, upto=upto, limit=batch), name="dead purge"
            )
            deleted += gone
            if gone < batch:
                break
        return deleted


def job_from_row(row: Any, state: State, codec: Codec) -> Job:
    """A stored row as a :class:`Job`. A payload that cannot be decoded is shown as the text that it is."""
    return Job(
        id=row.id,
        queue=row.queue,
        kind=row.kind,
        payload=decoded_or_text(codec, row.payload),
        headers=decode_headers(row.headers),
        priority=row.priority,
        state=state,
        available_at=from_micros(row.died_at if state is State.DEAD else row.available_at),
        version=row.version,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        unique_key=row.unique_key,
        worker=row.worker,
        created_at=from_micros(row.created_at),
        last_error=row.last_error,
        group=row.group_key,
        progress=getattr(row, "progress", None),
        progress_note=getattr(row, "progress_note", None),
    )


def _check(queue: str | None, kind: str | None) -> None:
    if queue is not None:
        arguments.name("queue", queue, QUEUE_LENGTH)
    if kind is not None:
        arguments.name("kind", kind, KIND_LENGTH)


def _batches(ids: JobIds) -> Iterator[JobIds]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _ids(ids: object) -> list[int] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        given = arguments.shown(ids)
        raise ArgumentError(f"ids={given}: must be a job id or several; those of a queue: redrive(queue={given})")
    several = ids if isinstance(ids, Iterable) and not isinstance(ids, bytes | Mapping) else [ids]
    return [arguments.whole("id", job_id, 0, 2**63 - 1) for job_id in several]
