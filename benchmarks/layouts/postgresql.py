"""The statements of each layout on PostgreSQL: one for each verb."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Text,
    any_,
    bindparam,
    column,
    delete,
    func,
    insert,
    null,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql

from benchmarks.layouts.statements import VALUES, Claimed, Pairs, Statements
from benchmarks.layouts.tables import Taking
from queue_db.dialects.clock import now_us
from queue_db.dialects.transactions import Sender


class PostgreSQLStatements(Statements):
    """One statement for each, with WITH."""

    def claim(self, connection: Connection, values: dict[str, Any], *, skip: bool) -> list[Claimed]:
        found = Sender(connection, self.dialect).fetch(self._claim(skip=skip), values)
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
        return len(Sender(connection, self.dialect).fetch(self._completion, self.given(pairs)))

    @cached_property
    def _completion(self) -> Any:
        # A lease in another table: first the job, which every claim and completion locks first.
        layout = self.layout
        first, second = layout.leased, layout.payloads
        if layout.taking is Taking.NOTE:
            first, second = second, first
        ended = delete(first).where(self.matching()).returning(first.c.id)
        if first is second or (layout.taking is Taking.MOVE and not layout.narrow):
            return ended
        gone = ended.cte("gone")
        return delete(second).where(second.c.id == any_(_ids(gone))).returning(second.c.id)

    def bring_back(self, connection: Connection, limit: int) -> int:
        return len(Sender(connection, self.dialect).fetch(self._return, {"limit": limit}))

    @cached_property
    def _return(self) -> Any:
        layout, leased, waiting = self.layout, self.layout.leased, self.layout.waiting
        free = [] if layout.taking is not Taking.CHANGE else [leased.c.claim_token.is_not(None)]
        ended = select(leased.c.id).where(leased.c.available_at < now_us(), *free).order_by(leased.c.available_at)
        ended_ids = ended.limit(VALUES["limit"]).with_for_update(skip_locked=True).cte("ended")
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
        source = select(VALUES["in_queue"], given.render_derived(name="given").c.payload)
        made = insert(jobs).from_select(["queue", "payload"], source)
        if not self.layout.narrow:
            return made
        new = made.returning(jobs.c.id, jobs.c.queue, jobs.c.priority, jobs.c.available_at).cte("new")
        return insert(waiting).from_select([one.name for one in new.c], select(*new.c))

    def given(self, pairs: Pairs) -> dict[str, Any]:
        ordered = sorted(pairs)
        return {"ids": [job_id for job_id, _ in ordered], "versions": [version for _, version in ordered]}


def _ids(rows: Any) -> ColumnElement[Any]:
    return func.array(select(rows.c.id).scalar_subquery(), type_=ARRAY(BigInteger))
