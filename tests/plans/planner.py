"""What the planner knows of a table, put into the states that a queue meets in its life."""

from sqlalchemy import Table, text

from queue_db import QueueDB
from tests.idle import release

#: Analysed when there was next to nothing in it · left alone since it was made · analysed as it is.
STATES = ("analysed while empty", "never analysed", "analysed")


def keep_still(db: QueueDB, *tables: Table) -> None:
    """Stop the server from analysing the table when it sees fit: the tests say when."""
    still = "ALTER TABLE {t} STATS_PERSISTENT = 1 STATS_AUTO_RECALC = 0"
    _run(db, {"postgresql": "ALTER TABLE {t} SET (autovacuum_enabled = false)", "mysql": still, "mariadb": still}, tables)


def analyse(db: QueueDB, *tables: Table) -> None:
    """Let the planner learn what is in the table now."""
    keep_still(db, *tables)
    innodb = "ANALYZE TABLE {t}"
    _run(db, {"postgresql": "ANALYZE {t}", "sqlite": "ANALYZE {t}", "mysql": innodb, "mariadb": innodb}, tables)


def forget(db: QueueDB, *tables: Table) -> None:
    """Throw away what an ANALYZE found: the planner then looks at the size, as it does for a table never analysed."""
    own = "SELECT '{t}'::regclass::oid UNION SELECT indexrelid FROM pg_index WHERE indrelid = '{t}'::regclass"
    catalog = "DELETE FROM pg_statistic WHERE starelid = '{t}'::regclass"
    sizes = f"UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid IN ({own})"
    transient = "ALTER TABLE {t} STATS_PERSISTENT = 0"
    # The ANALYZE makes the table of statistics, where there is none yet.
    whole = "ANALYZE {t}; DELETE FROM sqlite_stat1 WHERE tbl = '{t}'"
    _run(db, {"postgresql": f"{catalog}; {sizes}", "sqlite": whole, "mysql": transient, "mariadb": transient}, tables)


def renew(db: QueueDB) -> None:
    """Let plans be made anew, of the tables as they are now: those that are prepared belong to a connection."""
    release(db)
    db.database.engine.dispose()


def _run(db: QueueDB, statements: dict[str, str], tables: tuple[Table, ...]) -> None:
    """Run them on each of ``tables``; without any on that of the jobs."""
    engine = db.database.engine
    statement = statements.get(engine.dialect.name)
    if statement is None:
        return
    with engine.begin() as connection:
        for table in tables or (db.store.tables.jobs,):
            for part in statement.format(t=table).split("; "):
                connection.execute(text(part)).close()
    engine.dispose()  # SQLite reads its statistics when a connection is opened
