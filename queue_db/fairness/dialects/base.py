"""How a claim takes turns among groups: a look at the next groups, a look at their first jobs, and the change of these jobs."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Executable

from queue_db.dialects.base import Companion
from queue_db.dialects.claim_sql import ClaimText, columns_of
from queue_db.dialects.statements import kept
from queue_db.dialects.transactions import Sender

#: The floor of a range that only fills the number of ranges up to that of a statement. It has no due job.
UNUSED = 2**63 - 1

#: The columns of a candidate, which is a job that a claim may take.
CANDIDATE = ("id", "version", "priority", "group_key")
_GROUP = CANDIDATE.index("group_key")

Rows = Sequence[Sequence[Any]]

# The numbers of groups whose jobs one statement reads.
ARMS = (1, 2, 4, 8, 10, 16, 32, 64)

# The most jobs of a group that a claim reads beyond those of its turn, to choose among them while others claim too.
_WIDEST = 16


class Turn(NamedTuple):
    """Where the turns among the groups of one priority go on."""

    #: The group that had the last turn; empty: the first group comes next.
    group: str
    #: How many more jobs of this group are part of its turn.
    credit: int


@dataclass(slots=True)
class Ahead:
    """The first jobs of the next groups, which a process has read ahead for its next claims."""

    rows: list[Sequence[Any]] = field(default_factory=list)
    #: When they are too old, by the monotonic clock.
    until: float = 0.0
    #: Until when there are too few groups to read ahead.
    short_until: float = 0.0
    #: The groups of each priority, in order, if there are few.
    known: dict[int, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Search:
    """What a claim looks for, by turns."""

    claim: ClaimText
    parameters: Mapping[str, Any]
    #: For each range of ``claim``, where its turns go on.
    turns: Sequence[Turn]
    #: The number of jobs in a turn of a group; one for a group that is missing.
    weights: Mapping[str, int]
    #: What the process remembers of the groups of this queue.
    ahead: Ahead
    #: Groups that are left out.
    refused: Sequence[str] = ()
    #: Take one job of each group, although there may be fewer groups than jobs wanted.
    one_each: bool = False

    @property
    def limit(self) -> int:
        """The most jobs."""
        return int(self.parameters["limit"])

    def values(self) -> dict[str, Any]:
        """The parameters of the statements."""
        values = {**self.parameters, "weights": encoded(self.weights), "refused": encoded(list(self.refused))}
        for place, turn in enumerate(self.turns):
            values[f"cursor_{place}"], values[f"start_credit_{place}"] = turn
        return values


def encoded(value: Any) -> str:
    """A list or a mapping as a parameter."""
    return json.dumps(value, ensure_ascii=False) if value else "{}" if isinstance(value, Mapping) else "[]"


class FairDialect(Companion):
    """The statements of claims by turns; each database has a subclass."""

    #: How many further jobs of each group a look reads; more after a claim that others were faster than.
    width = 0

    # --- what a policy calls ------------------------------------------------------------------------------------------

    def claim(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        """Claim jobs; return their rows, which begin with the columns of a claimed job, and the number of candidates."""
        found = self.candidates(tx, search)
        return self.take(tx, search, found), len(found)

    def candidates(self, tx: Sender, search: Search) -> Rows:
        """The jobs whose turn it is, as rows of :data:`CANDIDATE`, in the order of their turns."""
        found: list[Sequence[Any]] = []
        for place, turn in enumerate(search.turns):
            left = search.limit - len(found)
            if left and search.parameters[f"floor_{place}"] < UNUSED:
                jobs = self._jobs(tx, search, place, self._quotas(tx, search, place, turn, left))
                found += [row for row, _ in zip(jobs, range(left), strict=False)]
        return found

    def candidates_by_time(self, tx: Sender, search: Search) -> Rows:
        """The first due jobs of any group or none, as rows of :data:`CANDIDATE`."""
        return tx.fetch(search.claim.made(self.look_by_time), search.values())

    def take(self, tx: Sender, search: Search, found: Rows) -> Rows:
        """Claim the candidates that still have their version."""
        raise NotImplementedError

    # --- the steps ----------------------------------------------------------------------------------------------------

    def groups(self, tx: Sender, search: Search, place: int, most: int) -> Iterator[str]:
        """Groups with due jobs, in the order of their turns, without the refused ones."""
        raise NotImplementedError

    def _quotas(self, tx: Sender, search: Search, place: int, turn: Turn, limit: int) -> dict[str, int]:
        """How many jobs of which groups come next, in the order of their turns."""
        weights = search.weights
        groups = [group for group, _ in zip(self.groups(tx, search, place, limit), range(limit), strict=False)]
        total = sum(weights.get(group, 1) for group in groups)
        each = -(-limit // total) if total else 0
        quotas = {group: each * weights.get(group, 1) for group in groups}
        if turn.credit > 0 and groups and groups[0] == turn.group:
            quotas[turn.group] += turn.credit - weights.get(turn.group, 1)
        return quotas

    def _jobs(self, tx: Sender, search: Search, place: int, quotas: Mapping[str, int]) -> Iterator[Sequence[Any]]:
        """The first due jobs of the groups in ``quotas``, in this order."""
        groups = list(quotas)
        for start in range(0, len(groups), ARMS[-1]):
            part = groups[start : start + ARMS[-1]]
            arms = next(size for size in ARMS if size >= len(part))
            values: dict[str, Any] = {**search.parameters}
            for arm in range(arms):
                group = part[arm] if arm < len(part) else ""
                wanted = min(quotas[group], search.limit) + self.width if group else 0
                values |= {f"key_{arm}": group, f"read_{arm}": wanted}
            rows: dict[str, list[Sequence[Any]]] = {}
            for row in tx.fetch(search.claim.made(self.first_jobs, place=place, arms=arms), values):
                rows.setdefault(row[_GROUP], []).append(row)
            for group in part:
                due = rows.get(group, [])
                start_at = random.randint(0, max(0, len(due) - quotas[group])) if self.width else 0
                yield from due[start_at : start_at + quotas[group]]

    def lost(self, wanted: int, changed: int) -> None:
        """Note how many candidates a claim wanted and got: it reads more of each group while others claim too."""
        self.width = self.width // 2 if changed == wanted else min(2 * self.width + 1, _WIDEST)

    # --- the statements -----------------------------------------------------------------------------------------------

    def first_jobs(self, claim: ClaimText, *, place: int, arms: int) -> Executable:
        """Read the first due jobs of ``arms`` groups."""
        queries = [
            f"SELECT * FROM (SELECT {columns_of('jobs', CANDIDATE)} FROM {self.indexed(claim)}"
            f" WHERE {self.due(claim, 'jobs', place, f':key_{arm}')} ORDER BY {self.by_time('jobs')} LIMIT :read_{arm}) AS of_{arm}"
            for arm in range(arms)
        ]
        return kept(" UNION ALL ".join(queries), *CANDIDATE)

    def look_by_time(self, claim: ClaimText) -> Executable:
        """Read the first due jobs of each range; without ranges, those of all priorities."""
        places: list[int | None] = list(range(claim.shape.ranges)) or [None]
        arms = [
            f"SELECT * FROM (SELECT {columns_of('jobs', CANDIDATE)} FROM {claim.jobs} WHERE {claim.due(place)}"
            f" AND (jobs.group_key IS NULL OR NOT {self.is_refused('jobs.group_key')})"
            f" ORDER BY {'jobs.priority, ' if place is None else ''}jobs.available_at, jobs.id LIMIT :limit) AS due_{place or 0}"
            for place in places
        ]
        where = f" WHERE {' AND '.join(claim.nothing_due)}" if claim.nothing_due else ""
        return kept(f"SELECT * FROM ({' UNION ALL '.join(arms)} LIMIT :limit) AS candidate{where}", *CANDIDATE)

    # --- parts of statements --------------------------------------------------------------------------------------------

    def allowed(self, claim: ClaimText) -> str:
        """The conditions on the queue and on others, which depend on no candidate."""
        before = [claim.nothing_before] if claim.shape.ranges else []  # one range over all priorities has them in order
        return " AND ".join([*before, *claim.nothing_due]) or "true"

    def is_refused(self, group: str) -> str:
        """The condition that the parameter ``refused`` has this group."""
        raise NotImplementedError

    def indexed(self, claim: ClaimText) -> str:
        """The table of jobs as ``jobs``, read by the index of fair queues."""
        return claim.jobs

    def of_range(self, alias: str, place: int) -> str:
        """The condition for all jobs of a range that have a group."""
        return f"{alias}.queue = :in_queue AND {alias}.priority = :priority_{place} AND {alias}.group_key IS NOT NULL"

    def by_time(self, alias: str) -> str:
        """The order of the jobs of one group."""
        return f"{alias}.available_at, {alias}.id"

    def due(self, claim: ClaimText, alias: str, place: int, group: str) -> str:
        """The condition for the due jobs of a group."""
        return (
            f"{self.of_range(alias, place)} AND {alias}.group_key = {group}"
            f" AND {alias}.available_at >= :floor_{place} AND {alias}.available_at <= {claim.now}"
        )
