"""The statements of each layout: enqueue, claim, complete, extend, and bring back what has expired. In the way of each database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    column,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql

from benchmarks.layout_tables import Layout, Taking
from queue_db.dialects import Dialect
from queue_db.dialects import postgresql_claim as kept
from queue_db.dialects.clock import now_us
from queue_db.dialects.statements import matching, wanted

#: Below every low-water mark.
BEGINNING = -(2**62)

Pairs = Sequence[tuple[int, int]]

_VALUES: dict[str, Any] = {
    name: bindparam(name, type_=kind)
    for name, kind in {
        "in_queue": String(100),
        "floor": BigInteger(),
        "limit": Integer(),
        "start": Integer(),
        "lease": BigInteger(),
        "token": String(36),
        "by_worker": String(100),
    }.items()
}


@dataclass(frozen=True)
class Claimed:
    """A job that was claimed.

    :param mark: where it stands in the order of claims.
    """

    id: int
    version: int
    payload: str
    mark: int


class Statements:
    """The statements of ``layout``. Each runs in a transaction of ``Database.run`` with ``direct=True``: it commits once."""

    def __init__(self, layout: Layout, dialect: Dialect) -> None:
        self.layout, self.dialect = layout, dialect

    @lru_cache  # noqa: B019 - one object lives as long as its process
    def look(self, *, skip: bool) -> Select[Any]:
        """Read the candidates of a claim."""
        rows, order = self.layout.waiting, [self.layout.waiting.c[name] for name in self.layout.order]
        found = select(rows).where(
            rows.c.queue == _VALUES["in_queue"],
            rows.c.priority == 0,
            order[0] >= _VALUES["floor"],
            rows.c.available_at <= now_us(),
            *self._free(),
        )
        found = found.order_by(*dict.fromkeys(order)).limit(_VALUES["limit"]).offset(_VALUES["start"])
        return found.with_for_update(skip_locked=True) if skip else found

    def _free(self) -> list[ColumnElement[bool]]:
        """What distinguishes a waiting row from a leased one, where it is not its due time."""
        if self.layout.taking is Taking.NOTE:
            leased = self.layout.leased
            return [~select(leased.c.id).where(leased.c.id == self.layout.waiting.c.id).exists()]
        return [self.layout.waiting.c.claim_token.is_(None)] if self.layout.name == "partial" else []

    def changed(self, rows: Any) -> dict[str, Any]:
        """What a claim sets, as the product does."""
        return {
            "due_at": rows.c.available_at,
            "available_at": now_us() + _VALUES["lease"],
            # With a lease in another table the job's version is that of its next lease, and whoever ends the lease raises it.
            "version": rows.c.version + (0 if self.layout.taking is Taking.NOTE else 1),
            "attempts": rows.c.attempts + 1,
            "claim_token": _VALUES["token"],
            "worker": _VALUES["by_worker"],
        }

    def leased_from(self, rows: Any) -> tuple[list[str], list[Any]]:
        """Names and values of a row of ``leased``, for a row of ``waiting``."""
        changed = self.changed(rows)
        names = [one.name for one in self.layout.leased.c]
        return names, [changed[name] if name in changed else rows.c[name] for name in names]

    def waiting_from(self, rows: Any) -> tuple[list[str], list[Any]]:
        """Names and values of a row of ``waiting``, for a row of ``leased`` that has expired: it is due now."""
        changed = {"available_at": now_us(), "claim_token": null()}
        names = [one.name for one in self.layout.waiting.c if one.name in self.layout.leased.c]
        return names, [changed[name] if name in changed else rows.c[name] for name in names]

    def claim(self, connection: Connection, values: dict[str, Any], *, skip: bool) -> list[Claimed]:
        """Lease candidates; the fence of each is (id, version)."""
        raise NotImplementedError

    def complete(self, connection: Connection, pairs: Pairs) -> int:
        """Delete jobs whose lease still holds; return how many."""
        raise NotImplementedError

    def bring_back(self, connection: Connection, limit: int) -> int:
        """Make jobs due whose lease has ended; return how many."""
        raise NotImplementedError

    def enqueue(self, connection: Connection, queue: str, payloads: Sequence[str]) -> None:
        """Insert jobs that are due."""
        raise NotImplementedError

    def due(self, connection: Connection, queue: str) -> bool:
        """Whether a claim would find a candidate."""
        values = {"in_queue": queue, "floor": BEGINNING, "limit": 1, "start": 0}
        return bool(self.dialect.fetch(connection, self.look(skip=False), values))

    def extend(self, connection: Connection, pairs: Pairs, lease: int) -> int:
        """Move the end of leases; return how many still held."""
        return self.dialect.execute(connection, self._extension, {"lease": lease} | self.given(pairs))

    @cached_property
    def _extension(self) -> Any:
        rows = self.layout.leased
        return self.by_id(update(rows).where(self.matching(rows)).values(available_at=now_us() + _VALUES["lease"]))

    def by_id(self, statement: Any) -> Any:
        """The statement with a hint, where the database needs one."""
        return self.dialect.by_id(statement, self.layout.leased)

    def matching(self, rows: Table) -> ColumnElement[bool]:
        """Rows whose (id, version) is one of :meth:`given`."""
        return matching(rows, one=False)

    def given(self, pairs: Pairs) -> dict[str, Any]:
        """The parameters of :meth:`matching`."""
        ordered = sorted(pairs)
        return {"of_ids": [job_id for job_id, _ in ordered], "of_pairs": ordered}


class PostgreSQLStatements(Statements):
    """One statement for each, with WITH."""

    def claim(self, connection: Connection, values: dict[str, Any], *, skip: bool) -> list[Claimed]:
        found = self.dialect.fetch(connection, self._claim(skip=skip), values)
        return [Claimed(row[0], row[1], row[2], row[3]) for row in found]

    @lru_cache  # noqa: B019 - as above
    def _claim(self, *, skip: bool) -> Any:
        layout, waiting = self.layout, self.layout.waiting
        window = self.look(skip=skip).with_only_columns(waiting.c.id, waiting.c.version, waiting.c[layout.order[0]].label("mark"))
        candidate = window.cte("candidate")
        chosen = [waiting.c.id == any_(_ids(candidate))]
        if not skip:
            chosen.append(tuple_(waiting.c.id, waiting.c.version).in_(select(candidate.c.id, candidate.c.version)).is_(true()))
        head = select(func.min(candidate.c.mark)).scalar_subquery().label("head")
        if layout.taking is Taking.CHANGE:
            change = update(waiting).where(*chosen).values(self.changed(waiting))
            return change.returning(waiting.c.id, waiting.c.version, waiting.c.payload, head)
        if layout.taking is Taking.MOVE:
            gone: Any = delete(waiting).where(*chosen).returning(*waiting.c).cte("gone")
            names, items = self.leased_from(gone)
            taken = insert(layout.leased).from_select(names, select(*items))
        else:
            # The job is locked: otherwise one that is completed meanwhile would get a lease.
            gone = select(*waiting.c).where(*chosen).order_by(waiting.c.id).with_for_update(skip_locked=True).cte("held")
            names, items = self.leased_from(gone)
            taken = postgresql.insert(layout.leased).from_select(names, select(*items)).on_conflict_do_nothing()
        if not layout.narrow and layout.taking is Taking.MOVE:
            return taken.returning(layout.leased.c.id, layout.leased.c.version, layout.leased.c.payload, head)
        won = taken.returning(layout.leased.c.id, layout.leased.c.version).cte("won")
        jobs = layout.payloads
        return select(won.c.id, won.c.version, jobs.c.payload, head).select_from(won.join(jobs, jobs.c.id == won.c.id))

    def complete(self, connection: Connection, pairs: Pairs) -> int:
        return len(self.dialect.fetch(connection, self._completion, self.given(pairs)))

    @cached_property
    def _completion(self) -> Any:
        # A lease in another table: first the job, which every claim and completion locks first.
        layout = self.layout
        first, second = layout.leased, layout.payloads
        if layout.taking is Taking.NOTE:
            first, second = second, first
        ended = delete(first).where(self.matching(first)).returning(first.c.id)
        if first is second or (layout.taking is Taking.MOVE and not layout.narrow):
            return ended
        gone = ended.cte("gone")
        return delete(second).where(second.c.id == any_(_ids(gone))).returning(second.c.id)

    def bring_back(self, connection: Connection, limit: int) -> int:
        return len(self.dialect.fetch(connection, self._return, {"limit": limit}))

    @cached_property
    def _return(self) -> Any:
        layout, leased, waiting = self.layout, self.layout.leased, self.layout.waiting
        free = [] if layout.taking is not Taking.CHANGE else [leased.c.claim_token.is_not(None)]
        ended = select(leased.c.id).where(leased.c.available_at < now_us(), *free).order_by(leased.c.available_at)
        ended_ids = ended.limit(_VALUES["limit"]).with_for_update(skip_locked=True).cte("ended")
        here = leased.c.id == any_(_ids(ended_ids))
        if layout.taking is Taking.CHANGE:
            return update(leased).where(here).values(claim_token=null(), available_at=now_us()).returning(leased.c.id)
        gone: Any = delete(leased).where(here).returning(*leased.c).cte("gone")
        if layout.taking is Taking.NOTE:
            again = {"version": waiting.c.version + 1, "attempts": waiting.c.attempts + 1, "available_at": now_us()}
            return update(waiting).where(waiting.c.id == any_(_ids(gone))).values(again).returning(waiting.c.id)
        names, items = self.waiting_from(gone)
        return insert(waiting).from_select(names, select(*items)).returning(waiting.c.id)

    def enqueue(self, connection: Connection, queue: str, payloads: Sequence[str]) -> None:
        connection.execute(self._insertion, {"in_queue": queue, "texts": list(payloads)})

    @cached_property
    def _insertion(self) -> Any:
        jobs, waiting = self.layout.payloads, self.layout.waiting
        given = func.unnest(bindparam("texts", type_=ARRAY(Text))).table_valued(column("payload", Text), name="given")
        source = select(_VALUES["in_queue"], given.render_derived(name="given").c.payload)
        made = insert(jobs).from_select(["queue", "payload"], source)
        if not self.layout.narrow:
            return made
        new = made.returning(jobs.c.id, jobs.c.queue, jobs.c.priority, jobs.c.available_at).cte("new")
        return insert(waiting).from_select([one.name for one in new.c], select(*new.c))

    def matching(self, rows: Table) -> ColumnElement[bool]:
        return kept.matching(rows, bindparam("ids", type_=ARRAY(BigInteger)), bindparam("versions", type_=ARRAY(BigInteger)))

    def given(self, pairs: Pairs) -> dict[str, Any]:
        ordered = sorted(pairs)
        return {"ids": [job_id for job_id, _ in ordered], "versions": [version for _, version in ordered]}


class PortableStatements(Statements):
    """Several statements, in a transaction where a claim or a completion changes two tables: MySQL and MariaDB."""

    @lru_cache  # noqa: B019 - as above
    def look(self, *, skip: bool) -> Select[Any]:
        waiting = self.layout.waiting
        payload = [] if self.layout.narrow else [waiting.c.payload]
        found = (
            super()
            .look(skip=skip)
            .with_only_columns(waiting.c.id, waiting.c.version, waiting.c[self.layout.order[0]].label("mark"), *payload)
        )
        return found.with_hint(waiting, f"FORCE INDEX ({self.layout.payloads.name}_claim)")

    def claim(self, connection: Connection, values: dict[str, Any], *, skip: bool) -> list[Claimed]:
        sql, layout = self.dialect, self.layout
        if skip:
            sql.begin(connection)
        found = sql.fetch(connection, self.look(skip=skip), values)
        if not found:
            return []
        raised = 0 if layout.taking is Taking.NOTE else 1
        pairs: Pairs = sorted((row[0], row[1]) for row in found)
        if layout.taking is Taking.CHANGE:
            won = sql.execute(connection, self._change(one=len(pairs) == 1), values | wanted(pairs))
        else:
            sql.begin(connection)
            # The rows that still are as they were read; those of a claim with SKIP LOCKED are locked.
            pairs = pairs if skip else sql.hold(connection, layout.waiting, pairs)
            if not pairs:
                return []
            won = sql.execute(connection, self._lease, values | {"of_ids": [job_id for job_id, _ in pairs]})
            if layout.taking is Taking.MOVE:
                sql.delete_returning(connection, layout.waiting, pairs)
        mine = {job_id for job_id, _ in pairs}
        if won < len(pairs):
            leased = sql.fetch(connection, self._read_back, {"of_ids": sorted(mine), "token": values["token"]})
            mine = {job_id for (job_id,) in leased}
        texts = dict(sql.fetch(connection, self._texts, {"of_ids": sorted(mine)})) if layout.narrow and mine else {}
        return [
            Claimed(row[0], row[1] + raised, texts[row[0]] if layout.narrow else row[3], found[0][2])
            for row in found
            if row[0] in mine
        ]

    @lru_cache  # noqa: B019 - as above
    def _change(self, *, one: bool) -> Update:
        waiting = self.layout.waiting
        change = update(waiting).where(matching(waiting, one=one)).ordered_values(*self._assignments(waiting))
        return self.dialect.by_id(change, waiting)

    def _assignments(self, rows: Table) -> list[tuple[ColumnElement[Any], Any]]:
        # In this order: MySQL assigns from left to right.
        return [(rows.c[name], value) for name, value in self.changed(rows).items()]

    @cached_property
    def _lease(self) -> Any:
        names, items = self.leased_from(self.layout.waiting)
        source = self._of_ids(select(*items), self.layout.waiting)
        made = insert(self.layout.leased).from_select(names, source)
        return made.prefix_with("IGNORE") if self.layout.taking is Taking.NOTE else made

    @cached_property
    def _read_back(self) -> Any:
        leased = self.layout.leased
        return self._of_ids(select(leased.c.id), leased).where(leased.c.claim_token == _VALUES["token"])

    @cached_property
    def _texts(self) -> Any:
        jobs = self.layout.payloads
        return self._of_ids(select(jobs.c.id, jobs.c.payload), jobs)

    def _of_ids(self, rows: Select[Any], table: Table) -> Select[Any]:
        return self.dialect.by_id(rows.where(table.c.id.in_(bindparam("of_ids", expanding=True))), table)

    def complete(self, connection: Connection, pairs: Pairs) -> int:
        layout = self.layout
        two = layout.taking is Taking.NOTE or layout.narrow
        if two:
            self.dialect.begin(connection)
        first = layout.payloads if layout.taking is Taking.NOTE else layout.leased
        gone = self.dialect.delete_returning(connection, first, pairs)
        if two and gone:
            # The other table has the same versions, or, beside narrow rows, none.
            second = layout.leased if layout.taking is Taking.NOTE else layout.payloads
            again = [(job_id, 0 if layout.narrow else version) for job_id, version in pairs if job_id in gone]
            self.dialect.delete_returning(connection, second, again)
        return len(gone)

    def bring_back(self, connection: Connection, limit: int) -> int:
        sql, layout = self.dialect, self.layout
        sql.begin(connection)
        pairs = [(row[0], row[1]) for row in sql.fetch(connection, self._ended, {"limit": limit})]
        if not pairs:
            return 0
        sql.execute(connection, self._return, {"of_ids": [job_id for job_id, _ in pairs]})
        sql.delete_returning(connection, layout.leased, pairs)
        return len(pairs)

    @cached_property
    def _ended(self) -> Any:
        leased = self.layout.leased
        found = select(leased.c.id, leased.c.version).where(leased.c.available_at < now_us()).order_by(leased.c.available_at)
        hint = f"FORCE INDEX ({self.layout.payloads.name}_leased_end)"
        return found.limit(_VALUES["limit"]).with_for_update(skip_locked=True).with_hint(leased, hint)

    @cached_property
    def _return(self) -> Any:
        leased, waiting = self.layout.leased, self.layout.waiting
        if self.layout.taking is Taking.NOTE:
            again = {"version": waiting.c.version + 1, "attempts": waiting.c.attempts + 1, "available_at": now_us()}
            of_ids = waiting.c.id.in_(bindparam("of_ids", expanding=True))
            return self.dialect.by_id(update(waiting).where(of_ids).values(again), waiting)
        names, items = self.waiting_from(leased)
        return insert(waiting).from_select(names, self._of_ids(select(*items), leased))

    def enqueue(self, connection: Connection, queue: str, payloads: Sequence[str]) -> None:
        if self.layout.narrow:
            self.dialect.begin(connection)
        rows = [(queue, text) for text in payloads]
        _, first = self.dialect.execute_many(connection, self._insertion, ("new_queue", "new_payload"), rows)
        if self.layout.narrow:
            self.dialect.execute(connection, self._beside, {"first": first, "last": first + len(rows) - 1})

    @cached_property
    def _insertion(self) -> Any:
        jobs = self.layout.payloads
        return insert(jobs).values(queue=bindparam("new_queue"), payload=bindparam("new_payload"))

    @cached_property
    def _beside(self) -> Any:
        jobs = self.layout.payloads
        names = ["id", "queue", "priority", "available_at"]
        source = select(*(jobs.c[name] for name in names)).where(jobs.c.id.between(bindparam("first"), bindparam("last")))
        return insert(self.layout.waiting).from_select(names, source)


def fill(layout: Layout, connection: Connection, numbers: Any, queue: str, first: int, payload: str) -> None:
    """Insert a job for each of ``numbers``, a selectable with a column ``n``; they are due a microsecond apart, from ``first`` on."""
    jobs, waiting = layout.payloads, layout.waiting
    source = select(literal(queue), literal(payload, Text), literal(first, BigInteger) + numbers.c.n)
    before = connection.execute(select(func.coalesce(func.max(jobs.c.id), 0))).scalar_one()
    connection.execute(insert(jobs).from_select(["queue", "payload", "available_at"], source))
    if layout.narrow:
        names = ["id", "queue", "priority", "available_at"]
        new = select(*(jobs.c[name] for name in names)).where(jobs.c.id > before)
        connection.execute(insert(waiting).from_select(names, new))


def statements(layout: Layout, dialect: Dialect) -> Statements:
    """The statements of a layout for this database."""
    return (PostgreSQLStatements if "postgresql" in dialect.names else PortableStatements)(layout, dialect)


def _ids(rows: Any) -> ColumnElement[Any]:
    return func.array(select(rows.c.id).scalar_subquery(), type_=ARRAY(BigInteger))
