"""What others may add, written as they would: a SQLAlchemy dialect that nobody knows, our seam for it, and a strategy."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

from alembic.ddl.impl import DefaultImpl
from sqlalchemy import BigInteger, Connection
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import Dialect
from queue_db.dialects.clock import now_us
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import Store, lease


class AcmeSQLAlchemyDialect(SQLiteDialect_pysqlite):
    """A database of another name, so that nothing made for SQLite applies to it; underneath it is SQLite, to have one that runs."""

    name = "acme"
    driver = "acme"
    supports_statement_cache = True

    def connect(self, *arguments: Any, **options: Any) -> Any:
        connection = super().connect(*arguments, **options)
        connection.isolation_level = None  # Python's driver would begin only before the first change
        return connection

    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.execute("BEGIN")

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return False  # the driver would, do_begin does not let it

    @classmethod
    def get_pool_class(cls, url: Any) -> Any:
        return super().get_pool_class(url.set(drivername="sqlite"))


registry.register("acme", __name__, "AcmeSQLAlchemyDialect")


class AcmeImpl(DefaultImpl):
    """What Alembic wants to have from a dialect's makers."""

    __dialect__ = "acme"
    transactional_ddl = False


@compiles(BigInteger, "acme")
def _big_integer(element: BigInteger, compiler: Any, **kw: Any) -> str:
    return "INTEGER"  # 64 bits here, and the only type that numbers rows


@compiles(now_us, "acme")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"


class Acme(Dialect):
    """The name and the codes of its errors; all else is the portable default."""

    names = ("acme",)
    title = "Acme"
    transient = frozenset({str(sqlite3.SQLITE_BUSY)})

    def code(self, error: Any) -> str | None:
        code = getattr(error.orig, "sqlite_errorcode", None)
        return None if code is None else str(code & 0xFF)


class Lottery:
    """A strategy of one's own: any of the first twenty due jobs. It inherits nothing from us."""

    name = "lottery"
    needs: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self.seen = 0
        self._rng = random.Random(7)

    def claim(self, connection: Connection, store: Store, request: ClaimRequest) -> ClaimResult:
        if self._rng.random() < 0.1:
            return lease.claim(connection, store, request, lease.CandidateWindow(read=request.limit))
        return lease.claim(connection, store, request, lease.CandidateWindow(lease.Order.SHUFFLE, read=20 * request.limit))

    def observe(self, result: ClaimResult) -> None:
        self.seen += 1
