"""The application's own table, which clients write in the transactions of the queue, and in others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    ExceptionContext,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    make_url,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

#: No unique key: an effect that happened twice stands there twice. ``what``: ``enqueued`` (with a job or message), ``inside`` (with
#: a completion), ``outside`` (before it).
LEDGER = Table(
    "ledger",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("what", String(40), nullable=False),
    Column("mark", String(80), nullable=False),
    Column("process", String(80), nullable=False),
    # Nanoseconds. The ids of several nodes are in no order.
    Column("at", BigInteger, nullable=False),
    mysql_engine="InnoDB",
)


class InDoubt(Exception):
    """The connection broke during the application's own COMMIT."""


def engine_of(url: str) -> Engine:
    """An engine as an application has one."""
    backend = make_url(url).get_backend_name()
    options = {
        "sqlite": {"timeout": 20.0},
        "postgresql": {"connect_timeout": 10, "tcp_user_timeout": 10_000, "options": "-c lock_timeout=20s"},
    }.get(backend, {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30})
    engine = create_engine(url, connect_args=options, pool_pre_ping=True)
    event.listen(engine, "handle_error", _leave_a_node)
    return engine


def _leave_a_node(context: ExceptionContext) -> None:
    # A node without its cluster answers a ping. It refuses all (1047), or does not know what became of a COMMIT (1180).
    if getattr(context.original_exception, "args", ())[:1] in {(1047,), (1180,)}:
        context.is_disconnect = True


def take_any(engine: Engine, urls: Sequence[str]) -> None:
    """Let each new connection lead to the first of these nodes that is ready, from where the last one led to."""
    addresses = [(url.host, url.port) for url in map(make_url, urls)]

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        failed: pymysql.Error = pymysql.OperationalError(1047, "no node is ready")
        for _ in list(addresses):
            options["host"], options["port"] = addresses[0]
            try:
                connection = dialect.connect(*arguments, **options | {"connect_timeout": 3})
                cursor = connection.cursor()
                cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
                if cursor.fetchall()[0][1] == "ON":
                    return connection
                connection.close()
            except pymysql.Error as error:
                failed = error
            addresses.append(addresses.pop(0))
        raise failed


def write(connection: Connection, what: str, mark: str, process: str) -> None:
    """Add a row."""
    connection.execute(insert(LEDGER).values(what=what, mark=mark, process=process, at=time.monotonic_ns()))


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A transaction of the application.

    :raises InDoubt: it may have been committed. Any other error: it was not.
    """
    with engine.connect() as connection:
        begun = connection.begin()
        try:
            yield connection
        except BaseException:
            with suppress(SQLAlchemyError):
                begun.rollback()
            raise
        try:
            begun.commit()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise InDoubt(str(error)) from error
            raise
