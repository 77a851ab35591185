"""Cut a batch into ranges of ids with about as many jobs each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Integer, Row, and_, cast, func, select

from queue_db.spark.dialects.base import keeps_row
from queue_db.spark.tables import spark_tables
from queue_db.store.base import Transaction

# Jobs below this many are not worth a partition of their own.
_WORTH = 1000

# A batch is counted in this many equal ranges of ids for each partition.
_FINENESS = 16


def batch_ranges(tx: Transaction, stream: int, batch: int, partitions: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """Cut a batch into ranges of ids with about as many jobs each.

    Returns the ranges, the number of jobs with a row in the jobs table too, and the creation time of the oldest.
    """
    held = spark_tables(tx.tables).held
    mine = and_(held.c.stream == stream, held.c.batch == batch)
    low, high = tx.connection.execute(select(func.min(held.c.id), func.max(held.c.id)).where(mine)).one()
    keyed = cast(keeps_row(held), Integer).label("keyed")
    width = max(1, -(-(high - low + 1) // (partitions * _FINENESS)))
    counted = _counted(
        tx.connection,
        select(held.c.id, keyed, held.c.created_at, ((held.c.id - low) // width).label("place")).where(mine).subquery(),
    )
    total = sum(row.jobs for row in counted)
    most = max(_WORTH, -(-total // partitions))
    parts = _merged(counted, most, partitions)
    if max(jobs for _, _, jobs in parts) > most + most // 2:
        # The ids are sparse or clustered: equal shares take longer to find.
        shares = func.ntile(min(partitions, -(-total // _WORTH))).over(order_by=held.c.id).label("place")
        counted = _counted(tx.connection, select(held.c.id, keyed, held.c.created_at, shares).where(mine).subquery())
        parts = [(row.low, row.high, row.jobs) for row in counted]
    return parts, sum(int(row.keyed) for row in counted), min(row.oldest for row in counted)


def _merged(counted: Sequence[Row[Any]], most: int, partitions: int) -> list[tuple[int, int, int]]:
    """Merge neighbouring ranges up to ``most`` jobs."""
    parts: list[tuple[int, int, int]] = []
    for row in counted:
        if parts and (parts[-1][2] + row.jobs <= most or len(parts) == partitions):
            first, _, jobs = parts[-1]
            parts[-1] = (first, row.high, jobs + row.jobs)
        else:
            parts.append((row.low, row.high, row.jobs))
    return parts


def _counted(connection: Connection, rows: Any) -> Sequence[Row[Any]]:
    """Counts of the jobs by ``place``, in order."""
    return connection.execute(
        select(
            rows.c.place,
            func.min(rows.c.id).label("low"),
            func.max(rows.c.id).label("high"),
            func.count().label("jobs"),
            func.sum(rows.c.keyed).label("keyed"),
            func.min(rows.c.created_at).label("oldest"),
        )
        .group_by(rows.c.place)
        .order_by(rows.c.place)
    ).all()
