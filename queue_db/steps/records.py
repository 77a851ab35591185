"""The records of a leased job in the database. Each change counts only while the lease holds."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from queue_db.codecs import Codec
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import to_micros
from queue_db.steps import store
from queue_db.steps.store import Job, Key, Phase, Record, Wait, What
from queue_db.store import Transaction, settle
from queue_db.verbs.fenced_change import FencedChange
from queue_db.verbs.running import EXTENSIONS, LOOK, Verbs, leases_in_motion
from queue_db.verbs.settle import SNOOZE

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_P = ParamSpec("_P")
_T = TypeVar("_T")

# How each token of a callback begins, so that programs that search for secrets find it.
_PREFIX = "qdbc_"

# Random bytes of a token.
_RANDOM = 32

# Longest text that can be a token, characters.
_LONGEST = 200


class Records(Protocol):
    """Where the steps of a leased job are kept."""

    #: Between values and their stored texts.
    codec: Codec

    def read(self) -> tuple[int, dict[Key, Record]]:
        """The time in microseconds, and all records of the job."""

    def find(self, key: Key, using: Using | None) -> Record | None:
        """A record as the transaction of ``using`` sees it, or one of its own.

        :raises ConfigurationError: ``using`` is no connection, leads to another database, or has no transaction.
        """

    def write(self, key: Key, record: Record, using: Using | None = None) -> bool:
        """Store a record, in the transaction of ``using`` or in one of its own; False: the lease is lost, nothing was stored."""

    def expire(self, key: Key) -> Record:
        """Note that a wait has expired, unless its signal has come; return the record.

        :raises LeaseLostError: the lease is lost.
        """

    def suspend(self, wait: Wait) -> bool:
        """Store for what the job waits, and end its lease; False: the lease is lost, nothing was stored."""

    def callback(self, name: str) -> str | None:
        """Make a token that sends this signal once; None: the lease is lost."""

    def awaited(self, verb: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]:
        """Call a function of this object so that a coroutine can await it."""

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction on the running event loop, for :meth:`write`."""


class StoredRecords:
    """The :class:`Records` of a job in the tables of its queue."""

    def __init__(self, core: Core, job: LeasedJob) -> None:
        self._core = core
        self.codec = core.codec
        self._job = job
        self._row = Job(job.id, to_micros(job.created_at))

    def read(self) -> tuple[int, dict[Key, Record]]:
        return self._core.read("steps.records", store.records, self._row)

    def find(self, key: Key, using: Using | None) -> Record | None:
        if using is None:
            return self._core.read("steps.look", store.look, self._row, key)
        with self._core.joined(using, "steps.look") as tx:
            return store.look(tx, self._row, key)

    def write(self, key: Key, record: Record, using: Using | None = None) -> bool:
        return self._fenced("steps.put", lambda tx: store.put(tx, self._row, key, record), using)

    def expire(self, key: Key) -> Record:
        found: list[Record] = []
        if not self._fenced("steps.expire", lambda tx: found.append(store.expire(tx, self._row, key))):
            raise LeaseLostError(self._job.id, self._job.version)
        return found[-1]

    def suspend(self, wait: Wait) -> bool:
        job, row = self._job, self._row
        verb = SNOOZE._replace(statement=lambda tx, pairs: store.suspend(tx, pairs, row, wait))
        return bool(FencedChange(self._core, job.source, verb, [job]).settle()[0])

    def callback(self, name: str) -> str | None:
        token = f"{_PREFIX}{self._job.id}_{secrets.token_urlsafe(_RANDOM)}"
        return token if self.write(Key(What.CALLBACK, sha256_of(token)), Record(Phase.BEGUN, name)) else None

    def awaited(self, verb: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]:
        if self._core.database.engine.dialect.is_async:
            from queue_db.concurrency.greenlets import run

            return run(verb, *args, **kwargs)
        return asyncio.to_thread(verb, *args, **kwargs)

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        source = self._job.source
        if self._core.database.engine.dialect.is_async:
            from queue_db.concurrency.greenlets import within

            return within(source.transaction())
        return source.transaction_on_loop()

    def _fenced(self, name: str, change: Callable[[Transaction], None], using: Using | None = None) -> bool:
        """Run ``change`` while the row of the job is locked; False: the lease is lost.

        The version stays: the lock of the row keeps it until the end of the transaction. So a run whose COMMIT was not answered
        can run again, and a caller's rollback leaves the lease as it was.
        """
        core, job = self._core, self._job
        with Verbs([job]) as verb:
            version = job.version
            for _ in range(0 if job.settled else EXTENSIONS):
                attempt = partial(store.fenced, pair=(job.id, version), change=change)
                if using is None:
                    held = core.run(Run(name, repeatable=True), attempt)
                else:
                    with core.joined(using, name) as tx:
                        held = attempt(tx)
                if held:
                    return True
                moving = leases_in_motion({job.id: job}, {job.id: version}, verb)
                moved = self._extended(moving, using) if moving else {}
                if not moved:
                    return False
                version = moved[job.id]
        return False

    def _extended(self, moving: dict[int, tuple[int, str]], using: Using | None) -> dict[int, int]:
        """The new version of a lease that the heartbeat has extended meanwhile."""
        if using is None:
            return self._core.run(LOOK, settle.extended, moving)
        with self._core.joined(using, "steps.put") as tx:
            return settle.extended(tx, moving, current=True)


def records_of(core: Core, job: LeasedJob) -> Records:
    """The records of a leased job of this database."""
    return StoredRecords(core, job)


def sha256_of(token: str) -> str:
    """How a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def job_of(token: object) -> int | None:
    """The id of the job in a token that a client has sent; None: it cannot be a token."""
    if not isinstance(token, str) or not token.isascii() or len(token) > _LONGEST or not token.startswith(_PREFIX):
        return None
    number = token.removeprefix(_PREFIX).partition("_")[0]
    return int(number) if number.isdigit() and len(number) < 20 and int(number) < 2**63 else None
