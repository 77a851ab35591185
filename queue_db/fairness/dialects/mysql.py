"""Claims by turns on MySQL and MariaDB: a look at the next groups, a look at their jobs, and the change."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import COLUMNS, ID, LOOKED_AT, PRIORITY, VERSION, ClaimText, as_claimed, columns_of, update_claimed, won
from queue_db.dialects.statements import kept, wanted
from queue_db.dialects.transactions import Sender
from queue_db.fairness.dialects.base import UNUSED, Claimed, FairDialect, Turn

# The numbers of groups whose jobs one statement reads.
_ARMS = (1, 2, 4, 8, 10, 16, 32, 64)

# The most jobs of a group that a claim reads beyond those of its turn, to choose among them while others claim too.
_WIDEST = 16

_GROUP = COLUMNS.index("group_key")


class MySQLFair(FairDialect):
    """Their recursive queries read the index from its beginning at each step. A GROUP BY skips from group to group."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    #: How many further jobs of each group a claim reads; more after one that others had taken.
    width = 0

    def claim(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], turns: Sequence[Turn], weights: Mapping[str, int]
    ) -> tuple[Claimed, int]:
        found = self._found(tx, claim, parameters, turns, weights, ())
        if not found:
            return (), 0
        until = found[0][LOOKED_AT] + parameters["lease"]
        pairs = sorted((row[ID], row[VERSION]) for row in found)
        values = {**parameters, **wanted(pairs), "until": until}
        changed = tx.execute(claim.made(update_claimed, one=len(pairs) == 1), values)
        self.width = self.width // 2 if changed == len(pairs) else min(2 * self.width + 1, _WIDEST)
        if changed == len(pairs):
            return as_claimed(found, until), len(pairs)
        mine = {"of_ids": [job_id for job_id, _ in pairs], "token": parameters["token"]}
        return tx.fetch(claim.made(won), mine) if changed else (), len(pairs)

    def candidates(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        turns: Sequence[Turn],
        weights: Mapping[str, int],
        refused: Sequence[str],
    ) -> Sequence[Sequence[Any]]:
        found = self._found(tx, claim, parameters, turns, weights, refused)
        return [(row[ID], row[VERSION], row[PRIORITY], row[_GROUP]) for row in found]

    def is_refused(self, group: str) -> str:
        return f"json_contains(:refused, json_quote({group}))"

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _found(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        turns: Sequence[Turn],
        weights: Mapping[str, int],
        refused: Sequence[str],
    ) -> list[Sequence[Any]]:
        """The rows of the candidates, in the order of their turns."""
        found: list[Sequence[Any]] = []
        for place, turn in enumerate(turns):
            left = parameters["limit"] - len(found)
            if left and parameters[f"floor_{place}"] < UNUSED:
                quotas = self._quotas(tx, claim, parameters | {"limit": left}, place, turn, weights, refused)
                jobs = (row for row in self._jobs(tx, claim, parameters, place, quotas))
                found += [row for row, _ in zip(jobs, range(left), strict=False)]
        return found

    def _quotas(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        place: int,
        turn: Turn,
        weights: Mapping[str, int],
        refused: Sequence[str],
    ) -> dict[str, int]:
        """How many jobs of which groups come next, in the order of their turns."""
        limit = parameters["limit"]
        values = {**parameters, f"cursor_{place}": turn.group, "limit": limit + len(refused)}
        groups = [turn.group] if turn.credit > 0 else []
        for ahead in (True, False):
            if len(groups) < limit:
                groups += [group for (group,) in tx.fetch(claim.made(self.next_groups, place=place, ahead=ahead), values)]
        left_out = set(refused)
        groups = [group for group in dict.fromkeys(groups) if group not in left_out][:limit]
        total = sum(weights.get(group, 1) for group in groups)
        if not total:
            return {}
        each = -(-limit // total)
        quotas = {group: each * weights.get(group, 1) for group in groups}
        if turn.credit > 0 and turn.group in quotas:
            quotas[turn.group] += turn.credit - weights.get(turn.group, 1)
        return quotas

    def _jobs(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], place: int, quotas: Mapping[str, int]
    ) -> Iterator[Sequence[Any]]:
        """The rows of the first due jobs of the groups in ``quotas``, in this order."""
        groups, left = list(quotas), parameters["limit"]
        for start in range(0, len(groups), _ARMS[-1]):
            part = groups[start : start + _ARMS[-1]]
            arms = next(size for size in _ARMS if size >= len(part))
            values: dict[str, Any] = {**parameters}
            for arm in range(arms):
                group = part[arm] if arm < len(part) else ""
                values |= {f"key_{arm}": group, f"read_{arm}": min(quotas.get(group, 0), left) + self.width if group else 0}
            rows: dict[str, list[Sequence[Any]]] = {}
            for row in tx.fetch(claim.made(self.first_jobs, place=place, arms=arms), values):
                rows.setdefault(row[_GROUP], []).append(row)
            for group in part:
                due = rows.get(group, [])
                from_ = random.randint(0, max(0, len(due) - quotas[group])) if self.width else 0
                yield from due[from_ : from_ + quotas[group]]

    # --- the statements -----------------------------------------------------------------------------------------------

    def next_groups(self, claim: ClaimText, *, place: int, ahead: bool) -> Executable:
        """Read the groups with due jobs after the cursor, or from the beginning up to the cursor."""
        side = ">" if ahead else "<="
        return kept(
            f"SELECT jobs.group_key FROM {claim.jobs} FORCE INDEX ({self._index(claim)}) WHERE {self.of_range('jobs', place)}"
            f" AND jobs.group_key {side} :cursor_{place} AND {self.allowed(claim)} GROUP BY jobs.group_key"
            f" HAVING min(jobs.grouped_at) <= {claim.now} ORDER BY jobs.group_key LIMIT :limit",
            "group_key",
        )

    def first_jobs(self, claim: ClaimText, *, place: int, arms: int) -> Executable:
        """Read the first due jobs of ``arms`` groups."""
        hint = f"FORCE INDEX ({self._index(claim)})"
        queries = [
            f"(SELECT {columns_of('jobs')}, NULL AS head, {claim.now} AS looked_at FROM {claim.jobs} {hint}"
            f" WHERE {self.of_range('jobs', place)} AND jobs.group_key = :key_{arm} AND jobs.grouped_at <= {claim.now}"
            f" ORDER BY jobs.grouped_at, jobs.id LIMIT :read_{arm})"
            for arm in range(arms)
        ]
        return kept(" UNION ALL ".join(queries), *COLUMNS, "head", "looked_at")

    def of_range(self, alias: str, place: int) -> str:
        return f"{alias}.grouped_queue = :in_queue AND {alias}.priority = :priority_{place}"

    def _index(self, claim: ClaimText) -> str:
        return f"{claim.name}_fair"

