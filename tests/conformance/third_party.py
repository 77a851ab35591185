"""Third-party code as a user would write it: an unknown SQLAlchemy dialect, its Dialect for queue_db, and a strategy."""

from __future__ import annotations

import random
from typing import Any

from alembic.ddl.impl import DefaultImpl
from sqlalchemy import BigInteger
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import Dialect
from queue_db.dialects.clock import now_us
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import Transaction, lease


class AcmeSQLAlchemyDialect(SQLiteDialect_pysqlite):
    """SQLite under another name, so that no code for SQLite applies to it."""

    name = "acme"
    driver = "acme"
    supports_statement_cache = True

    def connect(self, *arguments: Any, **options: Any) -> Any:
        connection = super().connect(*arguments, **options)
        connection.isolation_level = None  # Python's driver would begin a transaction only before the first change
        return connection

    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.cursor().execute("BEGIN")

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return False  # do_begin begins a transaction, so the driver cannot

    @classmethod
    def get_pool_class(cls, url: Any) -> Any:
        return super().get_pool_class(url.set(drivername="sqlite"))


registry.register("acme", __name__, "AcmeSQLAlchemyDialect")


class AcmeImpl(DefaultImpl):
    """The class that Alembic requires for a dialect."""

    __dialect__ = "acme"
    transactional_ddl = False


@compiles(BigInteger, "acme")
def _big_integer(element: BigInteger, compiler: Any, **kw: Any) -> str:
    return "INTEGER"  # 64 bits, and the only type with automatic ids


@compiles(now_us, "acme")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"


class Acme(Dialect):
    """The name and the error codes; the rest are the portable defaults."""

    names = ("acme",)
    title = "Acme"
    errors = ErrorCodes(
        code=lambda error: getattr(error.orig, "sqlite_errorname", None),
        transient=frozenset({"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT"}),
    )


class Lottery:
    """A strategy without a base class: it takes neighbours among the first due jobs."""

    name = "lottery"
    needs: frozenset[Capability] = frozenset()

    def __init__(self) -> None:
        self.seen = 0
        self._rng = random.Random(7)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        if self._rng.random() < 0.1:
            return lease.claim(tx, request, lease.CandidateWindow(read=request.limit))
        start = self._rng.randrange(20)
        return lease.claim(tx, request, lease.CandidateWindow(lease.Order.SLICE, read=start + request.limit, start=start))

    def observe(self, result: ClaimResult) -> None:
        self.seen += 1
