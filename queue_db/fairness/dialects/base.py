"""How a claim takes turns among groups: a look at the next groups, a look at their first jobs, and the change of these jobs."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import Executable, String

from queue_db.dialects.base import Companion
from queue_db.dialects.claim_sql import ClaimText, columns_of, matching, won
from queue_db.dialects.statements import LISTS, kept, wanted
from queue_db.dialects.transactions import Sender

#: The floor of a range that only fills the number of ranges up to that of a statement. It has no due job.
UNUSED = 2**63 - 1

#: The columns of a candidate, which is a job that a claim may take.
CANDIDATE = ("id", "version", "priority", "group_key")
_GROUP = CANDIDATE.index("group_key")

Rows = Sequence[Sequence[Any]]

# The numbers of groups whose jobs one statement reads.
ARMS = (1, 2, 4, 8, 10, 16, 32, 64)

#: The number of groups whose first jobs a claim reads ahead at first.
READ_AHEAD = 64

#: Seconds for which these jobs are used, and for which no others are read after a claim has lost some of them.
FRESH = 1.0

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

    rows: deque[Sequence[Any]] = field(default_factory=deque)
    #: How many to read.
    size: int = READ_AHEAD
    #: When they are too old, by the monotonic clock.
    until: float = 0.0
    #: Until when not to read ahead: there are too few groups, or other claims take the same ones.
    not_until: float = 0.0
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

    @property
    def one_range(self) -> bool:
        """Whether only the first range can have due jobs."""
        return len(self.turns) == 1 or self.parameters["floor_1"] == UNUSED

    def values(self) -> dict[str, Any]:
        """The parameters of the statements."""
        values = {**self.parameters, "weights": encoded(self.weights), "refused": encoded(list(self.refused))}
        values["refused_groups"] = [*self.refused] or [""]
        for place, turn in enumerate(self.turns):
            values[f"cursor_{place}"], values[f"start_credit_{place}"] = turn
        return values


def encoded(value: Any) -> str:
    """A list or a mapping as a parameter."""
    return json.dumps(value, ensure_ascii=False) if value else "{}" if isinstance(value, Mapping) else "[]"


class FairDialect(Companion):
    """The statements of claims by turns, as most databases accept them. A database has a subclass with cheaper ones."""

    #: Whether :meth:`first_of_groups` and :meth:`take_lone` have statements.
    reads_ahead: ClassVar[bool] = False
    #: The most groups whose first jobs a claim reads ahead, while there are so many.
    most_ahead: ClassVar[int] = READ_AHEAD
    #: Whether the change of the jobs checks again that no other job comes first.
    checks_again: ClassVar[bool] = False
    #: How many further jobs of each group a look reads; more after a claim that others were faster than.
    width = 0

    # --- what a policy calls ------------------------------------------------------------------------------------------

    def claim(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        """Claim jobs; return their rows, which begin with the columns of a claimed job, and the number of candidates."""
        found = self._next_ahead(tx, search)
        if not found:
            return self.claim_now(tx, search)
        if not self.checks_again and not self._is_allowed(tx, search):
            return (), 0
        rows = self.take(tx, search, found)
        if not rows and self.checks_again and not self._is_allowed(tx, search):
            return (), 0  # nobody else was faster
        if 2 * len(rows) < len(found):  # other claims take turns among the same groups
            search.ahead.rows.clear()
            search.ahead.size = READ_AHEAD
            search.ahead.not_until = time.monotonic() + FRESH
        return rows, len(found)

    def _is_allowed(self, tx: Sender, search: Search) -> bool:
        """Whether the jobs that were read ahead still come first."""
        return bool(tx.fetch(search.claim.made(self.look_if_allowed), search.parameters))

    def claim_now(self, tx: Sender, search: Search) -> tuple[Rows, int]:
        """Claim jobs of the next groups, as they are now."""
        found = self.candidates(tx, search)
        return self.take(tx, search, found), len(found)

    def _next_ahead(self, tx: Sender, search: Search) -> Rows:
        """The first jobs of the next groups, read ahead; empty if there are few groups."""
        limit, ahead, now = search.limit, search.ahead, time.monotonic()
        many = search.one_each and not search.weights and search.one_range and 2 * limit <= READ_AHEAD
        if not (self.reads_ahead and many) or now < ahead.not_until or (search.claim.nothing_due and not self.checks_again):
            return ()
        if len(ahead.rows) < limit or now > ahead.until:
            most, cursor = ahead.size // limit * limit, search.turns[0].group
            rows = sorted(self.first_of_groups(tx, search, cursor, most), key=itemgetter(_GROUP))
            if len(rows) < most and cursor:
                beginning = sorted(self.first_of_groups(tx, search, "", most - len(rows)), key=itemgetter(_GROUP))
                rows += [row for row in beginning if row[_GROUP] <= cursor]
            ahead.rows, ahead.until = deque(rows), now + FRESH
            ahead.size = min(2 * ahead.size, self.most_ahead) if len(rows) == most else READ_AHEAD
            if len(rows) < READ_AHEAD // 2:
                ahead.rows.clear()
                ahead.not_until = ahead.until
                return ()
        found: list[Sequence[Any]] = []
        try:
            while len(found) < limit:
                found.append(ahead.rows.popleft())
        except IndexError:  # another thread has taken them
            pass
        return found

    def first_of_groups(self, tx: Sender, search: Search, after: str, most: int) -> Rows:
        """The first due jobs of groups after the group ``after``, as rows of :data:`CANDIDATE`."""
        raise NotImplementedError

    def take_lone(self, tx: Sender, search: Search) -> Rows:
        """Claim the next jobs of the group that had the last turn; nothing if another group has jobs."""
        raise NotImplementedError

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
        if not found:
            return ()
        pairs = sorted((row[0], row[1]) for row in found)
        changed = tx.execute(search.claim.made(self.take_these, one=len(pairs) == 1), {**search.parameters, **wanted(pairs)})
        self.lost(len(pairs), changed)
        if not changed:
            return ()
        mine = {"of_ids": [job_id for job_id, _ in pairs], "token": search.parameters["token"]}
        return tx.fetch(search.claim.made(won), mine)

    # --- the steps ----------------------------------------------------------------------------------------------------

    def groups(self, tx: Sender, search: Search, place: int, most: int) -> Iterator[str]:
        """Groups with due jobs, in the order of their turns, without the refused ones."""
        turn, skip = search.turns[place], set(search.refused)
        if turn.credit > 0 and turn.group not in skip:
            yield turn.group
            skip.add(turn.group)
        for behind in (False, True):
            values = search.values() | {"limit": most + len(skip)}
            for (group,) in tx.fetch(search.claim.made(self.groups_due, place=place, behind=behind), values):
                if group not in skip:
                    yield group

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

    def groups_due(self, claim: ClaimText, *, place: int, behind: bool) -> Executable:
        """Read the groups with due jobs after the cursor; ``behind``: those up to it."""
        side = "<=" if behind else ">"
        return kept(
            f"SELECT jobs.group_key FROM {claim.jobs} WHERE {self.due(claim, 'jobs', place, 'jobs.group_key')}"
            f" AND jobs.group_key {side} :cursor_{place} AND {self.allowed(claim, place)}"
            " GROUP BY jobs.group_key ORDER BY jobs.group_key LIMIT :limit",
            "group_key",
        )

    def look_if_allowed(self, claim: ClaimText) -> Executable:
        """Read a row if the conditions allow a claim from the first range."""
        return kept(f"SELECT one.allowed FROM (SELECT 1 AS allowed) AS one WHERE {self.allowed(claim)}", "allowed")

    def take_these(self, claim: ClaimText, *, one: bool) -> Executable:
        """Claim the candidates that still have their version."""
        return kept(f"UPDATE {claim.by_id} SET {claim.set()} WHERE {matching(one=one)}", **LISTS)

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
        candidates = f"SELECT * FROM ({' UNION ALL '.join(arms)} LIMIT :limit) AS candidate{where}"
        return kept(candidates, *CANDIDATE, refused_groups=String())

    # --- parts of statements --------------------------------------------------------------------------------------------

    def allowed(self, claim: ClaimText, place: int = 0) -> str:
        """The conditions on the queue and on others, which depend on no candidate. They allow a claim from the range ``place``."""
        before = [claim.nothing_before] if claim.shape.ranges else []  # one range over all priorities has them in order
        return " AND ".join([*before, *claim.nothing_due, *self.nothing_between(claim, place)]) or "true"

    def nothing_between(self, claim: ClaimText, place: int) -> list[str]:
        """Conditions that no new priority is between those of the ranges up to ``place``. Each condition reads one index entry."""
        return [
            f"(SELECT other.priority FROM {claim.table} AS other WHERE other.queue = :in_queue"
            f" AND other.priority > :priority_{above - 1} AND other.priority < :priority_{above}"
            " ORDER BY other.priority DESC LIMIT 1) IS NULL"
            for above in range(1, place + 1)
        ]

    def used(self, claim: ClaimText, place: int) -> str:
        """The condition that the range ``place`` is one of the claim's, and that no new priority comes before it."""
        return " AND ".join([f":floor_{place} < {UNUSED}", *self.nothing_between(claim, place)])

    def is_refused(self, group: str) -> str:
        """The condition that the search refuses this group."""
        return f"{group} IN :refused_groups"

    def alone(self, claim: ClaimText, group: str) -> str:
        """The condition that no other group has jobs in the first range, due or not."""
        first = self.next_group(claim, 0, "''")
        return f"{self.next_group(claim, 0, group)} IS NULL AND {first} = {group}"

    def next_group(self, claim: ClaimText, place: int, group: str) -> str:
        """The next group after ``group`` that has jobs of a range's priority; NULL: there is none."""
        return (
            f"(SELECT next.group_key FROM {claim.table} AS next WHERE {self.of_range('next', place)}"
            f" AND next.group_key > {group} ORDER BY next.group_key LIMIT 1)"
        )

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
