"""What the server has: the tables of a layout with their jobs, and what it has spent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import column, func, select, text

from benchmarks.filling import CHUNK, numbers
from benchmarks.layouts.statements import fill
from benchmarks.layouts.tables import LAYOUTS, Layout
from queue_db import QueueDB
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import server_clock
from queue_db.dialects.clock import clock_query

#: The queue of all jobs.
QUEUE = "race"
#: Seconds for the purge of InnoDB, and how many of its changes may be left.
_PURGE, _UNPURGED = 30.0, 20
_HISTORY = text("SELECT name, count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'")


class Meter:
    """What the server has spent: processor seconds and bytes of its log (WAL, redo log)."""

    def __init__(self, db: QueueDB) -> None:
        self.db = db
        self._clock = server_clock(db.database.engine, db.database.dialect)
        self._began = (0.0, 0)
        self.postgresql = db.database.engine.dialect.name == "postgresql"

    def begin(self) -> None:
        """Begin to count."""
        self._began = self._now()

    def end(self) -> tuple[float, int]:
        """Processor seconds and bytes since :meth:`begin`."""
        cpu, log = self._now()
        return cpu - self._began[0], log - self._began[1]

    def _now(self) -> tuple[float, int]:
        with self.db.database.engine.connect() as connection:
            if self.postgresql:
                place = func.pg_wal_lsn_diff(func.pg_current_wal_insert_lsn(), "0/0")
                log = int(connection.execute(select(place)).scalar_one())
            else:
                names = "'Innodb_lsn_current', 'Innodb_redo_log_current_lsn'"
                found = connection.execute(text(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")).all()
                log = int(found[0][1])
        return (self._clock() or 0.0) if self._clock else float("nan"), log

    def rows(self, layout: Layout) -> Counter[str]:
        """Dead rows, updates and HOT updates of its tables; PostgreSQL only."""
        counted: Counter[str] = Counter()
        if self.postgresql:
            query = text(
                "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
                "WHERE relid = to_regclass(:name) AND schemaname = current_schema()"
            )
            with self.db.database.engine.connect() as connection:
                for table in layout.tables:
                    dead, updates, hot = connection.execute(query, {"name": table.name}).one()
                    counted.update(dead=dead, updates=updates, hot=hot)
        return counted

    def clean(self, layout: Layout) -> tuple[float, int]:
        """Let the server remove what claims and completions have left; return what that took, as :meth:`end`."""
        self.begin()
        if self.postgresql:
            maintain(self.db, layout)
        else:
            end = time.monotonic() + _PURGE
            while time.monotonic() < end and self._unpurged() > _UNPURGED:
                time.sleep(0.1)
        return self.end()

    def _unpurged(self) -> int:
        with self.db.database.engine.connect() as connection:
            found = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")).all()
            if not found:  # MySQL
                found = connection.execute(_HISTORY).all()
            return int(found[0][1])


def maintain(db: QueueDB, layout: Layout) -> None:
    """Vacuum and analyze its tables; on MySQL and MariaDB only analyze."""
    if db.database.engine.dialect.name == "postgresql":
        with autocommitting(db.database.engine.url.render_as_string(hide_password=False)) as engine, engine.connect() as connection:
            for table in layout.tables:
                connection.exec_driver_sql(f"VACUUM (ANALYZE) {table.name}")
        return
    with db.database.engine.connect() as connection:
        for table in layout.tables:
            Laboratory.of(db.database.dialect).analyze(connection, table)


@contextmanager
def tables(db: QueueDB, key: str, table: str, *, autovacuum: bool = False) -> Iterator[Layout]:
    """The layout ``key`` with new tables, which are dropped at the end; without autovacuum, which would run now and then."""
    layout = LAYOUTS[key](table)
    for one in layout.tables:
        options = one.dialect_options["postgresql"]
        options["with"] = {**(options["with"] or {}), "autovacuum_enabled": autovacuum}
    with db.database.engine.begin() as connection:
        layout.payloads.metadata.drop_all(connection)
        layout.payloads.metadata.create_all(connection)
    try:
        yield layout
    finally:
        with db.database.engine.begin() as connection:
            layout.payloads.metadata.drop_all(connection)


def refill(db: QueueDB, layout: Layout, size: int, payload: str, *, ago: int = 3600) -> None:
    """Empty the tables and insert ``size`` jobs, the first due ``ago`` seconds ago; vacuum and analyze."""
    with db.database.engine.begin() as connection:
        for table in layout.tables:
            connection.exec_driver_sql(f"TRUNCATE TABLE {table.name}")
    insert(db, layout, size, payload, ago=ago)
    maintain(db, layout)


def insert(db: QueueDB, layout: Layout, size: int, payload: str, *, ago: int) -> None:
    """Insert ``size`` jobs."""
    with db.database.engine.connect() as connection:
        first = connection.execute(clock_query()).scalar_one() - ago * 1_000_000
    for start in range(0, size, CHUNK):
        made = text(numbers(db.database.engine.dialect.name, min(CHUNK, size - start))).columns(column("n")).subquery("made")
        with db.database.engine.begin() as connection:
            fill(layout, connection, made, QUEUE, first + start, payload)
