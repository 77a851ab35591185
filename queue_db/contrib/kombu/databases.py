"""The databases that this process has opened, one :class:`~queue_db.QueueDB` for all connections with the same URL and options."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kombu.utils import json

from queue_db import ConfigurationError, EnqueueError, QueueDB
from queue_db.publishing import current_transaction

log = logging.getLogger("queue_db.kombu")

#: Seconds for which a message is leased. A consumer extends the lease of what it holds, also of a task that waits for its ETA.
VISIBILITY_TIMEOUT = 60.0

#: Seconds that a declaration within ``publishing_in`` may take. On SQLite it waits for the caller's transaction.
BESIDE = 5.0

_opened: dict[tuple[int, str, str, str | None], QueueDB] = {}
_lock = threading.Lock()


def _new_lock() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


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


#: What Kombu itself reads of the ``transport_options``, or puts there from a retry policy.
_KOMBUS = frozenset(
    {"body_encoding", "callback", "connect_retries_timeout", "deadletter_queue", "errback", "interval_max", "interval_start"}
    | {"interval_step", "max_retries", "on_revive", "retry_errors", "timeout"}
)

_warned_of: set[str] = set()


def options_of(given: Mapping[str, Any]) -> Options:
    """Read the ``transport_options``. Those of Kombu itself, such as ``max_retries``, are left to it. Of others, such as those of
    another transport, a process warns once: they have no effect.

    :raises ConfigurationError: a value is out of range.
    """
    if unknown := sorted(given.keys() - Options.__dataclass_fields__.keys() - _KOMBUS - _warned_of):
        _warned_of.update(unknown)
        log.warning(
            "transport_options: %s has no effect here; known are %s", ", ".join(unknown), ", ".join(Options.__dataclass_fields__)
        )
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


def beside(change: Callable[[], object]) -> None:
    """Make a change that is not part of the transaction of ``publishing_in``, and perhaps waits for its locks.

    :raises NotPublishedError: it waits for longer than :data:`BESIDE`. It goes on, and succeeds when the transaction has ended.
    """
    if current_transaction() is None:
        change()
        return
    done: Future[None] = Future()

    def run() -> None:
        try:
            change()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="queue_db.kombu declaration", daemon=True).start()
    try:
        done.result(BESIDE)
    except TimeoutError as error:
        done.add_done_callback(_log_failure)
        raise NotPublishedError(
            "not published: the queue, or the table of results, is to be made first, and waits for your transaction. Roll it back, "
            "and repeat it; before that start a worker, or publish once outside publishing_in()"
        ) from error


def _log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.warning("a declaration beside the transaction of publishing_in() failed: %s", error)
