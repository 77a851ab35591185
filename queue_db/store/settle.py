"""Settling: one fenced change of claimed jobs on ``(id, version)``, the same for every strategy and database.

Each change takes pairs of id and version and returns the ids of the changed jobs. The leases of the jobs that it did not change are
lost. A change takes one to three statements for any number of jobs. If the jobs have different delays or errors, each 500 jobs take
one to three statements. Every change raises ``version`` by one, so an old pair never matches again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from sqlalchemy import Select, select, update

from queue_db.dialects import statements
from queue_db.dialects.statements import NEXT_VERSION, ONE_ATTEMPT_LESS, Pairs, each
from queue_db.model import Capability, ClaimedRow
from queue_db.store import base
from queue_db.store.base import Transaction
from queue_db.store.portions import AT_ONCE, portions
from queue_db.store.schema import MARKED


class Change(Enum):
    """The state of a job after a settling verb. :func:`look` checks this state after the reply to a COMMIT was lost."""

    KEPT = "kept"  #: still leased: extend
    FREED = "freed"  #: back in the queue: snooze, release
    FAILED = "failed"  #: back in the queue or in the dead table, with a row of the failed attempt
    DEAD = "dead"  #: in the dead table
    GONE = "gone"  #: deleted or marked


class Sight(Enum):
    """What :func:`look` finds for a lease when it is unknown whether the change was committed."""

    CHANGED = "changed"  #: the change was committed: only the holder of this lease can have made it
    UNCHANGED = "unchanged"  #: the lease is as before: the change was not committed
    VANISHED = "vanished"  #: the row is gone: this change deleted it, or another change deleted it after the end of the lease
    OTHER = "other"  #: a state that this change does not produce


_EXTENDED = f"available_at = {{now}} + :lease, version = {NEXT_VERSION}"


def extend(tx: Transaction, pairs: Pairs, lease: int) -> dict[int, int]:
    """Set the end of the lease to ``lease`` microseconds from now; return the new ends by id.

    This raises the version. Otherwise a claim could take the job if the claim's old snapshot shows an expired lease.
    """
    values = {"lease": lease, **tx.time()}
    rows = tx.dialect.update_returning(tx, tx.tables.jobs, pairs, _EXTENDED, values, ("id", "available_at"))
    return {job_id: end for job_id, end in rows}  # noqa: C416 - dict() wants pairs


def adjust_attempts(tx: Transaction, pairs: Pairs, by: int) -> set[int]:
    """Add ``by`` to the attempts of jobs that stay leased."""
    attempts = "CASE WHEN attempts + :attempts > 0 THEN attempts + :attempts ELSE 0 END"
    assignments = f"version = {NEXT_VERSION}, attempts = {attempts}"
    return tx.dialect.change(tx, tx.tables.jobs, pairs, assignments, {"attempts": by})


def extend_unlocked(tx: Transaction, pairs: Pairs, lease: int) -> tuple[dict[int, int], set[int]]:
    """Extend leases as :func:`extend` does, but skip rows that other transactions have locked.

    A database without SKIP LOCKED waits for the locks.

    :return: the new ends by id, and the ids of the skipped rows.
    """
    if Capability.SKIP_LOCKED not in tx.store.capabilities:
        return extend(tx, pairs, lease), set()
    jobs = tx.tables.jobs
    free_now = tx.dialect.hold(tx, jobs, pairs, skip=True)
    ends = extend(tx, free_now, lease) if free_now else {}
    rest = [pair for pair in pairs if pair[0] not in ends]
    if not rest:
        return ends, set()
    # A row in ``rest`` that still has the version of its lease was locked. If the version has changed, the lease is lost.
    there = statements.on(tx.dialect, jobs, tx.connection.dialect).made(statements.select, columns=("id",), one=len(rest) == 1)
    return ends, {job_id for (job_id,) in tx.fetch(there, tx.dialect.wanted(rest))}


def requeue(
    tx: Transaction,
    pairs: Pairs,
    *,
    delays: Mapping[int, int],
    errors: Mapping[int, str] | None = None,
    limits: Mapping[int, int] | None = None,
    unknown_since: Mapping[int, int] | None = None,
    headers: Mapping[int, str] | None = None,
    attempted: bool,
) -> set[int]:
    """Return jobs to the queue, due ``delays[id]`` microseconds from now.

    :param errors: the new ``last_error`` of each job, by id.
    :param limits: the new ``max_attempts`` of each job, by id.
    :param unknown_since: the time since which no worker has had a handler for the job, by id; None: a worker has a handler.
    :param headers: the new headers of each job, by id.
    :param attempted: False: the claim does not count as an attempt (snooze, release).
    """
    freed: set[int] = set()
    own = {"delay": delays, "unknown_since": unknown_since, "max_attempts": limits, "error": errors, "headers": headers}
    for part in _parts(tx, pairs, *own.values()):
        ids = [job_id for job_id, _ in part]
        value, values = {"unknown_since": "NULL"}, tx.time()
        for name, by_id in own.items():
            if by_id:
                value[name], parameters = each(name, by_id, ids)
                values |= parameters
        assignments = f"available_at = {{now}} + {value['delay']}, {_FREED}, unknown_since = {value['unknown_since']}"
        if not attempted:
            assignments += f", attempts = {ONE_ATTEMPT_LESS}"
        if limits:
            assignments += f", max_attempts = {value['max_attempts']}"
        if errors:
            assignments += f", last_error = {value['error']}"
        if headers:
            assignments += f", headers = {value['headers']}"
        freed |= tx.dialect.change(tx, tx.tables.jobs, part, assignments, values)
    return freed


_FREED = f"version = {NEXT_VERSION}, claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL"


def _parts(tx: Transaction, pairs: Pairs, *values: Mapping[int, Any] | None) -> Sequence[Pairs]:
    """Divide ``pairs`` into one part for each statement.

    There are several parts if many jobs have different values.
    """
    if len(pairs) <= AT_ONCE or all(len(set(by_id.values())) <= 1 for by_id in values if by_id):
        return [pairs]
    tx.begin()  # a completion commits each statement, and a third-party Removal may call this
    return list(portions(pairs))


def rescue(tx: Transaction, worker: str) -> int:
    """Put the jobs that ``worker`` has leased back into their queues.

    This reads all jobs.

    :return: the number of jobs.
    """
    jobs = tx.tables.jobs
    held = select(jobs.c.id, jobs.c.version).where(
        jobs.c.worker == worker, jobs.c.claim_token.is_not(None), jobs.c.available_at > tx.now
    )
    pairs = [(row.id, row.version) for row in tx.connection.execute(held.order_by(jobs.c.id), tx.time())]
    if not pairs:
        return 0
    return len(requeue(tx, pairs, delays=dict.fromkeys((job_id for job_id, _ in pairs), 0), attempted=True))


def give_back_claim(tx: Transaction, queue: str, token: str, but: set[int]) -> int:
    """Put the jobs of the claim ``token`` back into the queue, except the jobs with ids in ``but``.

    This reads the whole queue.

    :return: the number of jobs.
    """
    jobs = tx.tables.jobs
    query = select(jobs.c.id, jobs.c.version).where(jobs.c.queue == queue, jobs.c.claim_token == token)
    pairs = [(row.id, row.version) for row in tx.connection.execute(query.order_by(jobs.c.id)) if row.id not in but]
    if not pairs:
        return 0
    return len(requeue(tx, pairs, delays=dict.fromkeys((job_id for job_id, _ in pairs), 0), attempted=False))


def set_workers(tx: Transaction, token: str, workers: Mapping[int, str]) -> None:
    """Set the worker names that jobs of the claim ``token`` show, by job id; jobs that have another lease by now keep theirs."""
    jobs = tx.tables.jobs
    for some in portions(sorted(workers)):
        names = base.each(jobs.c.id, {job_id: workers[job_id] for job_id in some}, jobs.c.worker.type)
        statement = update(jobs).where(jobs.c.id.in_(some), jobs.c.claim_token == token).values(worker=names)
        tx.connection.execute(tx.dialect.by_id(statement, jobs))


def tokens(tx: Transaction, ids: Sequence[int]) -> dict[int, str | None]:
    """The claim tokens of the jobs with these ids, by id; ids without a row are missing."""
    jobs = tx.tables.jobs
    token_of: dict[int, str | None] = {}
    for some in portions(ids):
        query = select(jobs.c.id, jobs.c.claim_token).where(jobs.c.id.in_(some))
        token_of.update((row.id, row.claim_token) for row in tx.connection.execute(tx.dialect.by_id(query, jobs)))
    return token_of


def extended(tx: Transaction, leases: Mapping[int, tuple[int, str]], *, current: bool = False) -> dict[int, int]:
    """The current version of each lease in ``leases`` that was extended, by job id; other leases are missing.

    :param leases: job id → ``(version, claim token)``.
    :param current: read the latest rows by locking them, since the snapshot of a caller's transaction may be older.
    """
    jobs = tx.tables.jobs
    rows = select(jobs.c.id, jobs.c.version, jobs.c.claim_token).where(jobs.c.id.in_(sorted(leases))).order_by(jobs.c.id)
    query: Select[Any] = tx.dialect.by_id(rows, jobs)
    seen = tx.connection.execute(tx.dialect.lock_rows(query, skip=False) if current else query)
    return {row.id: row.version for row in seen if row.claim_token == leases[row.id][1] and row.version > leases[row.id][0]}


def leased(tx: Transaction, queue: str, ids: Sequence[int]) -> dict[int, tuple[ClaimedRow, str, str | None]]:
    """The rows, claim tokens and worker names of the jobs of ``queue`` that have a claim token, by id."""
    jobs = tx.tables.jobs
    columns = [jobs.c[name] for name in ClaimedRow._fields]
    rows: dict[int, tuple[ClaimedRow, str, str | None]] = {}
    for some in portions(ids):
        query = select(*columns, jobs.c.queue, jobs.c.claim_token, jobs.c.worker)
        query = query.where(jobs.c.id.in_(some), jobs.c.claim_token.is_not(None))
        for *row, of_queue, token, worker in tx.connection.execute(tx.dialect.by_id(query, jobs)):
            if of_queue == queue:
                claimed = ClaimedRow(*row)
                rows[claimed.id] = claimed, token, worker
    return rows


def delete(tx: Transaction, pairs: Pairs) -> set[int]:
    """Delete jobs from the table."""
    jobs, dialect = tx.tables.jobs, tx.dialect
    if len(pairs) == 1:
        # For a single job, the number of deleted rows says enough, and costs the driver less than a row.
        statement = statements.on(dialect, jobs, tx.connection.dialect).made(statements.delete, one=True)
        return {pairs[0][0]} if tx.execute(statement, dialect.wanted(pairs)) else set()
    return dialect.delete_returning(tx, jobs, pairs) if pairs else set()


def mark(tx: Transaction, pairs: Pairs) -> set[int]:
    """Mark jobs as done, and move them to the queue ``MARKED``, so that claims do not read them. The sweeper deletes them."""
    assignments = (
        f"queue = :queue, delete_mark = 1, version = {NEXT_VERSION}, claim_token = NULL, unique_key = NULL, group_key = NULL"
    )
    return tx.dialect.change(tx, tx.tables.jobs, pairs, assignments, {"queue": MARKED})


def lock(tx: Transaction, pairs: Pairs) -> Pairs:
    """Lock the rows that match ``pairs`` until the transaction ends, and return the pairs of these rows."""
    return tx.dialect.hold(tx, tx.tables.jobs, pairs)


def unknown_since(tx: Transaction, pairs: Pairs) -> dict[int, int]:
    """The time since which no worker has had a handler for the job, by id; jobs without such a time are missing."""
    jobs = tx.tables.jobs
    query = select(jobs.c.id, jobs.c.unknown_since).where(
        jobs.c.id.in_([job_id for job_id, _ in pairs]), jobs.c.unknown_since.is_not(None)
    )
    return {row.id: row.unknown_since for row in tx.connection.execute(query)} if pairs else {}


def bury(
    tx: Transaction,
    pairs: Pairs,
    errors: Mapping[int, str],
    limits: Mapping[int, int] | None = None,
    *,
    attempted: bool = True,
) -> set[int]:
    """Move jobs to the dead table.

    :param errors: the reason for each job, by id.
    :param limits: the ``max_attempts`` of each job in the dead table, by id.
    :param attempted: False: the claim does not count as an attempt.
    """
    jobs, dead = tx.tables.jobs, tx.tables.dead
    # Lock the rows first, so that the same rows are copied and deleted.
    held = lock(tx, pairs)
    if not held:
        return set()
    texts = statements.on(tx.dialect, jobs, tx.connection.dialect, settable=tx.store.clock is not None)
    table = tx.connection.dialect.identifier_preparer.format_table(dead)
    changed = {"version": NEXT_VERSION, "died_at": "{now}"}
    if not attempted:
        changed["attempts"] = ONE_ATTEMPT_LESS
    for part in _parts(tx, held, errors, limits):
        ids = [job_id for job_id, _ in part]
        changed["last_error"], values = each("error", errors, ids)
        if limits:
            changed["max_attempts"], parameters = each("max_attempts", limits, ids)
            values |= parameters
        columns = tuple([column.name for column in dead.c if column.name in jobs.c and column.name not in changed])
        assignments = tuple([f"{value} AS {name}" for name, value in changed.items()])
        copy = texts.made(statements.bury, dead=table, columns=columns, assignments=assignments)
        tx.execute(copy, {**values, **tx.time(), "of_ids": ids})
    return delete(tx, held)


def look(tx: Transaction, leases: Sequence[tuple[int, int, str]], change: Change) -> dict[int, Sight]:
    """After a COMMIT whose reply was lost, find out whether ``change`` was applied to each lease.

    A version is never used again. So a row with the version of the lease proves that the change was not committed. A row with the
    next version, in the state that the change produces, proves that the change was committed. A deleted row proves nothing.

    :param leases: ``(id, version, claim token)`` of each lease.
    :return: the finding for each lease, by job id.
    """
    jobs, ids = tx.tables.jobs, [job_id for job_id, _, _ in leases]
    rows = {
        row.id: row
        for row in tx.connection.execute(
            select(jobs.c.id, jobs.c.version, jobs.c.claim_token, jobs.c.delete_mark).where(jobs.c.id.in_(ids))
        )
    }
    traces = _traces(tx, ids, change)
    sights = {}
    for job_id, version, token in leases:
        row = rows.get(job_id)
        if row is not None and row.version == version:
            sight = Sight.UNCHANGED
        elif traces is not None:
            sight = Sight.CHANGED if (job_id, version) in traces else Sight.OTHER
        elif row is None:
            sight = Sight.VANISHED if change is Change.GONE else Sight.OTHER
        elif row.version != version + 1:
            sight = Sight.OTHER
        elif change is Change.GONE:
            sight = Sight.CHANGED if row.delete_mark == 1 else Sight.OTHER
        else:
            sight = Sight.CHANGED if row.claim_token == (token if change is Change.KEPT else None) else Sight.OTHER
        sights[job_id] = sight
    return sights


def _traces(tx: Transaction, ids: Sequence[int], change: Change) -> set[tuple[int, int]] | None:
    """Find the leases ``(id, version)`` of these jobs that ``change`` has ended, by the rows that it wrote in other tables.

    :return: the leases; None: this kind of change writes no rows in other tables.
    """
    dead, errors = tx.tables.dead, tx.tables.errors
    if change is Change.DEAD:
        # :func:`bury` stores the version of the lease plus 1.
        return {
            (row.id, row.version - 1) for row in tx.connection.execute(select(dead.c.id, dead.c.version).where(dead.c.id.in_(ids)))
        }
    if change is Change.FAILED:
        query = select(errors.c.job_id, errors.c.version).where(errors.c.job_id.in_(ids))
        return {(row.job_id, row.version) for row in tx.connection.execute(query)}
    return None
