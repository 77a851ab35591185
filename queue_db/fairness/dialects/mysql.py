"""Claims by turns on MySQL and MariaDB. Their recursive queries read an index from its beginning at each step; a GROUP BY skips."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import ClaimText, columns_of, matching, won
from queue_db.dialects.mysql_server import is_mariadb
from queue_db.dialects.statements import LISTS, kept, wanted
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import ARMS, CANDIDATE, UNUSED, FairDialect, Rows, Search

#: The number of groups whose first jobs a claim reads ahead, if there are so many after the last turn.
READ_AHEAD = 64

#: Seconds for which these jobs are used.
FRESH = 1.0

#: How many entries of the index MariaDB reads at a time.
WINDOW = 320

# A text after all groups.
_LAST = "\U0010ffff"


class MySQLFair(FairDialect):
    """Reads jobs of many groups ahead for several claims: the change checks that they have their versions."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def claim(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        found = self._read_ahead(tx, search) if search.one_each and not search.weights else ()
        found = found or self.candidates(tx, search)
        taken = self.take(tx, search, found)
        if len(taken) < len(found):
            search.ahead.rows = []
        return taken, len(found)

    def _read_ahead(self, tx: Sender, search: Search) -> Rows:
        """The first jobs of the next groups; empty if there are fewer groups after the last turn than jobs wanted."""
        limit, ahead = search.limit, search.ahead
        if len(search.turns) > 1 and search.parameters["floor_1"] < UNUSED:
            return ()
        if time.monotonic() < ahead.short_until:
            return ()
        if len(ahead.rows) < limit or time.monotonic() > ahead.until or search.claim.nothing_due:
            most, windowed = max(READ_AHEAD, limit), is_mariadb(tx.connection.dialect)
            statement = search.claim.made(self.first_of_groups, windowed=windowed)
            rows = tx.fetch(statement, search.values() | {"read": 10 * most, "limit": most})
            ahead.rows, ahead.until = list(rows), time.monotonic() + FRESH
            if len(rows) < READ_AHEAD:
                ahead.rows, ahead.short_until = [], ahead.until
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
        turn, skip = search.turns[place], set(search.refused)
        if turn.credit > 0 and turn.group not in skip:
            yield turn.group
            skip.add(turn.group)
        if not is_mariadb(tx.connection.dialect):
            values = search.values() | {"limit": most + len(skip) + 1}
            found = [group for group, due in tx.fetch(search.claim.made(self.next_groups, place=place), values) if due]
        else:
            found = self._all_groups(tx, search, place)
            ahead_ = [group for group in found if group > turn.group]
            found = [*ahead_, *found[: len(found) - len(ahead_)]]
        yield from (group for group in found if group not in skip)

    def _all_groups(self, tx: Sender, search: Search, place: int) -> list[str]:
        """The groups with due jobs on MariaDB, in order; with many groups, not all of them.

        The first look reads a window of the index after another. If it finds few groups, the next look reads an entry after each
        known group, which is the next known group or a new one.
        """
        ahead, cursor, priority = search.ahead, search.turns[place].group, search.parameters[f"priority_{place}"]
        known = ahead.known.get(priority, [])
        if known:
            bounds = ["", *known, _LAST]
            arms = next(size for size in ARMS if size >= len(bounds) - 1)
            bounds += [_LAST] * (arms + 1 - len(bounds))
            values = {**search.parameters} | {f"key_{place}": bound for place, bound in enumerate(bounds)}
            rows = tx.fetch(search.claim.made(self.after_groups, place=place, arms=arms), values)
            there = sorted({group for group, _ in rows})
            ahead.known[priority] = there if len(there) < ARMS[-1] else []
            return sorted(group for group, due in rows if due)
        found: dict[str, bool] = {}
        for lap, (after, to) in enumerate(((cursor, _LAST), ("", cursor))):
            rows = [(after, 0, WINDOW)]
            while rows and sum(row[2] for row in rows) >= WINDOW and (lap == 0 or rows[-1][0] < to):
                values = search.values() | {"after": rows[-1][0], "to": to, "read": WINDOW}
                rows = tx.fetch(search.claim.made(self.window_of_groups, place=place), values)
                found |= {group: bool(due) for group, due, _ in rows}
                if sum(found.values()) >= search.limit + len(search.refused):
                    return sorted(group for group, due in found.items() if due)
        ahead.known[priority] = sorted(found) if len(found) < ARMS[-1] else []
        return sorted(group for group, due in found.items() if due)

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

    def next_groups(self, claim: ClaimText, *, place: int) -> Executable:
        """Read groups, and whether they have due jobs: those after the cursor, then those up to it."""
        arms = [
            f"(SELECT {lap} AS lap, group_key, min(grouped_at) <= {claim.now} AS due"
            f" FROM {self._groups(claim, place, f'jobs.group_key {side} :cursor_{place}', False)} LIMIT :limit)"
            for lap, side in enumerate((">", "<="))
        ]
        return kept(f"SELECT group_key, due FROM ({' UNION ALL '.join(arms)}) AS laps ORDER BY lap, group_key", "group_key", "due")

    def window_of_groups(self, claim: ClaimText, *, place: int) -> Executable:
        """Read groups, whether they have due jobs, and how many entries of the index each has in the window."""
        groups = self._groups(claim, place, "jobs.group_key > :after AND jobs.group_key <= :to", True)
        return kept(
            f"SELECT group_key, min(grouped_at) <= {claim.now} AS due, count(*) AS entries FROM {groups}",
            "group_key",
            "due",
            "entries",
        )

    def after_groups(self, claim: ClaimText, *, place: int, arms: int) -> Executable:
        """Read the first group in each span between two of the groups in the parameters ``key_…``, and whether it has due jobs."""
        queries = [
            f"SELECT * FROM (SELECT jobs.group_key, jobs.grouped_at <= {claim.now} AS due FROM {self.indexed(claim)}"
            f" WHERE {self.of_range('jobs', place)} AND jobs.group_key > :key_{arm} AND jobs.group_key <= :key_{arm + 1}"
            f" AND {self.allowed(claim)} ORDER BY jobs.group_key, jobs.grouped_at, jobs.id LIMIT 1) AS span_{arm}"
            for arm in range(arms)
        ]
        return kept(" UNION ALL ".join(queries), "group_key", "due")

    def first_of_groups(self, claim: ClaimText, *, windowed: bool) -> Executable:
        """Read the first due job of each group after the cursor."""
        groups = self._groups(claim, 0, "jobs.group_key > :cursor_0", windowed)
        head = (
            f"SELECT head.id FROM {claim.table} AS head FORCE INDEX ({claim.name}_fair) WHERE {self.of_range('head', 0)}"
            " AND head.group_key = visit.group_key AND head.grouped_at = visit.head ORDER BY head.id LIMIT 1"
        )
        visit = f"SELECT group_key, min(grouped_at) AS head FROM {groups} LIMIT :limit"
        return kept(
            f"SELECT {columns_of('jobs', CANDIDATE)} FROM ({visit}) AS visit JOIN {claim.by_id} ON jobs.id = ({head})"
            f" WHERE visit.head <= {claim.now} ORDER BY visit.group_key",
            *CANDIDATE,
        )

    def _groups(self, claim: ClaimText, place: int, side: str, windowed: bool) -> str:
        """The FROM, WHERE, GROUP BY and ORDER BY clauses that read groups.

        :param windowed: read :data:`WINDOW` entries of the index, since MariaDB does not skip from group to group.
        """
        prefix = "grouped_queue, priority, group_key"
        where = f"{self.indexed(claim)} WHERE {self.of_range('jobs', place)} AND {side} AND {self.allowed(claim)}"
        if not windowed:
            return f"{where} GROUP BY {prefix} ORDER BY {prefix}"
        entries = f"SELECT jobs.group_key, jobs.grouped_at FROM {where} ORDER BY {prefix}, grouped_at, id LIMIT :read"
        return f"({entries}) AS entries GROUP BY group_key ORDER BY group_key"

    def take_these(self, claim: ClaimText, *, one: bool) -> Executable:
        """Claim the candidates that still have their version."""
        return kept(f"UPDATE {claim.by_id} SET {claim.set()} WHERE {matching(one=one)}", **LISTS)
