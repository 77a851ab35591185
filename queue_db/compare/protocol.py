"""The article's protocol table, for ``--verify``: workers insert one row per execution.

The database itself records the order of executions; the price is one commit per batch, so these runs are slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import BigInteger, Column, Double, Engine, Integer, MetaData, Table, insert, select

from queue_db.compare.contestant import Target
from queue_db.compare.engines import autocommitting


class Protocol:
    """The protocol table of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.table = Table(
            "protocol",
            MetaData(schema=target.schema),
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
            Column("tstamp", Double, nullable=False),
            Column("worker", Integer, nullable=False),
            Column("job", BigInteger, nullable=False),
        )

    def make(self, engine: Engine) -> None:
        """Create the table, replacing an old one."""
        self.table.drop(engine, checkfirst=True)
        self.table.create(engine)

    def read(self, engine: Engine) -> tuple[tuple[int, int], ...]:
        """Return ``(job, worker)`` of all executions, in order."""
        with engine.connect() as connection:
            rows = connection.execute(select(self.table.c.job, self.table.c.worker).order_by(self.table.c.id))
            return tuple((row.job, row.worker) for row in rows)

    @contextmanager
    def writer(self, worker: int) -> Iterator[Callable[[Sequence[int], Sequence[float]], None]]:
        """Yield a function that inserts executions, on a connection of its own."""
        with autocommitting(self._target.url) as engine, engine.connect() as connection:

            def write(jobs: Sequence[int], times: Sequence[float]) -> None:
                rows = [{"tstamp": when, "worker": worker, "job": job} for job, when in zip(jobs, times, strict=True)]
                connection.execute(insert(self.table), rows)

            yield write
