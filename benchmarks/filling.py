"""Fills tables with millions of jobs quickly: the server generates the rows."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Table, text

from queue_db import QueueDB
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.dialects.clock import now_us

#: Rows per statement, so that none exceeds the driver's read timeout.
CHUNK = 100_000

_DIGITS = " UNION ALL ".join(f"SELECT {digit} AS digit" for digit in range(10))


def numbers(dialect: str, count: int) -> str:
    """Return a query of the numbers 0 … count-1, in order, in a column ``n``."""
    if dialect == "postgresql":
        return f"SELECT n FROM generate_series(0, {count - 1}) AS n"  # noqa: S608 - a number of our own
    if dialect == "sqlite":
        counted = f"SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}"  # noqa: S608
        return f"WITH RECURSIVE s(n) AS ({counted}) SELECT n FROM s"  # noqa: S608
    # Recursion on these servers is slow and limited to 1,000 steps, so digits are combined instead.
    places = len(str(count - 1))
    total = " + ".join(f"t{place}.digit * {10**place}" for place in range(places))
    digits = ", ".join(f"({_DIGITS}) t{place}" for place in range(places))
    return f"SELECT n FROM (SELECT {total} AS n FROM {digits}) every WHERE n < {count} ORDER BY n"  # noqa: S608


def fill(db: QueueDB, queue: str, count: int, *, due_ago: int, say: Callable[[str], None] = print) -> None:
    """Insert ``count`` jobs into ``queue``, one microsecond apart; the first has been due for ``due_ago`` seconds."""
    engine = db.database.engine
    with engine.connect() as connection:
        first = connection.execute(text(f"SELECT {now_us().compile(dialect=engine.dialect)}")).scalar_one() - due_ago * 1_000_000
        connection.commit()
    for start in range(0, count, CHUNK):
        made = numbers(engine.dialect.name, min(CHUNK, count - start))
        statement = text(
            f"INSERT INTO {db.store.tables.jobs} (queue, payload, available_at) "  # noqa: S608 - names and numbers of our own
            f"SELECT '{queue}', 'null', {first + start} + n FROM ({made}) made"
        )
        with engine.begin() as connection:
            connection.execute(statement)
        if start and start % 1_000_000 == 0:
            say(f"    {start:,} jobs inserted")


def tidy(db: QueueDB, table: Table | None = None) -> None:
    """Run the maintenance (vacuum, statistics) of a table that the server would otherwise run during the measurement.

    :param table: default: the jobs.
    """
    table = db.store.tables.jobs if table is None else table
    if db.database.engine.dialect.name == "postgresql":
        with autocommitting(db.database.engine.url.render_as_string(hide_password=False)) as engine, engine.connect() as connection:
            connection.exec_driver_sql(f"VACUUM (ANALYZE) {table}")
        return
    with db.database.engine.connect() as connection:
        Laboratory.of(db.database.dialect).analyze(connection, table)
        connection.commit()
