"""The statements of each layout on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    Update,
    bindparam,
    insert,
    select,
    update,
)

from benchmarks.layouts.statements import VALUES, Claimed, Pairs, Statements
from benchmarks.layouts.tables import Taking
from queue_db.dialects.clock import now_us
from queue_db.dialects.statements import wanted
from queue_db.dialects.transactions import Sender


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
        tx, layout = Sender(connection, self.dialect), self.layout
        if skip:
            tx.begin()
        found = tx.fetch(self.look(skip=skip), values)
        if not found:
            return []
        raised = 0 if layout.taking is Taking.NOTE else 1
        pairs: Pairs = sorted((row[0], row[1]) for row in found)
        if layout.taking is Taking.CHANGE:
            won = tx.execute(self._change(one=len(pairs) == 1), values | wanted(pairs))
        else:
            tx.begin()
            # The rows that still are as they were read; those of a claim with SKIP LOCKED are locked.
            pairs = pairs if skip else self.dialect.hold(tx, layout.waiting, pairs)
            if not pairs:
                return []
            won = tx.execute(self._lease, values | {"of_ids": [job_id for job_id, _ in pairs]})
            if layout.taking is Taking.MOVE:
                self.dialect.delete_returning(tx, layout.waiting, pairs)
        mine = {job_id for job_id, _ in pairs}
        if won < len(pairs):
            leased = tx.fetch(self._read_back, {"of_ids": sorted(mine), "token": values["token"]})
            mine = {job_id for (job_id,) in leased}
        texts = dict(tx.fetch(self._texts, {"of_ids": sorted(mine)})) if layout.narrow and mine else {}
        return [
            Claimed(row[0], row[1] + raised, texts[row[0]] if layout.narrow else row[3], found[0][2])
            for row in found
            if row[0] in mine
        ]

    @lru_cache  # noqa: B019 - as above
    def _change(self, *, one: bool) -> Update:
        waiting = self.layout.waiting
        change = update(waiting).where(self.matching(one=one)).ordered_values(*self._assignments(waiting))
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
        return self._of_ids(select(leased.c.id), leased).where(leased.c.claim_token == VALUES["token"])

    @cached_property
    def _texts(self) -> Any:
        jobs = self.layout.payloads
        return self._of_ids(select(jobs.c.id, jobs.c.payload), jobs)

    def _of_ids(self, rows: Select[Any], table: Table) -> Select[Any]:
        return self.dialect.by_id(rows.where(table.c.id.in_(bindparam("of_ids", expanding=True))), table)

    def complete(self, connection: Connection, pairs: Pairs) -> int:
        tx, layout = Sender(connection, self.dialect), self.layout
        two = layout.taking is Taking.NOTE or layout.narrow
        if two:
            tx.begin()
        first = layout.payloads if layout.taking is Taking.NOTE else layout.leased
        gone = self.dialect.delete_returning(tx, first, pairs)
        if two and gone:
            # The other table has the same versions, or, beside narrow rows, none.
            second = layout.leased if layout.taking is Taking.NOTE else layout.payloads
            again = [(job_id, 0 if layout.narrow else version) for job_id, version in pairs if job_id in gone]
            self.dialect.delete_returning(tx, second, again)
        return len(gone)

    def bring_back(self, connection: Connection, limit: int) -> int:
        tx, layout = Sender(connection, self.dialect), self.layout
        tx.begin()
        pairs = [(row[0], row[1]) for row in tx.fetch(self._ended, {"limit": limit})]
        if not pairs:
            return 0
        tx.execute(self._return, {"of_ids": [job_id for job_id, _ in pairs]})
        self.dialect.delete_returning(tx, layout.leased, pairs)
        return len(pairs)

    @cached_property
    def _ended(self) -> Any:
        leased = self.layout.leased
        found = select(leased.c.id, leased.c.version).where(leased.c.available_at < now_us())
        return found.limit(VALUES["limit"]).with_for_update(skip_locked=True)

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
        tx = Sender(connection, self.dialect)
        if self.layout.narrow:
            tx.begin()
        rows = [(queue, text) for text in payloads]
        _, first = tx.execute_many(self._insertion, ("new_queue", "new_payload"), rows)
        if self.layout.narrow:
            tx.execute(self._beside, {"first": first, "last": first + len(rows) - 1})

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
