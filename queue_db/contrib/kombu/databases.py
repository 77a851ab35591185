"""The databases that this process has opened, one :class:`~queue_db.QueueDB` for all connections with the same URL and options."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kombu.utils import json

from queue_db import ConfigurationError, EnqueueError, QueueDB

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

#: Seconds for which a message is leased. A consumer extends the lease of what it holds, also of a task that waits for its ETA.
VISIBILITY_TIMEOUT = 60.0

_opened: dict[tuple[int, str, str, str | None], QueueDB] = {}
_lock = threading.Lock()


def _new_lock() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)

_transaction: ContextVar[Connection | Session | None] = ContextVar("queue_db_kombu_transaction", default=None)


class NotPublishedError(EnqueueError):
    """A message was not published in your transaction, which you have to roll back and repeat as a whole; ``__cause__`` says why.

    Kombu does not publish such a message again: the database may have rolled your transaction back, so another attempt would keep
    the message without your own changes.
    """

    code = "not_published"


class MessageCodec:
    """Kombu's JSON: it also knows dates, UUIDs and bytes, which headers of messages may contain."""

    def encode(self, payload: Any) -> str:
        return str(json.dumps(payload, separators=(",", ":")))

    def decode(self, text: str) -> Any:
        return json.loads(text)


@dataclass(frozen=True)
class Options:
    """The ``transport_options`` of this transport.

    :param migrate: create or upgrade the tables at the first connection.
    :param visibility_timeout: seconds after which the messages of a killed consumer return to their queue.
    :param polling_interval: the longest pause between two looks for messages, seconds.
    :param max_deliveries: after this many deliveries without an answer a message is a dead job: its task kills the workers.
    :param eta_in_database: keep a task with ``countdown`` or ``eta`` in the queue until then, instead of in a worker.
    :param table: the name of the jobs table.
    :param schema: the schema of the tables.
    """

    migrate: bool = False
    visibility_timeout: float = VISIBILITY_TIMEOUT
    polling_interval: float = 0.5
    max_deliveries: int = 25
    eta_in_database: bool = False
    table: str = "jobs"
    schema: str | None = None


def options_of(given: Mapping[str, Any]) -> Options:
    """Read the ``transport_options``. Those of Kombu itself, such as ``max_retries``, are left to it.

    :raises ConfigurationError: a value is out of range.
    """
    known = {name: given[name] for name in Options.__dataclass_fields__ if given.get(name) is not None}
    found = Options(**known)
    for name in ("visibility_timeout", "polling_interval", "max_deliveries"):
        value = getattr(found, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigurationError(f"transport_options: {name}={value!r} must be a number above 0")
    return found


def opened(url: str, options: Options) -> QueueDB:
    """The database at this URL, opened once in each process.

    :raises SchemaOutOfDateError: the tables are missing; the message has the command that creates them.
    :raises StorageError: the database does not answer.
    """
    key = (os.getpid(), url, options.table, options.schema)
    with _lock:
        db = _opened.get(key)
        if db is None:
            db = QueueDB(url, table=options.table, schema=options.schema, codec=MessageCodec())
            try:
                if options.migrate:
                    db.migrate()
                db.check()
            except BaseException:
                db.close()
                raise
            _opened[key] = db
        return db


def close_all() -> None:
    """Close the databases that this process has opened for Kombu. The next connection opens them again."""
    with _lock:
        mine = [key for key in _opened if key[0] == os.getpid()]
        found = [_opened.pop(key) for key in mine]
    for db in found:
        db.close()


@contextmanager
def publishing_in(connection: Connection | Session) -> Iterator[None]:
    """Publish in your transaction: what ``task.delay()`` and others publish in this block takes effect if it commits.

    :param connection: a connection or session of the broker's database, with a transaction.
    :raises NotPublishedError: the database refused a message, for example after a deadlock: repeat the whole transaction.
    """
    before = _transaction.set(connection)
    try:
        yield
    finally:
        _transaction.reset(before)


def transaction() -> Connection | Session | None:
    """The transaction of :func:`publishing_in`; None: outside its block."""
    return _transaction.get()
