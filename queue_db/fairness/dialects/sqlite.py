"""Claims by turns on SQLite. One statement takes a job of each group; the longer turns of fewer groups take three."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import COLUMNS, ClaimText
from queue_db.dialects.statements import kept
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import UNUSED, FairDialect, Rows, Search, encoded


class SQLiteFair(FairDialect):
    """A recursive query steps from group to group."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def claim(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        if not search.one_each:
            return super().claim(tx, search)
        rows = tx.fetch(search.claim.made(self.claim_one_each), search.values())
        return rows, len(rows)

    def take(self, tx: Sender, search: Search, found: Rows) -> Rows:
        if not found:
            return ()
        values = {**search.parameters, "ids": encoded([row[0] for row in found])}
        return tx.fetch(search.claim.made(self.take_these), values)

    def groups(self, tx: Sender, search: Search, place: int, most: int) -> Iterator[str]:
        values = search.values() | {"limit": most}
        for (group,) in tx.fetch(search.claim.made(self.next_groups, place=place), values):
            yield group

    def is_refused(self, group: str) -> str:
        return f"{group} IN (SELECT one.value FROM json_each(:refused) AS one)"

    # --- the statements -----------------------------------------------------------------------------------------------

    def claim_one_each(self, claim: ClaimText) -> Executable:
        """Claim the first job of each of the next groups."""
        ranges = range(claim.shape.ranges)
        steps = ", ".join(self.steps(claim, place, refuses=False) for place in ranges)
        ids = " UNION ALL ".join(self.found(place) for place in ranges)
        return self._claimed(claim, f"WITH RECURSIVE {steps} ", f"(SELECT id FROM ({ids}) AS found LIMIT :limit)")

    def take_these(self, claim: ClaimText) -> Executable:
        """Claim the jobs in the parameter ``ids``. They are unchanged, since the transaction holds the only write lock."""
        return self._claimed(claim, "", "(SELECT one.value AS id FROM json_each(:ids) AS one)")

    def _claimed(self, claim: ClaimText, with_: str, ids: str) -> Executable:
        # An INSERT that updates existing rows, as all claims of SQLite are.
        return kept(
            f"{with_}INSERT INTO {claim.jobs} (id, queue, payload) SELECT candidate.id, '', '' FROM {ids} AS candidate"
            f" WHERE {self.allowed(claim)} ON CONFLICT (id) DO UPDATE SET {claim.set()} RETURNING {', '.join(COLUMNS)}",
            *COLUMNS,
        )

    def next_groups(self, claim: ClaimText, *, place: int) -> Executable:
        """Read the groups with due jobs, in the order of their turns."""
        return kept(
            f"WITH RECURSIVE {self.steps(claim, place, refuses=True)} SELECT jobs.group_key FROM ({self.found(place)}) AS found"
            f" CROSS JOIN {claim.jobs} WHERE jobs.id = found.id AND {self.allowed(claim)} LIMIT :limit",
            "group_key",
        )

    def found(self, place: int) -> str:
        """The first due job of each group."""
        return f"SELECT id FROM ahead_{place} WHERE id IS NOT NULL UNION ALL SELECT id FROM behind_{place} WHERE id IS NOT NULL"

    def steps(self, claim: ClaimText, place: int, *, refuses: bool) -> str:
        """The queries that step over the groups of a range: ``ahead`` from the last turn on, ``behind`` from the beginning.

        Each row has a group, and the first due job of the group in the row before. They end when enough jobs are found.
        """
        ahead, behind, cursor, credit = f"ahead_{place}", f"behind_{place}", f":cursor_{place}", f":start_credit_{place}"
        used = f":floor_{place} < {UNUSED}"
        in_time = f" AND ({behind}.k < {cursor} OR ({behind}.k = {cursor} AND {credit} <= 0))"
        before = f"(SELECT count({ahead}.id) FROM {ahead})"

        def step(of: str, where: str) -> str:
            head = (
                f"(SELECT head.id FROM {claim.table} AS head WHERE {self.due(claim, 'head', place, f'{of}.k')}"
                f" ORDER BY {self.by_time('head')} LIMIT 1)"
            )
            if refuses:
                head = f"CASE WHEN NOT {self.is_refused(f'{of}.k')} THEN {head} END"
            found = f"{of}.found + ({of}.id IS NOT NULL)"
            return (
                f"SELECT {self._next(claim, place, f'{of}.k')}, {head}, {found} FROM {of}"
                f" WHERE {of}.k IS NOT NULL AND {found} < :limit{where}"
            )

        first = f"CASE WHEN {credit} > 0 THEN {cursor} ELSE {self._next(claim, place, cursor)} END"
        beginning = self._next(claim, place, "''")
        return (
            f"{ahead} (k, id, found) AS (SELECT CASE WHEN {used} THEN {first} END, NULL, 0 UNION ALL {step(ahead, '')}),"
            f" {behind} (k, id, found) AS (SELECT CASE WHEN {used} AND {before} < :limit THEN {beginning} END, NULL, {before}"
            f" UNION ALL {step(behind, in_time)})"
        )

    def _next(self, claim: ClaimText, place: int, group: str) -> str:
        """The next group after ``group``; NULL: there is none."""
        return (
            f"(SELECT next.group_key FROM {claim.table} AS next WHERE {self.of_range('next', place)}"
            f" AND next.group_key > {group} ORDER BY next.group_key LIMIT 1)"
        )
