"""Layouts of the jobs: which tables there are, and which index a claim reads. Each is made from the product's own table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sqlalchemy import CHAR, BigInteger, Column, DefaultClause, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import BIG_ID, MYSQL, POSTGRESQL_CHURN, QUEUE_LENGTH, TOKEN_LENGTH, WORKER_LENGTH
from queue_db.store.schema import jobs as schema

#: The name of the worker of all claims.
WORKER = "host-17.example.net:12345"


class Taking(Enum):
    """What a claim does with the row that it has found."""

    CHANGE = "change"  #: update it
    MOVE = "move"  #: delete it, and insert it into another table
    NOTE = "note"  #: leave it, and insert a lease into another table


@dataclass(frozen=True, eq=False)
class Layout:
    """Tables, and where a claim finds what is due.

    :param payloads: has the payload of each job.
    :param waiting: what a claim reads; it has id, version and ``order``.
    :param order: columns of ``waiting`` in the order of a claim; the first is that of the low-water mark.
    :param leased: where the end of a lease stands.
    :param by_token: whether only the claim token tells a leased row from a waiting one.
    :param returned: whether somebody must bring back the jobs whose lease has ended.
    """

    name: str
    taking: Taking
    payloads: Table
    waiting: Table
    leased: Table
    order: tuple[str, str] = ("available_at", "id")
    by_token: bool = False
    returned: bool = True

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, each once."""
        return tuple(dict.fromkeys((self.payloads, self.waiting, self.leased)))

    @property
    def narrow(self) -> bool:
        """Whether the payloads are not in the table that a claim reads."""
        return self.payloads is not self.waiting


def _jobs(name: str, *, claim_index: bool = True, fillfactor: int | None = None) -> Table:
    table = schema.jobs(name, MetaData())
    if not claim_index:
        table.indexes -= {index for index in table.indexes if index.name == f"{name}_claim"}
    if fillfactor is not None:
        table.dialect_options["postgresql"]["with"] = POSTGRESQL_CHURN | {"fillfactor": fillfactor}
    return table


def _without_padding(name: str) -> Table:
    """InnoDB stores nothing of a column that is NULL."""
    jobs = _jobs(name)
    jobs.c.padding.server_default = None
    return jobs


def _leased(name: str, metadata: MetaData) -> Table:
    """Leases: ``available_at`` is their end, as in the jobs. It has no index: whoever looks for what has expired reads them all."""
    return Table(
        f"{name}_leased",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("available_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("claim_token", String(TOKEN_LENGTH)),
        Column("worker", String(WORKER_LENGTH)),
        postgresql_with=POSTGRESQL_CHURN,
        **MYSQL,
    )


def _today(name: str) -> Layout:
    jobs = _jobs(name)
    return Layout("today", Taking.CHANGE, jobs, jobs, jobs, returned=False)


def _leases(name: str) -> Layout:
    jobs = _jobs(name)
    return Layout("leases", Taking.NOTE, jobs, jobs, _leased(name, jobs.metadata))


def _moving(name: str) -> Layout:
    jobs = _jobs(name)
    # All columns of a job, with the indexes that its uniqueness and its group need there too, but not that of the claim.
    leased = schema.jobs(f"{name}_leased", jobs.metadata)
    leased.indexes -= {index for index in leased.indexes if index.name == f"{name}_leased_claim"}
    leased.c.id.autoincrement = False
    return Layout("moving", Taking.MOVE, jobs, jobs, leased)


def _narrow(name: str) -> Layout:
    jobs = _jobs(name, claim_index=False)
    due = Table(
        f"{name}_due",
        jobs.metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("available_at", BigInteger, nullable=False, server_default=now_us()),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        postgresql_with=POSTGRESQL_CHURN,
        **MYSQL,
    )
    Index(f"{name}_claim", due.c.queue, due.c.priority, due.c.available_at, due.c.id)
    return Layout("narrow", Taking.MOVE, jobs, due, _leased(name, jobs.metadata))


def _hot(name: str, fillfactor: int | None = None, suffix: str = "") -> Layout:
    """``available_at`` in no index: on PostgreSQL a claim leaves all indexes as they are."""
    jobs = _jobs(name, claim_index=False, fillfactor=fillfactor)
    Index(f"{name}_claim", jobs.c.queue, jobs.c.priority, jobs.c.id)
    return Layout(f"hot{suffix}", Taking.CHANGE, jobs, jobs, jobs, order=("id", "id"), returned=False)


def _unpadded(name: str) -> Layout:
    """With nothing in the column that a claim empties: rows grow on their pages (InnoDB)."""
    jobs = _without_padding(name)
    return Layout("unpadded", Taking.CHANGE, jobs, jobs, jobs, returned=False)


def _sized(name: str) -> Layout:
    """The columns that a claim sets have values of that size from the beginning: InnoDB writes the new ones over them."""
    jobs = _without_padding(name)
    for column, default in (("due_at", "0"), ("claim_token", f"'{32 * '-'}'"), ("worker", f"'{len(WORKER) * '-'}'")):
        jobs.c[column].server_default = DefaultClause(text(default))
    return Layout("sized", Taking.CHANGE, jobs, jobs, jobs, returned=False)


def _fixed(name: str) -> Layout:
    """As sized, with columns of a fixed length: an empty text in them is as long as a full one, so a name may have any length."""
    jobs = _without_padding(name)
    for column, length, default in (("due_at", None, "0"), ("claim_token", TOKEN_LENGTH, "''"), ("worker", WORKER_LENGTH, "''")):
        jobs.c[column].server_default = DefaultClause(text(default))
        if length is not None:
            jobs.c[column].type = CHAR(length)
    return Layout("fixed", Taking.CHANGE, jobs, jobs, jobs, returned=False)


def _partial(name: str) -> Layout:
    """Two partial indexes: a claim moves the job's entry from that of what waits to that of what is leased."""
    jobs = _jobs(name, claim_index=False)
    waits = jobs.c.claim_token.is_(None)
    Index(f"{name}_claim", jobs.c.queue, jobs.c.priority, jobs.c.available_at, jobs.c.id, postgresql_where=waits)
    Index(f"{name}_leased_end", jobs.c.available_at, postgresql_where=~waits)
    return Layout("partial", Taking.CHANGE, jobs, jobs, jobs, by_token=True)


def _filled(fillfactor: int) -> Callable[[str], Layout]:
    def layout(name: str) -> Layout:
        jobs = _jobs(name, fillfactor=fillfactor)
        return Layout(f"today {fillfactor}", Taking.CHANGE, jobs, jobs, jobs, returned=False)

    return layout


#: All layouts by their names, each made with the names of its tables.
LAYOUTS: dict[str, Callable[[str], Layout]] = {
    "today": _today,
    "leases": _leases,
    "moving": _moving,
    "narrow": _narrow,
    "hot": _hot,
    "unpadded": _unpadded,
    "sized": _sized,
    "fixed": _fixed,
    "partial": _partial,
    "today-70": _filled(70),
    "today-90": _filled(90),
    "hot-70": lambda name: _hot(name, 70, " 70"),
    "hot-90": lambda name: _hot(name, 90, " 90"),
}

#: Those that differ from today's only on PostgreSQL.
POSTGRESQL_ONLY = ("partial", "today-70", "today-90", "hot-70", "hot-90")
