"""The SQL of fair queues: which queues are fair, and the weights and limits of their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, and_, exists, func, insert, select

from queue_db.fairness.policy import Fair, Turns
from queue_db.fairness.rules import EACH, GROUP, PREFIX, TURN, Limit, Rules
from queue_db.fairness.tables import fairness_tables
from queue_db.groups.store import groups
from queue_db.limits.store import delete_unused
from queue_db.limits.tables import limits_tables
from queue_db.model import Group
from queue_db.store import by_key, controls
from queue_db.store.base import Transaction
from queue_db.store.schema import EVERY_MEMBER


def policies(tx: Transaction, queues: Sequence[str], before: Mapping[str, Any]) -> dict[str, Fair]:
    """The policies of these queues. A queue that had one in this process goes on with its turns."""
    table = fairness_tables(tx.tables).limits
    rows = tx.connection.execute(select(table).where(table.c.queue.in_(list(queues)))).all()
    found = {}
    for queue in queues:
        known = before.get(queue)
        rules = rules_in([row for row in rows if row.queue == queue])
        found[queue] = Fair(rules, known.turns if isinstance(known, Fair) else Turns())
    return found


def rules_in(rows: Sequence[Row[Any]]) -> Rules:
    """The rules in the rows of one queue."""
    limits = {
        scope: {row.name: Limit(row.concurrency, row.rate, row.per) for row in rows if row.scope == scope}
        for scope in (EACH, GROUP, PREFIX)
    }
    weights = {row.name: row.weight for row in rows if row.scope == GROUP and row.weight is not None}
    return Rules(weights, limits[EACH].get("", Limit()), limits[GROUP], limits[PREFIX])


def set_fair(tx: Transaction, queue: str, *, fair: bool, weights: Mapping[str, int]) -> None:
    """Make the queue fair or not, and set the weights of some groups. A repair of the groups follows.

    :raises IntegrityError: another transaction has just inserted a row: try again.
    """
    # Wait for the transactions that add jobs to groups: the repair after this change has to see the jobs that they have blocked.
    groups.lock(tx, [Group(queue, "")], every=True)
    controls.change(tx, queue, {"fair": 1, "per_group": EVERY_MEMBER} if fair else {"fair": 0})
    _keep_turn(tx, queue, fair=fair)
    for group, weight in sorted(weights.items()):
        change(tx, queue, GROUP, group, {"weight": None if weight == 1 else weight})


def _keep_turn(tx: Transaction, queue: str, *, fair: bool) -> None:
    """Make or delete the row of the turn. Only this function does, so that a queue has one such row."""
    table, key = fairness_tables(tx.tables).limits, {"queue": queue, "scope": TURN}
    if not fair:
        by_key.delete(tx, table, key)
    elif by_key.lock(tx, table, key, "name") is None:
        tx.connection.execute(insert(table).values(**key, name=""))


def change(tx: Transaction, queue: str, scope: str, name: str, values: Mapping[str, int | None]) -> None:
    """Set some columns of a rule; a rule without any value is deleted.

    :raises IntegrityError: another transaction has just inserted the row: try again.
    """
    table = fairness_tables(tx.tables).limits
    key = {"queue": queue, "scope": scope, "name": name}
    row = by_key.lock(tx, table, key)
    if row is None:
        if any(value is not None for value in values.values()):
            tx.connection.execute(insert(table).values(**key, **values))
        return
    after = {column: getattr(row, column) for column in ("weight", "concurrency", "rate", "per")} | dict(values)
    if all(value is None for value in after.values()):
        by_key.delete(tx, table, key)
    else:
        by_key.change(tx, table, key, values)


def limit(tx: Transaction, queue: str, scope: str, name: str, values: dict[str, int | None]) -> str | None:
    """Change the limits of a rule; return why not, or None.

    :raises IntegrityError: another transaction has just inserted the row: try again.
    """
    queues, table = tx.tables.queues, fairness_tables(tx.tables).limits
    row = by_key.lock(tx, queues, {"name": queue}, "fair")
    if row is None or not row.fair:
        return f"limits of groups need a fair queue: call queue({queue!r}).fair() first"
    before = by_key.lock(tx, table, {"queue": queue, "scope": scope, "name": name}, "rate", "per")
    rate = values.get("rate", None if before is None else before.rate)
    if rate is None and values.get("per") is not None:
        return "per is the time span of rate, and these groups have no rate: give rate too"
    if rate is not None and "rate" in values and values.get("per") is None and (before is None or before.per is None):
        values = {**values, "per": 1_000_000}
    change(tx, queue, scope, name, values)
    return None


def limits(tx: Transaction, queue: str) -> Sequence[Row[Any]]:
    """The rules of a queue."""
    table = fairness_tables(tx.tables).limits
    rules = select(table).where(table.c.queue == queue, table.c.scope != TURN)
    return tx.connection.execute(rules.order_by(table.c.scope, table.c.name)).all()


def full(tx: Transaction, queue: str) -> list[str]:
    """The groups, and the prefixes with an asterisk, of a queue that allow no further job now."""
    tables, permits, jobs = fairness_tables(tx.tables), limits_tables(tx.tables).permits, tx.tables.jobs
    rules, now = rules_in(limits(tx, queue)), tx.read_clock()
    held = and_(jobs.c.id == permits.c.job_id, jobs.c.claim_token == permits.c.claim_token, jobs.c.available_at > now)
    scopes = (permits.c.queue == queue, permits.c.scope.in_([GROUP, PREFIX]))
    count = select(permits.c.scope, permits.c.name, func.count()).select_from(permits.join(jobs, held)).where(*scopes)
    running = {
        (scope, name): number for scope, name, number in tx.connection.execute(count.group_by(permits.c.scope, permits.c.name))
    }
    spent = tables.spent
    used = tx.connection.execute(
        select(spent.c.scope, spent.c.name, spent.c.spent_until).where(spent.c.queue == queue, spent.c.spent_until > now)
    )
    until = {(scope, name): end for scope, name, end in used}
    found = []
    for scope, name in sorted(running.keys() | until.keys()):
        limit = rules.prefixes.get(name, Limit()) if scope == PREFIX else rules.of_group(name)
        at_once = limit.concurrency is not None and running.get((scope, name), 0) >= limit.concurrency
        per = limit.per or 1_000_000
        if at_once or (limit.rate is not None and until.get((scope, name), 0) + per / limit.rate - per > now):
            found.append(f"{name}*" if scope == PREFIX else name)
    return found


def prune(tx: Transaction, *, limit: int) -> int:
    """Delete up to ``limit`` rows of limits that nothing uses; return how many. A claim makes a row that it misses."""
    spent, permits = fairness_tables(tx.tables).spent, limits_tables(tx.tables).permits
    used = exists().where(*(permits.c[name] == spent.c[name] for name in ("queue", "scope", "name")))
    return delete_unused(tx, spent, spent.c.spent_until < tx.read_clock(), ~used, limit)
