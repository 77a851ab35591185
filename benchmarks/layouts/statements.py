"""The statements of each layout: enqueue, claim, complete, extend, and bring back what has expired. In the way of each database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Text,
    bindparam,
    func,
    insert,
    literal,
    null,
    select,
    text,
    update,
)

from benchmarks.layouts.tables import Layout, Taking
from queue_db.dialects import Dialect
from queue_db.dialects.clock import now_us
from queue_db.dialects.transactions import Sender

#: Below every low-water mark.
BEGINNING = -(2**62)

Pairs = Sequence[tuple[int, int]]

#: Parameters, with their types: PostgreSQL prepares the statements.
VALUES: dict[str, Any] = {
    name: bindparam(name, type_=kind)
    for name, kind in {
        "in_queue": String(100),
        "floor": BigInteger(),
        "limit": Integer(),
        "start": Integer(),
        "lease": BigInteger(),
        "token": String(36),
        "by_worker": String(100),
    }.items()
}


@dataclass(frozen=True)
class Claimed:
    """A job that was claimed.

    :param mark: where it stands in the order of claims.
    """

    id: int
    version: int
    payload: str
    mark: int


class Statements(ABC):
    """The statements of ``layout``. Each runs in a transaction of ``Database.run`` with ``lazy=True``: it commits once."""

    def __init__(self, layout: Layout, dialect: Dialect) -> None:
        self.layout, self.dialect = layout, dialect

    @lru_cache  # noqa: B019 - one object lives as long as its process
    def look(self, *, skip: bool) -> Select[Any]:
        """Read the candidates of a claim."""
        rows, order = self.layout.waiting, [self.layout.waiting.c[name] for name in self.layout.order]
        found = select(rows).where(
            rows.c.queue == VALUES["in_queue"],
            rows.c.priority == 0,
            order[0] >= VALUES["floor"],
            rows.c.available_at <= now_us(),
            *self._free(),
        )
        found = found.order_by(*dict.fromkeys(order)).limit(VALUES["limit"]).offset(VALUES["start"])
        return found.with_for_update(skip_locked=True) if skip else found

    def _free(self) -> list[ColumnElement[bool]]:
        """What distinguishes a waiting row from a leased one, where it is not its due time."""
        if self.layout.taking is Taking.NOTE:
            # A subquery stays a look at one entry; a join planned while there are no leases would read all of them.
            leased = self.layout.leased
            return [select(leased.c.id).where(leased.c.id == self.layout.waiting.c.id).scalar_subquery().is_(None)]
        return [self.layout.waiting.c.claim_token.is_(None)] if self.layout.by_token else []

    def changed(self, rows: Any) -> dict[str, Any]:
        """What a claim sets, as the product does."""
        padding = {"padding": null()} if "padding" in self.layout.waiting.c else {}
        return padding | {
            "due_at": rows.c.available_at,
            "available_at": now_us() + VALUES["lease"],
            # With a lease in another table the job's version is that of its next lease, and whoever ends the lease raises it.
            "version": rows.c.version + (0 if self.layout.taking is Taking.NOTE else 1),
            "attempts": rows.c.attempts + 1,
            "claim_token": VALUES["token"],
            "worker": VALUES["by_worker"],
        }

    def leased_from(self, rows: Any) -> tuple[list[str], list[Any]]:
        """Names and values of a row of ``leased``, for a row of ``waiting``."""
        changed = self.changed(rows)
        names = [one.name for one in self.layout.leased.c]
        return names, [changed[name] if name in changed else rows.c[name] for name in names]

    def waiting_from(self, rows: Any) -> tuple[list[str], list[Any]]:
        """Names and values of a row of ``waiting``, for a row of ``leased`` that has expired: it is due now."""
        changed = {"available_at": now_us(), "claim_token": null()}
        names = [one.name for one in self.layout.waiting.c if one.name in self.layout.leased.c]
        return names, [changed[name] if name in changed else rows.c[name] for name in names]

    @abstractmethod
    def claim(self, connection: Connection, values: dict[str, Any], *, skip: bool) -> list[Claimed]:
        """Lease candidates; the fence of each is (id, version)."""

    @abstractmethod
    def complete(self, connection: Connection, pairs: Pairs) -> int:
        """Delete jobs whose lease still holds; return how many."""

    @abstractmethod
    def bring_back(self, connection: Connection, limit: int) -> int:
        """Make jobs due whose lease has ended; return how many."""

    @abstractmethod
    def enqueue(self, connection: Connection, queue: str, payloads: Sequence[str]) -> None:
        """Insert jobs that are due."""

    def due(self, connection: Connection, queue: str) -> bool:
        """Whether a claim would find a candidate."""
        values = {"in_queue": queue, "floor": BEGINNING, "limit": 1, "start": 0}
        return bool(Sender(connection, self.dialect).fetch(self.look(skip=False), values))

    def extend(self, connection: Connection, pairs: Pairs, lease: int) -> int:
        """Move the end of leases; return how many still held."""
        return Sender(connection, self.dialect).execute(self._extension, {"lease": lease} | self.given(pairs))

    @cached_property
    def _extension(self) -> Any:
        rows = self.layout.leased
        return self.by_id(update(rows).where(self.matching()).values(available_at=now_us() + VALUES["lease"]))

    def by_id(self, statement: Any) -> Any:
        """The statement with a hint, where the database needs one."""
        return self.dialect.by_id(statement, self.layout.leased)

    def matching(self, *, one: bool = False) -> Any:
        """Rows whose (id, version) is one of :meth:`given`."""
        lists = {} if one else self.dialect.lists
        types = [bindparam(name, type_=kind, expanding=not isinstance(kind, ARRAY)) for name, kind in lists.items()]
        return text(self.dialect.matching(one=one)).bindparams(*types)

    def given(self, pairs: Pairs) -> dict[str, Any]:
        """The parameters of :meth:`matching`."""
        ordered = sorted(pairs)
        return {"of_ids": [job_id for job_id, _ in ordered], "of_pairs": ordered}


def fill(layout: Layout, connection: Connection, numbers: Any, queue: str, first: int, payload: str) -> None:
    """Insert a job for each of ``numbers``, a selectable with a column ``n``; due a microsecond apart from ``first`` on."""
    jobs, waiting = layout.payloads, layout.waiting
    source = select(literal(queue), literal(payload, Text), literal(first, BigInteger) + numbers.c.n)
    before = connection.execute(select(func.coalesce(func.max(jobs.c.id), 0))).scalar_one()
    connection.execute(insert(jobs).from_select(["queue", "payload", "available_at"], source))
    if layout.narrow:
        names = ["id", "queue", "priority", "available_at"]
        new = select(*(jobs.c[name] for name in names)).where(jobs.c.id > before)
        connection.execute(insert(waiting).from_select(names, new))
