"""``db.dead``: dead jobs, and how to redrive or purge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queue_db import arguments
from queue_db.administration.store import repeated
from queue_db.core import Core, observe
from queue_db.dead import store
from queue_db.errors import ArgumentError, DuplicateJobError, JobNotFoundError
from queue_db.model import Job, State
from queue_db.store.portions import AT_ONCE, portions
from queue_db.store.schema import CLASS_LENGTH, KIND_LENGTH, QUEUE_LENGTH
from queue_db.verbs.job_rows import job_from_row

#: An alias, since the class below has a method called ``list``.
JobIds = list[int]

#: At most this many dead jobs are counted by default.
MOST_COUNTED = 10_000


class DeadJobs:
    """Dead jobs: out of attempts, or buried. They stay until they are redriven or purged."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def list(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        error_class: str | None = None,
        limit: int = 100,
        after: Job | None = None,
        newest: bool = False,
    ) -> list[Job]:
        """Dead jobs, longest dead first; ``available_at`` is when they died. ``after``: the last job of the previous page.

        Without a queue there are two statements or more for each queue that has dead jobs. If more than 100 have some, there are
        about 100 statements for their names, and one or two that read and sort all dead jobs.

        :param newest: those that died last come first; also the pages after it are read with ``newest``.
        :param error_class: only jobs that died by an exception of this class; empty: by a failure with a reason in its place.
            ``last_error`` begins with the class, so a reason that begins with the same word and ``: `` also matches.
        """
        like = _like(queue, kind, error_class)
        arguments.whole("limit", limit, 1)
        if after is not None and not isinstance(after, Job):
            raise arguments.wrong("after", after, ": must be the last job of the previous page")
        cursor = None if after is None else (arguments.moment("after", after.available_at) or 0, after.id)
        rows = observe(
            self._core, "dead.page_of_dead_jobs", store.page_of_dead_jobs, like=like, limit=limit, after=cursor, newest=newest
        )
        return [job_from_row(row, State.DEAD, self._core.codec) for row in rows]

    def redrive(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error_class: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> JobIds:
        """Return dead jobs to their queues under their old ids, due now, with no attempts counted; return the ids.

        It redrives all dead jobs, or the dead jobs with the given ids, queue, kind and error class (see :meth:`list`), at most
        ``limit``. A dead job stays dead if a live job has its unique key.

        :param dry_run: change nothing; return the ids of the jobs that would be redriven.
        :raises JobNotFoundError: a given id is not the id of a dead job of that queue, kind and error class. No job was redriven.
        :raises DuplicateJobError: a single id was given, and a live job has its unique key.
        """
        like = _like(queue, kind, error_class)
        wanted = _ids(ids)
        if limit is not None:
            arguments.whole("limit", limit, 0)
        self._core.ready()
        if wanted is not None:
            self._require_dead(set(wanted), like)
        back: JobIds = []
        left: dict[int, tuple[str, int | None]] = {}
        # Unique keys of the jobs that a dry run would have redriven, with the ids of these jobs.
        promised: dict[tuple[str, str], int] | None = {} if dry_run else None
        send = self._core.read if dry_run else self._core.write
        for portion in [None] if wanted is None else portions(sorted(set(wanted))):
            above = -1
            while limit is None or len(back) < limit:
                batch = AT_ONCE if limit is None else min(AT_ONCE, limit - len(back))
                came, stayed = send(
                    "dead.redrive", store.redrive, like=like, ids=portion, above=above, limit=batch, promised=promised
                )
                back += came
                left |= stayed
                if len(came) + len(stayed) < batch:
                    break
                above = max([*came, *stayed])
        if wanted is not None and limit != 0 and not back:
            if missing := set(wanted) - set(left):  # another process redrove them first
                raise self._not_dead(min(missing))
            if len(wanted) == 1:
                ((job_id, (key, existing)),) = left.items()
                raise DuplicateJobError(unique_key=key, existing_id=existing, dead=job_id)
        return back

    def _require_dead(self, ids: set[int], like: store.Like) -> None:
        """Check the ids before anything changes.

        :raises JobNotFoundError: one of the ids is not the id of a dead job that ``like`` describes.
        """
        for portion in portions(sorted(ids)):
            if missing := set(portion) - self._core.read("dead.which", store.which, ids=portion, like=like):
                raise self._not_dead(min(missing))

    def _not_dead(self, job_id: int) -> JobNotFoundError:
        try:
            job = self._core.administration.get(job_id)
        except JobNotFoundError:
            return JobNotFoundError(job_id, "the dead table")
        if job.state is State.DEAD:
            which = f"of queue {job.queue!r} and kind {job.kind!r}"
            return JobNotFoundError(job_id, "the dead table", message=f"job {job_id} is {which}: it does not match the filter")
        return JobNotFoundError(job_id, "the dead table", message=f"job {job_id} is not dead: it is {job.state.value}")

    def purge(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        error_class: str | None = None,
        older_than: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete dead jobs in batches, longest dead first within each queue; return how many.

        :param error_class: as for :meth:`list`.
        :param older_than: only jobs dead for at least this many seconds.
        :param keep: keep this many of the matching jobs, those that died last.
        :param limit: delete at most this many.
        :param dry_run: delete nothing; return how many would be deleted.
        """
        like = _like(queue, kind, error_class)
        age = None if older_than is None else arguments.seconds("older_than", older_than)
        if keep is not None:
            arguments.whole("keep", keep, 0)
        if limit is not None:
            arguments.whole("limit", limit, 0)
        self._core.ready()
        bounded = age is not None or keep is not None
        upto = self._core.read("dead.newest_to_purge", store.newest_to_purge, like=like, age=age, keep=keep) if bounded else None
        if dry_run:
            return self._core.read("dead.count", store.count, like=like, upto=upto, most=limit)
        return repeated(lambda most: self._core.write("dead.purge", store.purge, like=like, upto=upto, limit=most), limit)

    def count(
        self, queue: str | None = None, *, kind: str | None = None, error_class: str | None = None, most: int = MOST_COUNTED
    ) -> int:
        """How many dead jobs there are of the queue, kind and error class, at most ``most``.

        To learn what :meth:`redrive` or :meth:`purge` would change, call it with ``dry_run``.

        :param error_class: as for :meth:`list`.
        """
        like = _like(queue, kind, error_class)
        arguments.whole("most", most, 1, 1_000_000)
        return self._core.read("dead.count", store.count, like=like, upto=None, most=most)


def _like(queue: str | None, kind: str | None, error_class: str | None) -> store.Like:
    if queue is not None:
        arguments.name("queue", queue, QUEUE_LENGTH)
    if kind is not None:
        arguments.name("kind", kind, KIND_LENGTH)
    return store.Like(queue, kind, arguments.error_class(error_class, CLASS_LENGTH))


def _ids(ids: object) -> list[int] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        given = arguments.shown(ids)
        raise ArgumentError(f"ids={given}: must be a job id or several; those of a queue: redrive(queue={given})")
    several = ids if isinstance(ids, Iterable) and not isinstance(ids, bytes | Mapping) else [ids]
    return [arguments.whole("id", job_id, 0, 2**63 - 1) for job_id in several]
