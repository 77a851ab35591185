"""Statements for PostgreSQL only: claims in one statement, changes of leased jobs and new jobs with arrays."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Executable,
    Integer,
    Text,
)

from queue_db.dialects import statements
from queue_db.dialects.claim_sql import COLUMNS, ClaimText, Lock, Order, columns_of
from queue_db.dialects.prepared import NEVER
from queue_db.dialects.statements import IDS, Columns, JobsText, Pairs, kept
from queue_db.model import MOST_ATTEMPTS, MOST_CLAIMED_VERSION, ClaimedRow

#: The position of the number of candidates in a row, after the columns of a claimed job.
TRIED = len(ClaimedRow._fields)
#: The position of the lowest due time of the candidates. Only rows of :func:`full_claim` have this column.
HEAD = TRIED + 1


def fast_path(claim: ClaimText, *, one: bool, delete_on_claim: bool) -> Executable:
    """Claim the candidates of a single range without a temporary table.

    :param one: there is at most one candidate, so the statement needs no array.
    :param delete_on_claim: delete the jobs won. The statement claims no job without attempts left. It claims nothing if any
        candidate has a group or a batch, because the same transaction would have to update the group or batch.
    """
    change = _fast_change(claim, one=one, delete_on_claim=delete_on_claim)
    return kept(f"WITH {_fast_candidates(claim, tied=delete_on_claim)} {change}", *COLUMNS, *(() if one else ("tried",)))


def complete_and_claim(claim: ClaimText, *, one: bool, completes_one: bool) -> Executable:
    """Delete completed jobs and then claim, as :func:`fast_path` does.

    The statement returns the rows of the jobs won, and then a row with the number of deleted jobs as ``id``. After several jobs
    this row has their ids as ``payload``. A row for each deleted job would cost the client an eighth of its time.

    The statement deletes before it claims. So a call that waits for a row to delete holds no claimed job, and two calls cannot
    deadlock. A job that is deleted here is still in the snapshot of the claim, but PostgreSQL does not update a deleted row.
    """
    # The leases of the jobs won begin before the DELETE waits for locked rows. So _PATIENCE keeps this wait short.
    completed = f"DELETE FROM {claim.table} WHERE {matching(one=completes_one)} AND {_PATIENCE} RETURNING id"
    candidates = _fast_candidates(claim, after=["(SELECT count(*) FROM completed) >= 0"])
    columns = COLUMNS if one else (*COLUMNS, "tried")
    won = f"won AS ({_fast_change(claim, one=one)})"
    return kept(
        f"WITH completed AS ({completed}), {candidates}, {won} {_won_and_deleted(columns, completes_one=completes_one)}",
        *columns,
        **LISTS,
    )


def _won_and_deleted(columns: Columns, *, completes_one: bool) -> str:
    """The query for the rows that :func:`complete_and_claim` returns."""
    deleted = {"id": "count(*)"} if completes_one else {"id": "count(*)", "payload": "string_agg(CAST(completed.id AS TEXT), ' ')"}
    summary = ", ".join([deleted.get(name, "NULL") for name in columns])
    return f"SELECT {columns_of('won', columns)} FROM won UNION ALL SELECT {summary} FROM completed"


def full_claim(claim: ClaimText) -> Executable:
    """Read the candidates and claim those that still have their version, in one statement.

    The statement returns three kinds of rows: jobs won (with ``id``), the count of candidates of each priority (with ``tried`` and
    ``head``), and new priorities (with none of these columns).
    """
    shape = claim.shape
    among = _AMONG_CANDIDATES
    parts = [f"candidate AS ({claim.candidates(whole=False)})"]
    if shape.ranges:
        parts.append(f"unseen AS ({claim.new_priorities})")
        among += " AND NOT EXISTS (SELECT unseen.priority FROM unseen WHERE unseen.priority < jobs.priority)"
    if shape.lock is Lock.NONE:
        # A row that another transaction is claiming is a miss, because its version differs after the commit. So a wait for the row
        # is useless, and it could end in a deadlock, which takes a second to be detected.
        parts.append(f"held AS (SELECT jobs.id FROM {claim.jobs} WHERE {among} FOR UPDATE SKIP LOCKED)")
        among = "jobs.id = ANY(ARRAY(SELECT held.id FROM held))"
    change = f"UPDATE {claim.jobs} SET {claim.set()} WHERE {among} RETURNING {columns_of('jobs')}"
    parts.append(f"taken AS ({change})")
    by_priority = ", ".join("candidate.priority" if name == "priority" else "NULL" for name in COLUMNS)
    answer = [
        f"SELECT {columns_of('taken')}, NULL AS tried, NULL AS head FROM taken",
        f"SELECT {by_priority}, count(*), min(candidate.head) FROM candidate GROUP BY candidate.priority",
    ]
    if shape.ranges:
        answer.append(f"SELECT {by_priority.replace('candidate', 'unseen')}, NULL, NULL FROM unseen")
    return kept(f"WITH {', '.join(parts)} {' UNION ALL '.join(answer)}", *COLUMNS, "tried", "head")


# With the array the planner uses an index, even if its statistics are of an empty table. IS TRUE makes the planner use a hash table
# for the pairs instead of a join that compares all of them.
_AMONG_CANDIDATES = (
    "jobs.id = ANY(ARRAY(SELECT candidate.id FROM candidate))"
    " AND ((jobs.id, jobs.version) IN (SELECT candidate.id, candidate.version FROM candidate)) IS TRUE"
)

# Limits the time for which a fast-path claim waits for a row that another transaction is claiming or completing. After this time
# the row is a miss. A claim that also completes jobs is then done in two transactions.
_PATIENCE = "(SELECT set_config('lock_timeout', '50ms', true)) IS NOT NULL"


def _fast_candidates(claim: ClaimText, *, tied: bool = False, after: Sequence[str] = ()) -> str:
    """The candidates of the fast path.

    :param tied: add the column ``tied``: whether the job has a group or a batch.
    :param after: more conditions. The statement evaluates them before it reads the candidates.
    """
    columns = "jobs.id, jobs.version"
    if tied:
        columns += ", jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL AS tied"
    where = " AND ".join([claim.due(0), *claim.nothing_due, *after])
    due = f"SELECT {columns} FROM {claim.jobs} WHERE {where} ORDER BY jobs.available_at, jobs.id"
    if claim.shape.order is not Order.SLICE:
        return f"candidate AS ({due} LIMIT :limit{claim.lock})"
    # If the queue ends before the slice has enough jobs, the slice continues at the head.
    return (
        f"candidate AS (SELECT * FROM ({due} LIMIT :limit OFFSET :start) AS slice"
        f" UNION ALL SELECT * FROM ({due} LIMIT :front) AS front LIMIT :limit)"
    )


def _fast_change(claim: ClaimText, *, one: bool, delete_on_claim: bool = False) -> str:
    """The UPDATE or DELETE of the candidates that still have their version, with the columns that it returns."""
    locked = claim.shape.lock is not Lock.NONE
    if one:
        chosen = ["jobs.id = (SELECT candidate.id FROM candidate)"]
        if not locked:
            chosen.append("jobs.version = (SELECT candidate.version FROM candidate)")
    else:
        chosen = ["jobs.id = ANY(ARRAY(SELECT candidate.id FROM candidate))" if locked else _AMONG_CANDIDATES]
    chosen.append(claim.nothing_before)
    if not locked:
        # A short wait for transactions that are claiming these rows costs less than an extra step that checks for locks.
        chosen.append(_PATIENCE)
    returning = columns_of("jobs")
    if delete_on_claim:
        # Jobs without attempts left are not deleted here, because they go to the dead table.
        chosen.append(f"jobs.attempts < LEAST(jobs.max_attempts, {MOST_ATTEMPTS - 1}) AND jobs.version < {MOST_CLAIMED_VERSION}")
        chosen.append("NOT EXISTS (SELECT * FROM candidate WHERE candidate.tied)")
        # DELETE returns the old values of the row, so calculate the values that the claim would have assigned.
        left = claim.assignments
        returning = ", ".join(f"{left[name]} AS {name}" if name in left else f"jobs.{name}" for name in COLUMNS)
    if not one:
        # Each row has the number of candidates. NULL stands for as many as wanted, because a NULL costs the client next to nothing.
        returning += ", NULLIF((SELECT count(*) FROM candidate), :limit) AS tried"
    change = f"DELETE FROM {claim.jobs}" if delete_on_claim else f"UPDATE {claim.jobs} SET {claim.set()}"
    return f"{change} WHERE {' AND '.join(chosen)} RETURNING {returning}"


# --- settles and enqueues ---------------------------------------------------------------------------------------------------


def matching(*, one: bool) -> str:
    """The condition for rows whose ``(id, version)`` is given; :func:`wanted` has the parameters."""
    if one:
        return statements.matching(one=True)
    # With the array of ids the planner uses an index, even if its statistics are of an empty table. With the primary key, rows are
    # locked in id order. While the table is small, the planner may use the claim index or a bitmap scan, and lock rows in another
    # order. IS TRUE makes the planner use a hash table for the pairs instead of a join that compares all of them.
    pairs = "(SELECT wanted.id, wanted.version FROM unnest(:ids, :versions) AS wanted(id, version))"
    return f"id = ANY(:ids) AND ((id, version) IN {pairs}) IS TRUE"


LISTS: Mapping[str, Any] = {"ids": IDS, "versions": IDS}


def wanted(pairs: Pairs) -> dict[str, Any]:
    """The parameters of :func:`matching`."""
    if len(pairs) == 1:
        ((job_id, version),) = pairs
        return {"of_id": job_id, "of_version": version}
    return {"ids": [job_id for job_id, _ in pairs], "versions": [version for _, version in pairs]}


#: The statement that notifies when the transaction commits. Its parameters are the fields of a :class:`~queue_db.model.Notice`.
NOTIFICATION = kept("SELECT pg_notify(:channel, :text)", "notified").execution_options(**{NEVER: True})
_NOTIFY = "(SELECT pg_notify(:channel, :text))"  # the subquery depends on no row, so it runs once


def insert_one(jobs: JobsText, *, columns: Columns, notifies: bool) -> Executable:
    """Insert a job with these columns and return its id; ``notifies``: also notify, as :data:`NOTIFICATION` does."""
    returning = ("id", _NOTIFY) if notifies else ("id",)
    insert = f"{statements.insertion(jobs, columns)} RETURNING {', '.join(returning)}"
    return kept(insert, *("id", "notified")[: len(returning)]).execution_options(**{NEVER: True})


def insert_many(jobs: JobsText, *, columns: Columns, same: frozenset[str], keyed: bool, notifies: bool) -> Executable:
    """Insert many jobs. The ids are returned in any order.

    Each column is one array, so the text is the same for any number of rows. This is 2 × as fast as VALUES lists. A column with the
    same value in all rows needs no array.

    :param same: columns with the same value in all rows. The other columns have arrays, whose names begin with ``all_``.
    :param keyed: some jobs have unique keys. Skip a job if a live job has its key, and return queue and key with each id. The
        statement then costs a third more.
    """
    names = (*columns, "after", "not_before")
    arrays = [name for name in names if name not in same]
    value = {name: f":new_{name}" if name in same else f"given.{name}" for name in names}
    due = statements.due(jobs.now, value["after"], value["not_before"])
    insert = (
        f"INSERT INTO {jobs.table} ({', '.join(columns)}, available_at, created_at)"
        f" SELECT {', '.join([value[name] for name in columns])}, {due}, {jobs.now}"
        f" FROM unnest({', '.join([f':all_{name}' for name in arrays])}) WITH ORDINALITY AS given({', '.join(arrays)}, place)"
        " ORDER BY given.place"
    )
    if keyed:
        insert += " ON CONFLICT (queue, unique_key) WHERE unique_key IS NOT NULL DO NOTHING"
    names = ("id", "queue", "unique_key") if keyed else ("id", "notified") if notifies else ("id",)
    returning = ", ".join(names).replace("notified", _NOTIFY)
    types = {f"all_{name}": ARRAY(_NUMBERS.get(name, Text())) for name in arrays}
    return kept(f"{insert} RETURNING {returning}", *names, **types)


# Columns of a new job that are numbers.
_NUMBERS: Mapping[str, Any] = {
    **dict.fromkeys(("priority", "max_attempts"), Integer()),
    **dict.fromkeys(("callback_id", "after", "not_before"), BigInteger()),
}
