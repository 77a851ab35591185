"""Claims by turns on PostgreSQL: it locks the candidates as it reads them, and steps over jobs that others have locked."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import Executable

from queue_db.dialects import postgresql_sql
from queue_db.dialects.claim_sql import COLUMNS, ClaimText, columns_of
from queue_db.dialects.statements import kept
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import CANDIDATE, UNUSED, FairDialect, Rows, Search


class PostgreSQLFair(FairDialect):
    """The first due jobs of groups are read by lateral joins, each with its own limit."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    reads_ahead: ClassVar[bool] = True
    checks_again: ClassVar[bool] = True
    most_ahead: ClassVar[int] = 256

    def claim_now(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        statement = search.claim.made(self.claim_by_turns, weighted=bool(search.weights), one_each=search.one_each)
        rows = tx.fetch(statement, search.values())
        return rows, len(rows)

    def first_of_groups(self, tx: Sender, search: Search, after: str, most: int) -> Rows:
        return tx.fetch(search.claim.made(self.next_first_jobs), {**search.parameters, "cursor_0": after, "limit": most})

    def take_lone(self, tx: Sender, search: Search) -> Rows:
        return tx.fetch(search.claim.made(self.claim_lone), search.values())

    def candidates(self, tx: Sender, search: Search) -> Rows:
        return tx.fetch(search.claim.made(self.look_by_turns, weighted=bool(search.weights)), search.values())

    def take(self, tx: Sender, search: Search, found: Rows) -> Rows:
        if not found:
            return ()
        values = {**search.parameters, **postgresql_sql.wanted([(row[0], row[1]) for row in found])}
        return tx.fetch(search.claim.made(self.take_these, one=len(found) == 1), values)

    def is_refused(self, group: str) -> str:
        return f"{group} IN (SELECT jsonb_array_elements_text(CAST(:refused AS JSONB)))"

    # --- the statements -----------------------------------------------------------------------------------------------

    def claim_by_turns(self, claim: ClaimText, *, weighted: bool, one_each: bool) -> Executable:
        """Claim the jobs whose turn it is."""
        turns = self.short_turns(claim) if one_each else self.turns(claim, weighted=weighted)
        return kept(
            f"{turns} UPDATE {claim.jobs} SET {claim.set()}"
            f" WHERE jobs.id = ANY(ARRAY(SELECT candidate.id FROM candidate)) AND {self.allowed(claim)}"
            f" RETURNING {columns_of('jobs')}",
            *COLUMNS,
        )

    def claim_lone(self, claim: ClaimText) -> Executable:
        """Claim the first due jobs of the group at the cursor, unless another group has jobs."""
        return self._claimed(
            claim,
            # A range of groups in the order of the index: with an equation, a planner without statistics reads the whole group by
            # the index of groups, and sorts it.
            f"SELECT head.id FROM {claim.table} AS head WHERE {self.of_range('head', 0)} AND head.group_key ~>=~ :cursor_0"
            f" AND head.available_at >= :floor_0 AND head.available_at <= {claim.now} AND {self.alone(claim, ':cursor_0')}"
            " ORDER BY head.group_key USING ~<~, head.available_at, head.id LIMIT :limit FOR UPDATE SKIP LOCKED",
        )

    def take_these(self, claim: ClaimText, *, one: bool) -> Executable:
        """Claim the candidates that still have their version, and that no other transaction has locked."""
        held = f"SELECT jobs.id FROM {claim.jobs} WHERE {postgresql_sql.matching(one=one)} FOR UPDATE SKIP LOCKED"
        return self._claimed(claim, held, **postgresql_sql.LISTS)

    def _claimed(self, claim: ClaimText, query: str, **lists: Any) -> Executable:
        """Claim the jobs with the ids that a query locks."""
        return kept(
            f"UPDATE {claim.jobs} SET {claim.set()} WHERE jobs.id = ANY(ARRAY({query})) AND {self.allowed(claim)}"
            f" RETURNING {columns_of('jobs')}",
            *COLUMNS,
            **lists,
        )

    def next_first_jobs(self, claim: ClaimText) -> Executable:
        """Read the first due job of each of the next groups."""

        # The first entry of a group in the index is its first due job, if any is due.
        def entry(after: str) -> str:
            return (
                f"(SELECT {columns_of('next', CANDIDATE)}, next.available_at FROM {claim.table} AS next"
                f" WHERE {self.of_range('next', 0)} AND next.group_key ~>~ {after}"
                " ORDER BY next.group_key USING ~<~, next.available_at, next.id LIMIT 1)"
            )

        return kept(
            f"WITH RECURSIVE visit AS ({entry(':cursor_0')} UNION ALL"
            f" SELECT later.* FROM visit CROSS JOIN LATERAL {entry('visit.group_key')} AS later)"
            f" SELECT {columns_of('visit', CANDIDATE)} FROM visit WHERE visit.available_at <= {claim.now} LIMIT :limit",
            *CANDIDATE,
        )

    def look_by_turns(self, claim: ClaimText, *, weighted: bool) -> Executable:
        """Read and lock the jobs whose turn it is."""
        return kept(
            f"{self.turns(claim, weighted=weighted, refuses=True)} SELECT {columns_of('jobs', CANDIDATE)}"
            f" FROM candidate JOIN {claim.jobs} ON jobs.id = candidate.id WHERE {self.allowed(claim)}"
            " ORDER BY candidate.arm, candidate.place, candidate.nth",
            *CANDIDATE,
        )

    def look_by_time(self, claim: ClaimText) -> Executable:
        text = str(super().look_by_time(claim))
        return kept(text.replace(" LIMIT :limit) AS due_", " LIMIT :limit FOR UPDATE SKIP LOCKED) AS due_"), *CANDIDATE)

    # --- the parts of a statement by turns --------------------------------------------------------------------------

    def turns(self, claim: ClaimText, *, weighted: bool, refuses: bool = False) -> str:
        """The WITH clause, whose last query ``candidate`` has the columns id, arm, place and nth.

        For each range, ``turn`` has the first due job of each group that has one, ``more`` the further ones, if there are fewer
        groups than jobs wanted, or groups of more weight.
        """
        ranges = range(claim.shape.ranges)
        parts = []
        for place in ranges:
            parts += self.steps(claim, place)
            parts += [
                self.first(claim, place, weighted=weighted, refuses=refuses),
                f"round_{place} AS (SELECT (:limit + sum(weight) - 1) / sum(weight) AS each FROM turn_{place})",
                self.more(claim, place),
            ]
        arms = " UNION ALL ".join(
            f"SELECT id, {place} AS arm, place, nth FROM turn_{place}"
            f" UNION ALL SELECT id, {place} AS arm, place, nth FROM more_{place}"
            for place in ranges
        )
        parts.append(f"drawn AS MATERIALIZED ({arms})")
        order = "SELECT id, arm, place, nth FROM drawn ORDER BY arm, place, nth LIMIT :limit"
        return f"WITH RECURSIVE {', '.join(parts)}, candidate AS ({order})"

    def short_turns(self, claim: ClaimText) -> str:
        """The WITH clause for one job of each group. Its last query ``candidate`` has the column id."""
        ranges = range(claim.shape.ranges)
        parts = [part for place in ranges for part in self.steps(claim, place)]
        arms = " UNION ALL ".join(self.firsts(claim, place) for place in ranges)
        return f"WITH RECURSIVE {', '.join(parts)}, candidate AS (SELECT id FROM ({arms}) AS drawn LIMIT :limit)"

    def next_group(self, claim: ClaimText, place: int, group: str) -> str:
        """The next group after ``group`` that has jobs of this range's priority; NULL: there is none."""
        return (
            f"(SELECT next.group_key FROM {claim.table} AS next WHERE {self.of_range('next', place)}"
            f" AND next.group_key ~>~ {group} ORDER BY next.group_key USING ~<~ LIMIT 1)"
        )

    def credit_of(self, place: int, group: str, step: str, weight: str) -> str:
        """By how much the first turn is longer or shorter than others, since a part of it is over."""
        credit = f":start_credit_{place}"
        return f"CASE WHEN {group} = :cursor_{place} AND {step} = 1 AND {credit} > 0 THEN {credit} - {weight} ELSE 0 END"

    def weight(self, group: str) -> str:
        return f"coalesce(CAST(CAST(:weights AS JSONB) ->> {group} AS INTEGER), 1)"

    def steps(self, claim: ClaimText, place: int) -> list[str]:
        """The queries that step over the groups of a range: ``ahead`` from the last turn on, ``behind`` from the beginning."""
        # PostgreSQL reads no more rows of a recursive query than another one takes.
        ahead, behind, cursor, credit = f"ahead_{place}", f"behind_{place}", f":cursor_{place}", f":start_credit_{place}"
        used = self.used(claim, place)
        first = f"CASE WHEN {credit} > 0 THEN {cursor} ELSE {self.next_group(claim, place, cursor)} END"
        beginning = self.next_group(claim, place, "''")
        more, beyond = self.next_group(claim, place, f"{ahead}.k"), self.next_group(claim, place, f"{behind}.k")
        forward = f"SELECT {more}, step + 1 FROM {ahead} WHERE k IS NOT NULL"
        anew = f"SELECT {beyond}, step + 1 FROM {behind} WHERE k ~<~ {cursor}"
        return [
            f"{ahead} (k, step) AS (SELECT CASE WHEN {used} THEN {first} END, 1 UNION ALL {forward})",
            f"{behind} (k, step) AS (SELECT CASE WHEN {used} THEN {beginning} END, {UNUSED // 2} UNION ALL {anew})",
        ]

    def visits(self, place: int, *, refuses: bool = False) -> str:
        """The groups in the order of their turns."""
        cursor = f":cursor_{place}"
        refused = f" AND NOT {self.is_refused('k')}" if refuses else ""
        return (
            f"(SELECT k, step FROM ahead_{place} WHERE k IS NOT NULL{refused} UNION ALL SELECT k, step FROM behind_{place}"
            f" WHERE (k ~<~ {cursor} OR (k = {cursor} AND :start_credit_{place} <= 0)){refused}) AS visit"
        )

    def head(self, claim: ClaimText, place: int, columns: str) -> str:
        """The first due job of the group that is visited."""
        return (
            f"LATERAL (SELECT {columns} FROM {claim.table} AS head WHERE {self.due(claim, 'head', place, 'visit.k')}"
            " ORDER BY head.available_at, head.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS first"
        )

    def firsts(self, claim: ClaimText, place: int) -> str:
        return f"SELECT first.id FROM {self.visits(place)} CROSS JOIN {self.head(claim, place, 'head.id')}"

    def first(self, claim: ClaimText, place: int, *, weighted: bool, refuses: bool) -> str:
        weight = self.weight("visit.k") if weighted else "1"
        return (
            f"turn_{place} (id, k, place, nth, available_at, weight, extra) AS MATERIALIZED"
            f" (SELECT first.id, visit.k, visit.step, CAST(1 AS BIGINT), first.available_at, {weight},"
            f" {self.credit_of(place, 'visit.k', 'visit.step', weight)} FROM {self.visits(place, refuses=refuses)}"
            f" CROSS JOIN {self.head(claim, place, 'head.id, head.available_at')} LIMIT :limit)"
        )

    def more(self, claim: ClaimText, place: int) -> str:
        further = (
            f"SELECT further.id, further.available_at FROM {claim.table} AS further"
            f" WHERE {self.due(claim, 'further', place, 'turn.k')}"
            " AND (further.available_at, further.id) > (turn.available_at, turn.id) ORDER BY further.available_at, further.id"
            f" LIMIT greatest((SELECT each FROM round_{place}) * turn.weight + turn.extra - 1, 0) FOR UPDATE SKIP LOCKED"
        )
        return (
            f"more_{place} AS (SELECT others.id, turn.place,"
            " 1 + row_number() OVER (PARTITION BY turn.place ORDER BY others.available_at, others.id) AS nth"
            f" FROM turn_{place} AS turn CROSS JOIN LATERAL ({further}) AS others)"
        )
