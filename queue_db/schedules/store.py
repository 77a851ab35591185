"""The SQL of schedules. The scheduler that raises a schedule's version enqueues the occurrence in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, Table, func, insert, literal, select

from queue_db.model import Capability
from queue_db.schedules.recurrence import rule_of
from queue_db.store import by_key
from queue_db.store.base import Transaction


def _table(tx: Transaction) -> Table:
    found: Table = tx.tables.slices["schedules"]
    return found


def put(tx: Transaction, name: str, values: Mapping[str, Any], new: Mapping[str, Any] | None, first: int | None) -> bool | None:
    """Change the schedule, or insert it if there is none. A new rule or ``first`` changes the next occurrence.

    :param values: the columns that change.
    :param new: all columns of a new one; None: it cannot be new.
    :return: whether the schedule is new; None: there is none, and it cannot be new.
    :raises IntegrityError: another transaction has just inserted the schedule: try again.
    """
    table = _table(tx)
    before = by_key.lock(tx, table, {"name": name}, "rule", "zone")
    if before is None and new is None:
        return None
    columns = dict(values if before is not None else new or {})
    zone: str = columns["zone"] if before is None else columns.get("zone", before.zone)
    if before is None or before != (columns["rule"], zone) or first is not None:
        columns["next_at"] = rule_of(columns["rule"], zone).after(tx.read_clock()) if first is None else first
    if before is None:
        tx.connection.execute(insert(table).values(name=name, **columns))
    else:
        change(tx, name, columns)
    return before is None


def all_schedules(tx: Transaction) -> list[Row[Any]]:
    """All schedules by name."""
    table = _table(tx)
    return list(tx.connection.execute(select(table).order_by(table.c.name)))


def find_schedule(tx: Transaction, name: str) -> Row[Any] | None:
    """The schedule with this name."""
    table = _table(tx)
    return tx.connection.execute(select(table).where(table.c.name == name)).first()


def due(tx: Transaction) -> tuple[int, list[Row[Any]], int | None]:
    """The current time, the schedules that are due, and the time of the next other occurrence. Paused schedules are left out."""
    table = _table(tx)
    now = tx.read_clock()
    query = select(table).where(table.c.paused == 0, table.c.next_at <= now).order_by(table.c.next_at, table.c.name)
    rows = list(tx.connection.execute(query))
    later = select(func.min(table.c.next_at)).where(table.c.paused == 0, table.c.next_at > now)
    return now, rows, tx.connection.execute(later).scalar()


def advance(tx: Transaction, name: str, version: int, *, last_at: int | None, next_at: int) -> bool:
    """Move the schedule on to its next occurrence.

    :return: False: another transaction has moved it on or changed it, or has locked its row.
    """
    table = _table(tx)
    if Capability.SKIP_LOCKED in tx.store.capabilities:
        # Skip a locked row: the transaction that has locked it may hang, and other schedules must not wait for it.
        mine = select(table.c.name).where(table.c.name == name, table.c.version == version)
        if tx.connection.execute(tx.dialect.lock_rows(mine, skip=True)).first() is None:
            return False
    values: dict[str, Any] = {"version": version + 1, "next_at": next_at}
    if last_at is not None:
        values["last_at"] = last_at
    # Some drivers count only rows whose values change. The version always changes.
    return by_key.change(tx, table, {"name": name, "version": version}, values)


def change(tx: Transaction, name: str, values: dict[str, Any]) -> bool:
    """Change some columns of a schedule; False: there is no schedule with this name."""
    table = _table(tx)
    return by_key.change(tx, table, {"name": name}, {"version": table.c.version + 1, **values})


def remove(tx: Transaction, name: str) -> bool:
    """Delete the schedule with this name; False: there is none."""
    return by_key.delete(tx, _table(tx), {"name": name})


def knows(tx: Transaction, queue: str) -> bool:
    """Whether a schedule enqueues jobs into this queue."""
    table = _table(tx)
    return tx.connection.execute(select(literal(1)).where(table.c.queue == queue).limit(1)).first() is not None


def late(tx: Transaction, micros: int) -> list[Row[Any]]:
    """``name, late`` of the schedules whose next occurrence passed more than ``micros`` microseconds ago."""
    table = _table(tx)
    now = tx.now
    query = select(table.c.name, (now - table.c.next_at).label("late"))
    passed = query.where(table.c.paused == 0, table.c.next_at < now - micros).order_by(table.c.name)
    return list(tx.connection.execute(passed, tx.time()).all())
