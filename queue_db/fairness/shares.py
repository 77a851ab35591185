"""What the groups of a fair queue do now, for people: how many jobs of each run, and how many are due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import and_, case, func, select

from queue_db.db import QueueDB
from queue_db.fairness.rules import GROUP, PREFIX
from queue_db.limits.tables import limits_tables
from queue_db.model import GroupLimit
from queue_db.store.base import Transaction

#: Groups that are returned.
MOST = 50

#: Jobs of one group, and of each state of the queue, that are looked at.
MOST_JOBS = 200


@dataclass(frozen=True, slots=True)
class Share:
    """A group, or the groups with a prefix, and what was set for it."""

    rule: GroupLimit
    most: int | None  #: most jobs that may run at once, also by the limit of each group
    running: int
    due: int
    cut: bool  #: more jobs may be due than were looked at; more may run if there is no limit

    @property
    def full(self) -> bool:
        """Whether no more jobs may run now."""
        return self.most is not None and self.running >= self.most


@dataclass(frozen=True, slots=True)
class Shares:
    """The groups of a queue."""

    each: GroupLimit | None  #: what was set for each group
    listed: list[Share]  #: the groups for which something was set, and those with jobs
    cut: bool  #: there may be more of them


class _Seen(NamedTuple):
    """The jobs of a group, of :data:`MOST_JOBS` that are looked at."""

    running: int = 0
    due: int = 0
    looked_at: int = 0


def shares(db: QueueDB, queue: str) -> Shares:
    """The groups of a queue now."""
    found = db.queue(queue)
    limits = found.group_limits()
    each = next((one for one in limits if one.group is None and one.prefix is None), None)
    rules = [one for one in limits if one is not each]
    pages = [found.jobs(state, limit=MOST_JOBS) for state in ("running", "available")]
    busy = Counter(job.group for page in pages for job in page.jobs if job.group is not None)
    known = {one.group for one in rules}
    others = [GroupLimit(group, None, 1, None, None, None) for group, _ in busy.most_common() if group not in known]
    listed = [*rules, *others][:MOST]
    cut = len(rules) + len(others) > MOST or any(page.after is not None for page in pages)
    seen, held = db.core.read("shares", _read, queue, listed)
    of_groups = {
        one.group: _share(one, each, held.get((GROUP, one.group)), seen[one.group]) for one in listed if one.group is not None
    }
    of_prefixes = []
    for one in listed:
        if one.prefix is not None:
            # The groups that are listed, together.
            mine = [share for group, share in of_groups.items() if group.startswith(one.prefix)]
            together = _Seen(sum(share.running for share in mine), sum(share.due for share in mine))
            share = _share(one, None, held.get((PREFIX, one.prefix)), together)
            of_prefixes.append(replace(share, cut=cut or any(share.cut for share in mine)))
    return Shares(each, [*of_prefixes, *of_groups.values()], cut)


def _share(rule: GroupLimit, each: GroupLimit | None, held: int | None, seen: _Seen) -> Share:
    """Under a limit of concurrency the permits tell exactly how many jobs run."""
    most = each.concurrency if rule.concurrency is None and each is not None else rule.concurrency
    return Share(rule, most, seen.running if most is None else held or 0, seen.due, seen.looked_at >= MOST_JOBS)


def _read(tx: Transaction, queue: str, listed: Sequence[GroupLimit]) -> tuple[dict[str, _Seen], dict[tuple[str, str], int]]:
    """What is seen of each group, and how many jobs run under each limit, by its scope and name."""
    jobs, permits, now = tx.tables.jobs, limits_tables(tx.tables).permits, tx.read_clock()
    seen = {}
    for group in (one.group for one in listed if one.group is not None):
        of_queue = select(jobs.c.available_at, jobs.c.claim_token).where(jobs.c.queue == queue, jobs.c.delete_mark == 0)
        some = tx.dialect.by_group(of_queue, jobs, group, -1).limit(MOST_JOBS).subquery("some")
        runs = and_(some.c.available_at > now, some.c.claim_token.is_not(None))
        numbers = [func.coalesce(func.sum(case((one, 1), else_=0)), 0) for one in (runs, some.c.available_at <= now)]
        row = tx.connection.execute(select(*numbers, func.count()).select_from(some)).one()
        seen[group] = _Seen(*(int(number) for number in row))
    names = [one.group or one.prefix for one in listed]
    holds = and_(jobs.c.id == permits.c.job_id, jobs.c.claim_token == permits.c.claim_token, jobs.c.available_at > now)
    query = select(permits.c.scope, permits.c.name, func.count()).join(jobs, holds)
    query = query.where(permits.c.queue == queue, permits.c.name.in_(names)).group_by(permits.c.scope, permits.c.name)
    return seen, {(scope, name): int(number) for scope, name, number in tx.connection.execute(query)} if names else {}
