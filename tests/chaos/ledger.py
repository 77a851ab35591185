"""The application's own table, which clients write in the transactions of the queue, and in others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

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


def engine_of(*urls: str) -> Engine:
    """An engine as an application has one.

    :param urls: of the database, on each node. Each new connection leads to the first that takes changes, from the last one on.
    """
    url = make_url(urls[0])
    options = {
        "sqlite": {"timeout": 20.0},
        "postgresql": {"connect_timeout": 10, "tcp_user_timeout": 10_000, "options": "-c lock_timeout=20s"},
    }.get(url.get_backend_name(), {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30})
    engine = create_engine(url, connect_args=options, pool_pre_ping=True)
    event.listen(engine, "handle_error", _leave_a_node)
    take_any(engine, urls)
    return engine


def together(urls: Sequence[str]) -> str:
    """One URL with the addresses of all nodes."""
    addresses = [f"{url.host}:{url.port}" for url in map(make_url, urls)]
    return urls[0].replace(addresses[0], ",".join(addresses))


#: What a node that takes changes answers, as the last value of its row.
_READY = {
    "mariadb": ("SHOW STATUS LIKE 'wsrep_ready'", "ON"),
    "mysql": ("SELECT @@global.read_only", 0),
    "postgresql": ("SHOW transaction_read_only", "off"),
}
#: A node without its cluster refuses all (1047), or does not know what became of a COMMIT (1180, 3100). One that was the primary
#: takes no changes any more (1290, 1836, 25006).
_LEFT = (1047, 1180, 1290, 1836, 3100, "25006")


def _leave_a_node(context: ExceptionContext) -> None:
    # Such a node answers a ping.
    error = context.original_exception
    if getattr(error, "pgcode", None) in _LEFT or next(iter(error.args), None) in _LEFT:
        context.is_disconnect = True


def take_any(engine: Engine, urls: Sequence[str]) -> None:
    """Let new connections lead to one of these nodes; with one URL as ever."""
    if len(urls) == 1:
        return
    addresses = [(url.host, url.port) for url in map(make_url, urls)]
    question, wanted = _READY[make_url(urls[0]).get_backend_name()]

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        failed: Exception = dialect.loaded_dbapi.OperationalError(1047, "no node takes changes")
        for _ in list(addresses):
            options["host"], options["port"] = addresses[0]
            try:
                connection = dialect.connect(*arguments, **options | {"connect_timeout": 3})
                cursor = connection.cursor()
                cursor.execute(question)
                (answer,) = cursor.fetchall()
                connection.rollback()
                if answer[-1] == wanted:
                    return connection
                connection.close()
            except dialect.loaded_dbapi.Error as error:
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
