"""The kept statements of PostgreSQL: claims in one statement, and the changes of settled jobs with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    String,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    column,
    delete,
    exists,
    func,
    literal_column,
    null,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from queue_db.dialects import statements
from queue_db.dialects.claim_plan import ClaimPlan
from queue_db.dialects.clock import due_time, now_us
from queue_db.dialects.prepared import NEVER
from queue_db.dialects.statements import Columns, tied
from queue_db.model import MOST_ATTEMPTS, MOST_CLAIMED_VERSION, ClaimedRow

# How long a fast-path claim waits for a row that another transaction is claiming or completing; then it is a miss, or an exchange
# becomes two transactions. No claim takes longer.
_WITH_PATIENCE = "set_config('lock_timeout', '50ms', true)"

#: Columns of a new job that are numbers.
NUMBERS = ("priority", "max_attempts", "callback_id")

#: The columns of both statements after those of a claimed job: the number of candidates, and their lowest due time.
TRIED = len(ClaimedRow._fields)
HEAD = TRIED + 1


@lru_cache(maxsize=256)
def fast_path(plan: ClaimPlan, *, one: bool, delete_on_claim: bool) -> Any:
    """Claim the candidates of the fast path without a temporary table, one job without an array.

    ``delete_on_claim``: delete them. It claims nothing if a candidate has a group or a callback, which the same transaction must
    update, and no job without attempts left.
    """
    return _fast_change(plan, _fast_window(plan, delete_on_claim=delete_on_claim), one=one, delete_on_claim=delete_on_claim)


@lru_cache(maxsize=256)
def exchange(plan: ClaimPlan, *, one: bool, completes_one: bool) -> Any:
    """Delete completed jobs and then claim, as :func:`fast_path` does: first the rows of jobs won, then the ids of those deleted.

    In this order, so that whoever waits for a row while it deletes holds no claimed job: two exchanges never wait for each other
    without end. A job that is deleted here is still in the snapshot of the claim; PostgreSQL does not update it.
    """
    deletion = (delete_one if completes_one else delete_many)(plan.jobs)
    # The leases of the jobs won begin before this wait.
    completed = deletion.where(_has_patience()).cte("completed")
    deleted = select(func.count()).select_from(completed).scalar_subquery() >= 0
    won = _fast_change(plan, _fast_window(plan, after=[deleted]), one=one).cte("won")
    first, *others = won.c
    return select(first, *others).union_all(select(completed.c.id, *(null() for _ in others)))


def _fast_change(plan: ClaimPlan, window: CTE, *, one: bool, delete_on_claim: bool = False) -> Any:
    """The change of the candidates in ``window``, and the columns of the answer."""
    jobs = plan.jobs
    assert plan.before is not None  # noqa: S101 - the plan has both or neither
    change: Any = _deletion(jobs) if delete_on_claim else update(jobs).ordered_values(*plan.values)
    change = change.where(_chosen(plan, window, one=one), plan.before.scalar_subquery().is_(None))
    if not plan.locks:
        # To wait for the transactions that are claiming these rows costs less than a step that looks for locks; but not for long.
        change = change.where(_has_patience())
    if delete_on_claim:
        change = change.where(~exists().where(window.c.tied))
    columns = _as_claimed(plan) if delete_on_claim else list(plan.returning)
    if not one:
        tried = select(func.count()).select_from(window).scalar_subquery()
        head = select(func.min(window.c.available_at)).scalar_subquery()
        columns += [tried.label("tried"), head.label("head")]
    return change.returning(*columns)


def _has_patience() -> ColumnElement[bool]:
    """True, and from then on the statement waits for a locked row for a short time only."""
    return select(literal_column(_WITH_PATIENCE)).scalar_subquery().is_not(None)


def _fast_window(plan: ClaimPlan, *, delete_on_claim: bool = False, after: Sequence[ColumnElement[bool]] = ()) -> CTE:
    """The candidates of the fast path, once ``after`` has been found; with ``delete_on_claim`` also whether each has a group or a
    callback.
    """
    assert plan.fast_path is not None  # noqa: S101 - callers check
    limit, start, front = (bindparam(name, type_=Integer) for name in ("limit", "start", "front"))
    due = plan.fast_path.where(*after)
    if delete_on_claim:
        due = due.add_columns(tied(plan.jobs).label("tied"))
    rows: Any = due.limit(limit)
    if plan.slices:
        slice_, head = due.offset(start).limit(limit), due.limit(front)
        rows = union_all(select(slice_.subquery("slice")), select(head.subquery("head"))).limit(limit)
    elif plan.locks:
        rows = rows.with_for_update(skip_locked=True)
    window: CTE = rows.cte("candidate")
    return window


def _chosen(plan: ClaimPlan, window: CTE, *, one: bool) -> ColumnElement[bool]:
    """The rows of the candidates; of those that are not locked, with the version that was read."""
    jobs = plan.jobs
    if not one:
        return jobs.c.id == any_(_array_of(window.c.id)) if plan.locks else _still(jobs, window)
    chosen: ColumnElement[bool] = jobs.c.id == select(window.c.id).scalar_subquery()
    return chosen if plan.locks else and_(chosen, jobs.c.version == select(window.c.version).scalar_subquery())


def _deletion(jobs: Table) -> Any:
    """Delete jobs with attempts left; the others go to the dead table."""
    last = func.least(jobs.c.max_attempts, MOST_ATTEMPTS - 1)
    return delete(jobs).where(jobs.c.attempts < last, jobs.c.version < MOST_CLAIMED_VERSION)


def _as_claimed(plan: ClaimPlan) -> list[ColumnElement[Any]]:
    """The columns of a claimed job: DELETE returns the row before the claim."""
    left = {column.name: value for column, value in plan.values}
    return [left[column.name].label(column.name) if column.name in left else column for column in plan.returning]


def _held(jobs: Table, window: CTE, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    """The candidates that still have their version and that no other transaction is claiming.

    A row that another transaction is claiming is a miss: after its commit the version differs. And two batches that wait for each
    other's rows are a deadlock, which takes a second to be detected.
    """
    held = select(jobs.c.id).where(_still(jobs, window), *more).with_for_update(skip_locked=True).cte("held")
    return jobs.c.id == any_(_array_of(held.c.id))


def _still(jobs: Table, window: CTE) -> ColumnElement[bool]:
    """The candidates that still have their version."""
    return and_(
        # The array drives an index, also with the statistics of a table that was empty a moment ago.
        jobs.c.id == any_(_array_of(window.c.id)),
        _among(jobs, select(window.c.id, window.c.version)),
    )


@lru_cache(maxsize=256)
def full_claim(plan: ClaimPlan) -> Any:
    """Read the candidates and claim those that still have their version, in one statement that returns both."""
    jobs = plan.jobs
    window = plan.candidates.cte("candidate")
    unseen = None if plan.unseen is None else plan.unseen.cte("unseen")
    seen = [] if unseen is None else [~select(unseen.c.priority).where(unseen.c.priority < jobs.c.priority).exists()]
    condition = and_(_still(jobs, window), *seen) if plan.locks else _held(jobs, window, *seen)
    taken = update(jobs).where(condition).ordered_values(*plan.values).returning(*plan.returning).cte("taken")
    # Three kinds of rows: jobs won (id), the candidates of each priority (tried, head), priorities that were not read (neither).
    names = [item.key for item in taken.c]
    tried = select(
        *(window.c.priority if name == "priority" else null().label(name) for name in names),
        func.count().label("tried"),
        func.min(window.c.head).label("head"),
    ).group_by(window.c.priority)
    answer = [select(*taken.c, null().label("tried"), null().label("head")), tried]
    if unseen is not None:
        blank = [unseen.c.priority if name == "priority" else null().label(name) for name in names]
        answer.append(select(*blank, null().label("tried"), null().label("head")))
    return union_all(*answer)


@lru_cache(maxsize=64)
def insert_one(jobs: Table, columns: Columns, *, notifies: bool) -> Any:
    """Insert a job with these columns and return its id; ``notifies``: and notify, as :func:`notification` does."""
    new = statements.insert_one(jobs, columns, settable=False, returns=False)
    return new.returning(*_id_and_notice(jobs, notifies=notifies)).execution_options(**{NEVER: True})


@lru_cache(maxsize=256)
def insert_many(jobs: Table, columns: Columns, same: frozenset[str], *, keyed: bool, clock: bool, notifies: bool) -> Any:
    """:func:`insert_one` for many jobs; the ids come in any order.

    One array for each column keeps the text the same for any number of rows; 2 × as fast as VALUES lists. What is the same in all
    rows, as most is in most cases, needs no array.

    :param same: columns with the same value in all rows; the arrays of the others begin with ``all_``.
    :param keyed: some have unique keys: skip those whose key a live job has, and return queue and key with each id. To be ready for
        that costs a third more.
    :param clock: by the database's clock; otherwise there is a parameter ``now``.
    """
    now: ColumnElement[int] = now_us() if clock else bindparam("now", type_=BigInteger)
    kinds: dict[str, Any] = {name: jobs.c[name].type if name in NUMBERS else Text() for name in columns}
    kinds |= {"after": BigInteger(), "not_before": BigInteger()}
    arrays = {name: kind for name, kind in kinds.items() if name not in same}
    given = (
        func.unnest(*(bindparam(f"all_{name}", type_=ARRAY(kind)) for name, kind in arrays.items()))
        .table_valued(*(column(name, kind) for name, kind in arrays.items()), with_ordinality="place", name="given")
        .render_derived(name="given")
    )
    value = {name: bindparam(f"new_{name}", type_=kind) if name in same else given.c[name] for name, kind in kinds.items()}
    due = due_time(now, value["after"], value["not_before"])
    source = select(*(value[name] for name in columns), due, now).order_by(given.c.place)
    new = insert(jobs).from_select([*columns, "available_at", "created_at"], source)
    if not keyed:
        return new.returning(*_id_and_notice(jobs, notifies=notifies))
    key = [jobs.c.queue, jobs.c.unique_key]
    return new.on_conflict_do_nothing(index_elements=key, index_where=jobs.c.unique_key.is_not(None)).returning(jobs.c.id, *key)


def _id_and_notice(jobs: Table, *, notifies: bool) -> list[ColumnElement[Any]]:
    # A subquery that depends on no row runs once.
    return [jobs.c.id, notification().scalar_subquery()] if notifies else [jobs.c.id]


@lru_cache(maxsize=64)
def delete_one(jobs: Table) -> Any:
    """Delete a job whose version still holds."""
    one = and_(jobs.c.id == bindparam("of_id", type_=BigInteger), jobs.c.version == bindparam("of_version", type_=BigInteger))
    return delete(jobs).where(one).returning(jobs.c.id)


@lru_cache(maxsize=64)
def delete_many(jobs: Table) -> Any:
    """Delete jobs whose versions still hold."""
    ids = bindparam("ids", type_=ARRAY(BigInteger))
    return delete(jobs).where(matching(jobs, ids, bindparam("versions", type_=ARRAY(BigInteger)))).returning(jobs.c.id)


@lru_cache(maxsize=64)
def hold(jobs: Table) -> Any:
    """Lock jobs whose versions still hold, in id order."""
    ids, versions = (bindparam(name, type_=ARRAY(BigInteger)) for name in ("ids", "versions"))
    found = select(jobs.c.id, jobs.c.version).where(matching(jobs, ids, versions)).order_by(jobs.c.id)
    return found.with_for_update()


@lru_cache(maxsize=64)
def first_in_groups(jobs: Table, *, locks: bool) -> Any:
    """The first ``most`` jobs of each of the groups ``keys``, with the group's place in this array."""
    keys = func.unnest(bindparam("keys", type_=ARRAY(Text)))
    given = keys.table_valued(column("key", Text), with_ordinality="place", name="given").render_derived(name="given")
    # An equality with the key of a large group would let it read the primary key from its beginning, for the order.
    place = tuple_(jobs.c.group_key, jobs.c.id)
    first = (
        select(jobs.c.id, jobs.c.version, jobs.c.available_at)
        .where(
            jobs.c.queue == bindparam("of_queue", type_=jobs.c.queue.type),
            place > tuple_(given.c.key, literal_column("0")),
            jobs.c.group_key <= given.c.key,
        )
        .order_by(jobs.c.group_key, jobs.c.id)
        .limit(bindparam("most", type_=Integer))
    )
    member = (first.with_for_update() if locks else first).lateral("member")
    return select((given.c.place - 1).label("place"), *member.c).select_from(given.join(member, true()))


def _array_of(item: ColumnElement[int]) -> ColumnElement[Any]:
    return func.array(select(item).scalar_subquery(), type_=ARRAY(BigInteger))


def matching(jobs: Table, ids: ColumnElement[Any], versions: ColumnElement[Any]) -> ColumnElement[bool]:
    """Rows whose ``(id, version)`` is one of the pairs in two arrays."""
    wanted = (
        func.unnest(ids, versions)
        .table_valued(column("id", BigInteger), column("version", BigInteger), name="wanted")
        .render_derived(name="wanted")
    )
    # The array of ids drives an index, also with the statistics of a table that was empty a moment ago: in the order of ids the
    # primary key, or while the table is small the index of the claims or a bitmap of pages in orders of their own.
    return and_(jobs.c.id == any_(ids), _among(jobs, select(wanted.c.id, wanted.c.version)))


def _among(jobs: Table, pairs: Select[Any]) -> ColumnElement[bool]:
    """Whether id and version are one of the pairs. IS TRUE makes the planner use a hash table and not a join that compares all."""
    return tuple_(jobs.c.id, jobs.c.version).in_(pairs).is_(true())


@lru_cache(maxsize=1)
def notification() -> Select[Any]:
    """Notify when the transaction commits; its parameters are those of a :class:`~queue_db.model.Notice`."""
    sent = func.pg_notify(bindparam("channel", type_=String), bindparam("text", type_=String))
    return select(sent).execution_options(**{NEVER: True})
