"""Claims by turns on SQLite. One statement takes a job of each group; the longer turns of fewer groups take three."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import COLUMNS, ClaimText, columns_of
from queue_db.dialects.statements import kept
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import CANDIDATE, FairDialect, Rows, Search


class SQLiteFair(FairDialect):
    """A recursive query steps from group to group."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    reads_ahead: ClassVar[bool] = True
    checks_again: ClassVar[bool] = True
    most_ahead: ClassVar[int] = 256

    def claim_now(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        if not search.one_each:
            tx.begin()  # so that nobody takes the candidates meanwhile
            return super().claim_now(tx, search)
        rows = tx.fetch(search.claim.made(self.claim_one_each), search.values())
        return rows, len(rows)

    def take(self, tx: Sender, search: Search, found: Rows) -> Rows:
        if not found:
            return ()
        values = {**search.parameters, "pairs": "{" + ",".join([f'"{row[0]}":{row[1]}' for row in found]) + "}"}
        return tx.fetch(search.claim.made(self.take_these, one=False), values)

    def first_of_groups(self, tx: Sender, search: Search, after: str, most: int) -> Rows:
        return tx.fetch(search.claim.made(self.next_first_jobs), {**search.parameters, "cursor_0": after, "limit": most})

    def take_lone(self, tx: Sender, search: Search) -> Rows:
        return tx.fetch(search.claim.made(self.claim_lone), search.values())

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

    def take_these(self, claim: ClaimText, *, one: bool) -> Executable:
        """Claim the candidates that still have their version, which are in the parameter ``pairs``."""
        job = 'CAST(given."key" AS BIGINT)'
        version = f"(SELECT held.version FROM {claim.table} AS held WHERE held.id = {job})"
        return self._claimed(claim, "", f"(SELECT {job} AS id FROM json_each(:pairs) AS given WHERE {version} = given.value)")

    def claim_lone(self, claim: ClaimText) -> Executable:
        """Claim the first due jobs of the group at the cursor, unless another group has jobs."""
        return self._claimed(
            claim,
            "",
            f"(SELECT head.id FROM {claim.table} AS head WHERE {self.due(claim, 'head', 0, ':cursor_0')}"
            f" AND {self.alone(claim, ':cursor_0')} ORDER BY {self.by_time('head')} LIMIT :limit)",
        )

    def next_first_jobs(self, claim: ClaimText) -> Executable:
        """Read the first due job of each of the next groups."""

        # The first entry of a group in the index is its first due job, if any is due.
        def entry(after: str) -> str:
            return (
                f"(SELECT next.id FROM {claim.table} AS next WHERE {self.of_range('next', 0)} AND next.group_key > {after}"
                " ORDER BY next.group_key, next.available_at, next.id LIMIT 1)"
            )

        def of_visit(expression: str) -> str:
            return f"(SELECT {expression} FROM {claim.table} AS here WHERE here.id = visit.id)"

        found = f"visit.found + {of_visit(f'here.available_at <= {claim.now}')}"
        return kept(
            f"WITH RECURSIVE visit (id, found) AS (SELECT {entry(':cursor_0')}, 0 UNION ALL"
            f" SELECT {entry(of_visit('here.group_key'))}, {found} FROM visit WHERE visit.id IS NOT NULL AND {found} < :limit)"
            f" SELECT {columns_of('jobs', CANDIDATE)} FROM visit CROSS JOIN {claim.jobs}"
            f" WHERE jobs.id = visit.id AND jobs.available_at <= {claim.now} LIMIT :limit",
            *CANDIDATE,
        )

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
        used = self.used(claim, place)
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
                f"SELECT {self.next_group(claim, place, f'{of}.k')}, {head}, {found} FROM {of}"
                f" WHERE {of}.k IS NOT NULL AND {found} < :limit{where}"
            )

        first = f"CASE WHEN {credit} > 0 THEN {cursor} ELSE {self.next_group(claim, place, cursor)} END"
        beginning = self.next_group(claim, place, "''")
        return (
            f"{ahead} (k, id, found) AS (SELECT CASE WHEN {used} THEN {first} END, NULL, 0 UNION ALL {step(ahead, '')}),"
            f" {behind} (k, id, found) AS (SELECT CASE WHEN {used} AND {before} < :limit THEN {beginning} END, NULL, {before}"
            f" UNION ALL {step(behind, in_time)})"
        )
