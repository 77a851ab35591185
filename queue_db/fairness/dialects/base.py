"""How a claim takes turns among groups: by default in one statement, which steps from group to group over an index."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Executable

from queue_db.dialects.base import Companion
from queue_db.dialects.claim_sql import COLUMNS, ClaimText, columns_of
from queue_db.dialects.statements import kept
from queue_db.dialects.transactions import Sender

#: The floor of a range that only fills the number of ranges up to that of a statement. It has no due job.
UNUSED = 2**63 - 1

#: The columns of a candidate: a job that a claim may take.
CANDIDATE = ("id", "version", "priority", "group_key")


class Turn(NamedTuple):
    """Where the turns among the groups of one priority go on."""

    #: The group that had the last turn; empty: the first group comes next.
    group: str
    #: How many more jobs of this group are part of its turn.
    credit: int


Claimed = Sequence[Sequence[Any]]
"""Claimed jobs; each row begins with :data:`~queue_db.dialects.claim_sql.COLUMNS`."""


class FairDialect(Companion):
    """The statements of claims by turns. The members of this class are for databases with recursive queries of any subquery."""

    #: The comparison of two groups by their code points, and an ORDER BY of them.
    after, before, ordered = "{} > {}", "{} < {}", "{}"

    # --- what a policy calls ------------------------------------------------------------------------------------------

    def claim(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], turns: Sequence[Turn], weights: Mapping[str, int]
    ) -> tuple[Claimed, int]:
        """Claim up to ``parameters["limit"]`` jobs.

        :param turns: for each range of ``claim``, where its turns go on.
        :param weights: the number of jobs in a turn of a group; one for a group that is missing.
        :return: the rows, and the number of candidates.
        """
        rows = tx.fetch(claim.made(self.claim_by_turns, weighted=bool(weights)), self.values(parameters, turns, weights))
        return rows, len(rows)

    def candidates(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        turns: Sequence[Turn],
        weights: Mapping[str, int],
        refused: Sequence[str],
    ) -> Sequence[Sequence[Any]]:
        """The jobs that :meth:`claim` would claim, as rows of :data:`CANDIDATE`, in the order of their turns.

        :param refused: groups that are left out.
        """
        values = self.values(parameters, turns, weights) | {"refused": json.dumps(list(refused), ensure_ascii=False)}
        return tx.fetch(claim.made(self.look_by_turns, weighted=bool(weights)), values)

    def candidates_by_time(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], refused: Sequence[str]
    ) -> Sequence[Sequence[Any]]:
        """The first ``parameters["limit"]`` due jobs of any group or none, as rows of :data:`CANDIDATE`."""
        values = {**parameters, "refused": json.dumps(list(refused), ensure_ascii=False)}
        return tx.fetch(claim.made(self.look_by_time), values)

    def values(self, parameters: Mapping[str, Any], turns: Sequence[Turn], weights: Mapping[str, int]) -> dict[str, Any]:
        """The parameters of the statements by turns."""
        values = {**parameters, "weights": json.dumps(weights, ensure_ascii=False)}
        for place, turn in enumerate(turns):
            values[f"cursor_{place}"], values[f"start_credit_{place}"] = turn
        return values

    # --- the statements -----------------------------------------------------------------------------------------------

    def claim_by_turns(self, claim: ClaimText, *, weighted: bool) -> Executable:
        """Claim the candidates with an INSERT that updates existing rows, as all claims of SQLite do."""
        return kept(
            f"{self.turns(claim, weighted=weighted)} INSERT INTO {claim.jobs} (id, queue, payload)"
            f" SELECT candidate.id, '', '' FROM candidate WHERE {self.allowed(claim)}"
            f" ON CONFLICT (id) DO UPDATE SET {claim.set()} RETURNING {', '.join(COLUMNS)}",
            *COLUMNS,
        )

    def look_by_turns(self, claim: ClaimText, *, weighted: bool) -> Executable:
        """Read the candidates."""
        return kept(
            f"{self.turns(claim, weighted=weighted, refuses=True)} SELECT {columns_of('jobs', CANDIDATE)}"
            f" FROM candidate CROSS JOIN {claim.jobs} WHERE jobs.id = candidate.id AND {self.allowed(claim)}"
            " ORDER BY candidate.arm, candidate.place, candidate.nth",
            *CANDIDATE,
        )

    def look_by_time(self, claim: ClaimText) -> Executable:
        """Read the first due jobs of each range."""
        arms = [
            f"SELECT * FROM (SELECT {columns_of('jobs', CANDIDATE)} FROM {claim.jobs} WHERE {claim.due(place)}"
            f" AND (jobs.group_key IS NULL OR NOT {self.is_refused('jobs.group_key')})"
            f" ORDER BY jobs.available_at, jobs.id LIMIT :limit) AS due_{place}"
            for place in range(claim.shape.ranges)
        ]
        where = f" WHERE {' AND '.join(claim.nothing_due)}" if claim.nothing_due else ""
        return kept(f"SELECT * FROM ({' UNION ALL '.join(arms)} LIMIT :limit) AS candidate{where}", *CANDIDATE)

    def allowed(self, claim: ClaimText) -> str:
        """The conditions on the queue and on others, which depend on no candidate."""
        return " AND ".join([claim.nothing_before, *claim.nothing_due])

    def is_refused(self, group: str) -> str:
        """The condition that the parameter ``refused`` has this group."""
        return f"{group} IN (SELECT one.value FROM json_each(:refused) AS one)"

    def weight(self, group: str) -> str:
        """The weight of a group in the parameter ``weights``."""
        return f"coalesce((SELECT one.value FROM json_each(:weights) AS one WHERE one.\"key\" = {group}), 1)"

    # --- the parts of a statement by turns ------------------------------------------------------------------------------

    def turns(self, claim: ClaimText, *, weighted: bool, refuses: bool = False) -> str:
        """The WITH clause, whose last query ``candidate`` has the columns id, arm, place and nth.

        For each range: ``ahead`` and ``behind`` are the groups from the last turn on and from the beginning; the database reads
        only as many as it needs. ``turn`` has the first due job of each group that has one, ``more`` the further ones, if there
        are fewer groups than jobs wanted, or groups of more weight.
        """
        ranges = range(claim.shape.ranges)
        parts = [part for place in ranges for part in self.range_(claim, place, weighted=weighted, refuses=refuses)]
        arms = " UNION ALL ".join(
            f"SELECT id, {place} AS arm, place, nth FROM turn_{place} UNION ALL SELECT id, {place} AS arm, place, nth FROM more_{place}"
            for place in ranges
        )
        drawn = f"SELECT id, arm, place, nth FROM ({arms}) AS drawn ORDER BY arm, place, nth LIMIT :limit"
        return f"WITH RECURSIVE {', '.join(parts)}, candidate AS ({drawn})"

    def range_(self, claim: ClaimText, place: int, *, weighted: bool, refuses: bool) -> list[str]:
        """The queries of one range."""
        cursor, credit, used = f":cursor_{place}", f":start_credit_{place}", f":floor_{place} < {UNUSED}"
        ahead = f"CASE WHEN {credit} > 0 THEN {cursor} ELSE {self.next(claim, place, cursor)} END"
        behind = self.next(claim, place, "''")
        in_time = f"{self.before.format('groups.k', cursor)} OR (groups.k = {cursor} AND {credit} <= 0)"
        groups = (
            f"SELECT k, step FROM ahead_{place} WHERE k IS NOT NULL"
            f" UNION ALL SELECT groups.k, {UNUSED // 2} + groups.step FROM behind_{place} AS groups WHERE {in_time}"
        )
        visits = f"SELECT * FROM ({groups}) AS visits WHERE NOT {self.is_refused('visits.k')}" if refuses else groups
        weight = self.weight("visit.k") if weighted else "1"
        return [
            f"ahead_{place} (k, step) AS (SELECT CASE WHEN {used} THEN {ahead} END, 1 UNION ALL"
            f" SELECT {self.next(claim, place, f'ahead_{place}.k')}, step + 1 FROM ahead_{place} WHERE k IS NOT NULL)",
            f"behind_{place} (k, step) AS (SELECT CASE WHEN {used} THEN {behind} END, 1 UNION ALL"
            f" SELECT {self.next(claim, place, f'behind_{place}.k')}, step + 1 FROM behind_{place}"
            f" WHERE {self.before.format('k', cursor)})",
            self.first(claim, place, visits, f"CASE WHEN visit.k = {cursor} AND visit.step = 1 AND {credit} > 0"
                       f" THEN {credit} - {weight} ELSE 0 END", weight),
            f"round_{place} AS (SELECT (:limit + sum(weight) - 1) / sum(weight) AS each FROM turn_{place})",
            self.more(claim, place),
        ]

    def next(self, claim: ClaimText, place: int, group: str) -> str:
        """The next group after ``group`` that has jobs of this range's priority; NULL: there is none."""
        return (
            f"(SELECT next.group_key FROM {claim.table} AS next WHERE {self.of_range('next', place)}"
            f" AND {self.after.format('next.group_key', group)} ORDER BY {self.ordered.format('next.group_key')} LIMIT 1)"
        )

    def of_range(self, alias: str, place: int) -> str:
        """The condition for all jobs of a range that have a group."""
        return f"{alias}.queue = :in_queue AND {alias}.priority = :priority_{place} AND {alias}.group_key IS NOT NULL"

    def due(self, claim: ClaimText, alias: str, place: int, group: str) -> str:
        """The condition for the due jobs of a group."""
        return (
            f"{self.of_range(alias, place)} AND {alias}.group_key = {group}"
            f" AND {alias}.available_at >= :floor_{place} AND {alias}.available_at <= {claim.now}"
        )

    def first(self, claim: ClaimText, place: int, visits: str, extra: str, weight: str) -> str:
        """The query ``turn``: the first due job of each visited group, the weight of its turn, and what its turn has ``extra``."""
        head = (
            f"SELECT head.id FROM {claim.table} AS head WHERE {self.due(claim, 'head', place, 'visit.k')}"
            " ORDER BY head.available_at, head.id LIMIT 1"
        )
        return (
            f"turn_{place} (id, k, place, nth, available_at, weight, extra) AS MATERIALIZED"
            f" (SELECT first.id, visit.k, visit.step, 1, first.available_at, {weight}, {extra}"
            f" FROM ({visits}) AS visit CROSS JOIN {claim.table} AS first WHERE first.id = ({head}) LIMIT :limit)"
        )

    def more(self, claim: ClaimText, place: int) -> str:
        """The query ``more``: the further due jobs in the turns of groups."""
        # The LIMIT of a subquery cannot depend on the row outside. So each group gets as many as the longest turn, of which the
        # condition on ``nth`` leaves its own.
        turn, quota = f"turn_{place}", f"((SELECT each FROM round_{place}) * turn.weight + turn.extra)"
        longest = f"(SELECT max(each * {turn}.weight + {turn}.extra) - 1 FROM round_{place}, {turn})"
        further = (
            f"SELECT further.id FROM {claim.table} AS further WHERE {self.due(claim, 'further', place, 'turn.k')}"
            " AND (further.available_at, further.id) > (turn.available_at, turn.id)"
            f" ORDER BY further.available_at, further.id LIMIT {longest}"
        )
        numbered = (
            "SELECT others.id, turn.place, 1 + row_number() OVER (PARTITION BY turn.place ORDER BY others.available_at, others.id)"
            f" AS nth, {quota} AS quota FROM {turn} AS turn CROSS JOIN {claim.table} AS others"
            f" WHERE {quota} > 1 AND others.id IN ({further})"
        )
        return f"more_{place} AS (SELECT id, place, nth FROM ({numbered}) AS numbered WHERE nth <= quota)"
