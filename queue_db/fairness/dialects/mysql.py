"""Claims by turns on MySQL and MariaDB. Their recursive queries read an index from its beginning at each step; a GROUP BY skips."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import COLUMNS, ID, VERSION, ClaimText, as_claimed, columns_of, update_claimed, won
from queue_db.dialects.mysql_server import is_mariadb
from queue_db.dialects.statements import kept, wanted
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import ARMS, CANDIDATE, FairDialect, Rows, Search

#: How many entries of the index MariaDB reads at a time.
WINDOW = 320

# The position of the database's time in the rows of :meth:`MySQLFair.look_lone`.
_LOOKED_AT = len(COLUMNS)

# A text after all groups.
_LAST = "\U0010ffff"


class MySQLFair(FairDialect):
    """Reads jobs of many groups ahead for several claims: the change checks that they have their versions."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    reads_ahead: ClassVar[bool] = True

    def first_of_groups(self, tx: Sender, search: Search, after: str, most: int) -> Rows:
        statement = search.claim.made(self.next_first_jobs, windowed=is_mariadb(tx.connection.dialect))
        return tx.fetch(statement, search.values() | {"cursor_0": after, "read": 10 * most, "limit": most})

    def take_lone(self, tx: Sender, search: Search) -> Rows:
        limit = search.limit
        found = tx.fetch(search.claim.made(self.look_lone), search.values() | {"read": limit + self.width})
        start = random.randint(0, max(0, len(found) - limit))
        found = found[start : start + limit]
        if not found:
            return ()
        pairs = sorted((row[ID], row[VERSION]) for row in found)
        until = found[0][_LOOKED_AT] + search.parameters["lease"]
        values = {**search.parameters, **wanted(pairs), "until": until}
        changed = tx.execute(search.claim.made(update_claimed, one=len(pairs) == 1), values)
        self.lost(len(pairs), changed)
        if changed == len(pairs):
            return as_claimed(found, until)
        mine = {"of_ids": [job_id for job_id, _ in pairs], "token": search.parameters["token"]}
        return tx.fetch(search.claim.made(won), mine) if changed else ()

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

    def look_lone(self, claim: ClaimText) -> Executable:
        """Read the first due jobs of the group at the cursor, unless another group has jobs."""
        return kept(
            f"SELECT {columns_of('jobs')}, {claim.now} AS looked_at FROM {self.indexed(claim)}"
            f" WHERE {self.due(claim, 'jobs', 0, ':cursor_0')} AND {self.alone(claim, ':cursor_0')} AND {self.allowed(claim)}"
            f" ORDER BY {self.by_time('jobs')} LIMIT :read",
            *COLUMNS,
            "looked_at",
        )

    def next_group(self, claim: ClaimText, place: int, group: str) -> str:
        entries = f"{claim.table} AS next FORCE INDEX ({claim.name}_fair)"
        return (
            f"(SELECT next.group_key FROM {entries} WHERE {self.of_range('next', place)} AND next.group_key > {group}"
            " ORDER BY next.grouped_queue, next.priority, next.group_key LIMIT 1)"
        )

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
            f" AND {self.allowed(claim, place)} ORDER BY jobs.group_key, jobs.grouped_at, jobs.id LIMIT 1) AS span_{arm}"
            for arm in range(arms)
        ]
        return kept(" UNION ALL ".join(queries), "group_key", "due")

    def next_first_jobs(self, claim: ClaimText, *, windowed: bool) -> Executable:
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
        where = f"{self.indexed(claim)} WHERE {self.of_range('jobs', place)} AND {side} AND {self.allowed(claim, place)}"
        if not windowed:
            return f"{where} GROUP BY {prefix} ORDER BY {prefix}"
        entries = f"SELECT jobs.group_key, jobs.grouped_at FROM {where} ORDER BY {prefix}, grouped_at, id LIMIT :read"
        return f"({entries}) AS entries GROUP BY group_key ORDER BY group_key"
