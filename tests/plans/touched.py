"""How much of a table a verb touches: the plan of each of its statements, and what was really read."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Table, event

from queue_db import QueueDB
from tests.idle import release

# PostgreSQL's ways to read a table. A bitmap reads all that it is asked for before anybody can stop it, which suits a list of ids;
# were it taken for a range of due jobs, the number of rows would tell.
RANGES = ("Index Scan", "Index Only Scan", "Bitmap Heap Scan")
SCANS = (*RANGES, "Seq Scan", "Tid Scan", "Sample Scan")


@dataclass
class Touched:
    """What one verb did."""

    #: Rows of the table that were read, and thrown away or not (PostgreSQL), row reads (MySQL, MariaDB), machine steps (SQLite).
    rows: int = 0
    #: Pages looked at: in shared buffers on PostgreSQL; in the buffer pool, by the queries alone, on MySQL and MariaDB.
    pages: int = 0
    #: Indexes through which the table was read.
    indexes: set[str] = field(default_factory=set)
    #: Parts of plans that read the table otherwise, or sort what they read of it: none is wanted.
    bad: list[str] = field(default_factory=list)
    #: Sorts of what was read before: a window of jobs is sorted, nothing else.
    sorts: list[str] = field(default_factory=list)
    #: The plans as the server tells them, for the message of a failed test.
    plans: list[Any] = field(default_factory=list)


@contextmanager
def the_connection(db: QueueDB) -> Iterator[Connection]:
    """The only connection that there is, taken out of the library's hands."""
    release(db)
    with db.database.engine.connect() as connection:
        yield connection


@contextmanager
def captured(engine: Engine, table: str) -> Iterator[list[tuple[str, Any]]]:
    """The statements on ``table`` that run inside, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        # A prepared statement does not name its table any more; PREPARE itself, once for a connection, touches nothing.
        named = table in statement and not statement.startswith(("EXPLAIN", "PREPARE", "DEALLOCATE"))
        if named or statement.startswith("EXECUTE"):
            # One row of many shows the plan of all.
            seen.append((statement, parameters[0] if executemany and isinstance(parameters, Sequence) else parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def watch(db: QueueDB, act: Callable[[], object], *tables: Table) -> Touched:
    """Run ``act``, whose statements can be run again afterwards with the same meaning, and tell what they touch.

    A claim is such an act: what it took is gone, and the next jobs stand in its place.

    :param tables: those to look at; without any that of the jobs.
    """
    engine = db.database.engine
    look = {"postgresql": _postgresql, "sqlite": _sqlite}.get(engine.dialect.name, _mysql)
    names = {table.name for table in tables} or {db.store.tables.name}
    # Plans show what a statement calls a table, which claims call ``jobs``.
    return look(db, act, names | {"jobs"} if db.store.tables.name in names else names)


def _postgresql(db: QueueDB, act: Callable[[], object], tables: set[str]) -> Touched:
    table = db.store.tables.name
    release(db)
    with captured(db.database.engine, table) as statements:
        act()
    touched = Touched()
    # What is prepared is prepared on the one connection of these tests.
    with the_connection(db) as connection:
        connection.exec_driver_sql("BEGIN")
        for statement, parameters in statements:
            found = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters).scalar_one()
            plan = found if isinstance(found, list) else json.loads(found)
            top = plan[0]["Plan"]
            touched.plans.append(top)
            touched.pages += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
            for node in _nodes(top):
                if "Index Name" in node:
                    touched.indexes.add(node["Index Name"])
                if node["Node Type"] not in SCANS or node.get("Relation Name") not in tables:
                    continue
                if node["Node Type"] not in RANGES:
                    touched.bad.append(node["Node Type"])
                each = sum(node.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"))
                touched.rows += round(each * node["Actual Loops"])
        connection.exec_driver_sql("ROLLBACK")
        connection.rollback()
    return touched


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _mysql(db: QueueDB, act: Callable[[], object], tables: set[str]) -> Touched:
    engine, table = db.database.engine, db.store.tables.name
    touched = Touched()
    # The handlers' counters belong to a session: these tests have one connection.
    before = _counters(db)
    own = {name: value - before[name] for name, value in _counters(db).items()}
    start = _counters(db)
    with captured(engine, table) as statements:
        act()
    spent = {name: value - start[name] - own[name] for name, value in _counters(db).items()}
    touched.rows = sum(value for name, value in spent.items() if name.startswith("Handler_read"))
    touched.pages = _pages_read(engine, [one for one in statements if one[0].startswith("SELECT")])
    with engine.connect() as connection:
        for statement, parameters in statements:
            for row in connection.exec_driver_sql(f"EXPLAIN FORMAT=TRADITIONAL {statement}", parameters).mappings():
                line = dict(row)
                touched.plans.append(line)
                extra = line["Extra"] or ""
                if line["table"] not in tables or line["select_type"] == "INSERT":
                    continue  # a derived table, a row from nowhere, or the table that is written to
                touched.indexes.add(line["key"] or "")
                if line["type"] not in ("range", "ref", "eq_ref", "const") or "filesort" in extra or "temporary" in extra:
                    touched.bad.append(f"{line['type']} {line['key']} {extra}")
        connection.rollback()
    return touched


def _counters(db: QueueDB) -> dict[str, int]:
    with the_connection(db) as connection:
        found = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler\\_read%%'").all()
        connection.rollback()
    return {name: int(value) for name, value in found}


def _pages_read(engine: Engine, queries: list[tuple[str, Any]]) -> int:
    """The pages that ``queries`` look at."""
    if engine.dialect.is_mariadb:
        # The server tells them for each statement; its counter for all threads stands still while a connection is open (11.8).
        with engine.connect() as connection:
            plans = [connection.exec_driver_sql(f"ANALYZE FORMAT=JSON {query}", values).scalar_one() for query, values in queries]
            connection.rollback()
        return sum(int(pages) for plan in plans for pages in re.findall(r'"pages_accessed": (\d+)', plan))
    # This server counts for all its threads, so the quietest of a few runs counts.
    runs = []
    with engine.connect() as connection:
        for _ in range(5):
            before = _requests(connection)
            for statement, parameters in queries:
                connection.exec_driver_sql(statement, parameters).all()
            runs.append(_requests(connection) - before)
            connection.rollback()
    return min(runs)


def _requests(connection: Connection) -> int:
    query = "SHOW GLOBAL STATUS LIKE 'Innodb\\_buffer\\_pool\\_read\\_requests'"
    return int(connection.exec_driver_sql(query).one()[1])


def _sqlite(db: QueueDB, act: Callable[[], object], tables: set[str]) -> Touched:
    engine, table = db.database.engine, db.store.tables.name
    touched = Touched()

    def step() -> int:
        touched.rows += 1
        return 0

    # The handler belongs to a connection: these tests have one.
    with the_connection(db) as connection:
        connection.connection.driver_connection.set_progress_handler(step, 1)
    try:
        with captured(engine, table) as statements:
            act()
    finally:
        with the_connection(db) as connection:
            connection.connection.driver_connection.set_progress_handler(None, 1)
    with engine.connect() as connection:
        for statement, parameters in statements:
            for *_, line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                touched.plans.append(line)
                if line.startswith(("SEARCH", "SCAN")) and line.split()[1] in tables:
                    if line.startswith("SCAN"):
                        touched.bad.append(line)
                    touched.indexes.add(line.partition("INDEX ")[2].partition(" ")[0] if "INDEX " in line else "primary key")
                elif "TEMP B-TREE" in line:
                    touched.sorts.append(line)
    return touched
