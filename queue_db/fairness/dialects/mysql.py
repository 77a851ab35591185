"""Claims by turns on MySQL and MariaDB. Their recursive queries read an index from its beginning at each step; a GROUP BY skips."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import ClaimText, matching, won
from queue_db.dialects.statements import LISTS, kept, wanted
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import CANDIDATE, UNUSED, Ahead, FairDialect, Rows, Search

#: The number of groups whose first jobs a claim reads ahead, if there are so many after the last turn.
READ_AHEAD = 64

#: Seconds for which these jobs are used.
FRESH = 1.0


class MySQLFair(FairDialect):
    """Reads jobs of many groups ahead for several claims: the change checks that they have their versions."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def claim(self, tx: Sender, search: Search, ahead: Ahead) -> tuple[Rows, int]:
        found = self._read_ahead(tx, search, ahead) if search.one_each and not search.weights else ()
        found = found or self.candidates(tx, search)
        taken = self.take(tx, search, found)
        if len(taken) < len(found):
            ahead.rows = []
        return taken, len(found)

    def _read_ahead(self, tx: Sender, search: Search, ahead: Ahead) -> Rows:
        """The first jobs of the next groups; empty if there are fewer groups after the last turn than jobs wanted."""
        limit = search.limit
        if len(search.turns) > 1 and search.parameters["floor_1"] < UNUSED:
            return ()
        if len(ahead.rows) < limit or time.monotonic() > ahead.until or search.claim.nothing_due:
            most = max(READ_AHEAD, limit)
            rows = tx.fetch(search.claim.made(self.first_of_groups), search.values() | {"read": most})
            ahead.rows, ahead.until = list(rows), time.monotonic() + FRESH
            if len(rows) < most:
                ahead.rows = []
                return rows[:limit] if len(rows) >= limit else ()
        found, ahead.rows = ahead.rows[:limit], ahead.rows[limit:]
        return found

    def take(self, tx: Sender, search: Search, found: Rows) -> Rows:
        if not found:
            return ()
        pairs = sorted((row[0], row[1]) for row in found)
        changed = tx.execute(search.claim.made(self.take_these, one=len(pairs) == 1), {**search.parameters, **wanted(pairs)})
        self.lost(len(pairs), changed)
        if not changed:
            return ()
        mine = {"of_ids": [job_id for job_id, _ in pairs], "token": search.parameters["token"]}
        return tx.fetch(search.claim.made(won), mine)

    def groups(self, tx: Sender, search: Search, place: int, most: int) -> Iterator[str]:
        turn, left_out = search.turns[place], set(search.refused)
        given = turn.credit > 0 and turn.group not in left_out
        if given:
            yield turn.group
        values = search.values() | {"limit": most + len(left_out) + 1}
        for ahead in (True, False):
            for (group,) in tx.fetch(search.claim.made(self.next_groups, place=place, ahead=ahead), values):
                if group not in left_out and not (given and group == turn.group):
                    yield group

    def is_refused(self, group: str) -> str:
        return f"json_contains(:refused, json_quote({group}))"

    def indexed(self, claim: ClaimText) -> str:
        return f"{claim.jobs} FORCE INDEX ({claim.name}_fair)"

    def of_range(self, alias: str, place: int) -> str:
        return f"{alias}.grouped_queue = :in_queue AND {alias}.priority = :priority_{place}"

    def by_time(self, alias: str) -> str:
        return f"{alias}.grouped_at, {alias}.id"

    def due(self, claim: ClaimText, alias: str, place: int, group: str) -> str:
        of_group = f"{self.of_range(alias, place)} AND {alias}.group_key = {group}"
        return f"{of_group} AND {alias}.grouped_at >= :floor_{place} AND {alias}.grouped_at <= {claim.now}"

    # --- the statements -----------------------------------------------------------------------------------------------

    def next_groups(self, claim: ClaimText, *, place: int, ahead: bool) -> Executable:
        """Read the groups with due jobs after the cursor, or from the beginning up to the cursor."""
        side = ">" if ahead else "<="
        return kept(self._groups(claim, place, f"{side} :cursor_{place}", "jobs.group_key") + " LIMIT :limit", "group_key")

    def first_of_groups(self, claim: ClaimText) -> Executable:
        """Read the first due job of each group after the cursor."""
        groups = self._groups(claim, 0, "> :cursor_0", "jobs.group_key, min(jobs.grouped_at) AS head")
        head = (
            f"SELECT head.id FROM {claim.table} AS head FORCE INDEX ({claim.name}_fair) WHERE {self.of_range('head', 0)}"
            " AND head.group_key = visit.group_key AND head.grouped_at = visit.head ORDER BY head.id LIMIT 1"
        )
        return kept(
            f"SELECT {columns_of_jobs()} FROM ({groups} LIMIT :read) AS visit JOIN {claim.by_id} ON jobs.id = ({head})"
            " ORDER BY visit.group_key",
            *CANDIDATE,
        )

    def _groups(self, claim: ClaimText, place: int, side: str, columns: str) -> str:
        return (
            f"SELECT {columns} FROM {self.indexed(claim)} WHERE {self.of_range('jobs', place)} AND jobs.group_key {side}"
            f" AND {self.allowed(claim)} GROUP BY jobs.group_key HAVING min(jobs.grouped_at) <= {claim.now} ORDER BY jobs.group_key"
        )

    def take_these(self, claim: ClaimText, *, one: bool) -> Executable:
        """Claim the candidates that still have their version."""
        return kept(f"UPDATE {claim.by_id} SET {claim.set()} WHERE {matching(one=one)}", **LISTS)


def columns_of_jobs() -> str:
    """The columns of a candidate."""
    return ", ".join(f"jobs.{name}" for name in CANDIDATE)
