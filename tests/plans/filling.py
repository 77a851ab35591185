"""Many jobs in little time: rows made by the server itself, not sent to it."""

from sqlalchemy import text

from queue_db import QueueDB
from queue_db.dialects.clock import now_us
from queue_db.dialects.server import long_statements

#: Jobs of a full table: a plan that reads more where more waits touches thousands of rows more.
MANY = 200_000

#: Jobs of one statement.
CHUNK = 100_000

DIGITS = " UNION ALL ".join(f"SELECT {digit} AS digit" for digit in range(10))


def numbers(kind: str, count: int) -> str:
    """A query of the numbers 0 … count-1, in order, in a column ``n``."""
    if kind == "postgresql":
        return f"SELECT n FROM generate_series(0, {count - 1}) AS n"
    if kind == "sqlite":
        return f"WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}) SELECT n FROM s"
    # A recursion on these servers is slow and limited to 1,000 steps; every combination of six digits is neither.
    places = len(str(count - 1))
    total = " + ".join(f"t{place}.digit * {10**place}" for place in range(places))
    digits = ", ".join(f"({DIGITS}) t{place}" for place in range(places))
    return f"SELECT n FROM (SELECT {total} AS n FROM {digits}) every WHERE n < {count} ORDER BY n"


def fill(db: QueueDB, queue: str, count: int, *, due_in: int, priority: str = "0") -> None:
    """Put ``count`` jobs into ``queue``, one microsecond apart, the first due ``due_in`` seconds from now.

    ``priority`` is an expression over ``n``, the number of the job.
    """
    engine = db.database.engine
    clock = now_us().compile(dialect=engine.dialect)
    due = f"{clock} + ({due_in * 1_000_000}) + n"
    # On a busy machine one of them, or the commit, takes longer than the limit on network waits.
    with engine.connect() as connection, long_statements(connection), connection.begin():
        for first in range(0, count, CHUNK):
            made = f"SELECT n + {first} AS n FROM ({numbers(engine.dialect.name, min(CHUNK, count - first))}) made"
            connection.execute(
                text(
                    f"INSERT INTO {db.store.tables.jobs} (queue, payload, priority, available_at) "
                    f"SELECT '{queue}', 'null', {priority}, {due} FROM ({made}) chunk"
                )
            )
