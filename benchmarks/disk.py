"""How much disk waiting jobs take: ``python -m benchmarks.disk URL [JOBS] [BYTES]``, in a database that is empty otherwise.

It migrates, enqueues that many jobs (100,000) with payloads of that many bytes (100), and prints what the server says of the size.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy import make_url, text

from queue_db import QueueDB

_AT_ONCE = 10_000

#: By the name of the dialect, what makes the numbers exact, and the query for the bytes of all tables with their indexes.
_SIZES = {
    "postgresql": (
        "VACUUM ANALYZE",
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'jobs%'",
    ),
    "mysql": (
        "ANALYZE TABLE jobs",
        "SELECT SUM(file_size) FROM information_schema.innodb_tablespaces WHERE name LIKE CONCAT(DATABASE(), '/%')",
    ),
    "mariadb": (
        "ANALYZE TABLE jobs",
        "SELECT SUM(file_size) FROM information_schema.innodb_sys_tablespaces WHERE name LIKE CONCAT(DATABASE(), '/%')",
    ),
}


def taken(db: QueueDB) -> int:
    """The bytes of the tables."""
    engine = db.database.engine
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            return Path(str(engine.url.database)).stat().st_size
        tidied, query = _SIZES[engine.dialect.name]
        connection.exec_driver_sql(tidied)
        return int(connection.execute(text(query)).scalar_one())


def measured(url: str, jobs: int = 100_000, size: int = 100) -> float:
    """Bytes per waiting job."""
    with QueueDB(url) as db:
        db.migrate()
        before = taken(db)
        payload = "x" * (size - 2)  # with its quotes
        for _ in range(jobs // _AT_ONCE):
            db.queue("disk").enqueue_many([("k", payload)] * _AT_ONCE, ids=False)
        return (taken(db) - before) / jobs


if __name__ == "__main__":
    _, url, *numbers = sys.argv
    each = measured(url, *map(int, numbers))
    sys.stdout.write(f"{make_url(url).get_backend_name()}: {each:.0f} bytes per job, {each * 1e6 / 1e9:.2f} GB per million\n")
