"""Jobs made of a payload, to call a handler without a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Engine

from queue_db.codecs import Codec, JSONCodec, Schema, described
from queue_db.errors import ConfigurationError, PayloadError
from queue_db.leased_job import LeasedJob
from queue_db.model import ClaimedRow, Verdict
from queue_db.steps.records import Records
from queue_db.steps.resumption import encoded
from queue_db.steps.store import Key, Phase, Record, Wait, What
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS
from queue_db.worker.handlers import awaited_job

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from queue_db.aio import AsyncLeasedJob


def job(
    payload: Any = None,
    *,
    kind: str = "test",
    queue: str = "test",
    headers: Mapping[str, Any] | None = None,
    schema: Any = None,
    id: int = 1,  # noqa: A002 - as the job has it
    attempts: int = 1,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    priority: int = 0,
    group: str | None = None,
    unique_key: str | None = None,
    last_error: str | None = None,
    codec: Codec | None = None,
    engine: Engine | None = None,
    signals: Mapping[str, Any] | None = None,
    resumes: LeasedJob | None = None,
) -> LeasedJob:
    """A leased job for a test that calls a handler itself: ``assert welcome(job({"user": 7})) == Snooze(60)``.

    The payload is encoded and decoded, as in the queue. Its verbs settle nothing but itself: they return APPLIED once and LOST
    afterwards, or if the test has set ``job.lost``; ``job.settled_by`` names the verb.

    :param schema: as the handler's; ``job.payload`` is then an object of it.
    :param attempts: the number of this attempt.
    :param engine: where ``job.transaction()`` begins its transaction.
    :param signals: the payloads of signals that were sent to the job, by name.
    :param resumes: the job of an earlier run: this run finds its steps; its sleeps, and the timeouts of its waits, are over.
    :raises PayloadError: the payload cannot be encoded, or does not fit the schema.
    """
    codec = codec or JSONCodec()
    try:
        texts = [None if value is None and value is headers else codec.encode(value) for value in (payload, headers)]
    except Exception as error:
        raise PayloadError(kind=kind, reason=f"cannot be encoded: {described(error)}") from error
    now = time.time_ns() // 1000
    row = ClaimedRow(
        id=id,
        kind=kind,
        payload=texts[0] or "",
        headers=texts[1],
        priority=priority,
        available_at=now + 60_000_000,
        due_at=now,
        version=1,
        attempts=attempts,
        max_attempts=max_attempts,
        unique_key=unique_key,
        created_at=now,
        last_error=last_error,
        group_key=group,
        callback_id=None,
    )
    place = _Nowhere(queue, engine, codec)
    if resumes is not None:
        place.records |= {
            key: one._replace(ends_at=one.ends_at and 0) for key, one in cast("_Nowhere", resumes.source).records.items()
        }
    for name, value in (signals or {}).items():
        place.records[Key(What.SIGNAL, name)] = Record(Phase.DONE, encoded(codec, "the payload", value))
    made = LeasedJob(row, place, codec, token="test")  # noqa: S106 - no secret
    if schema is not None:
        made.understood(Schema(schema).read(kind, made.payload))
    return made


def async_job(payload: Any = None, **options: Any) -> AsyncLeasedJob[Any]:
    """:func:`job` for a coroutine that takes an AsyncLeasedJob."""
    return awaited_job(job(payload, **options))


def awaited_signal(job: LeasedJob) -> str | None:
    """The signal for which a job of :func:`job` waits without a timeout; None: it waits for none."""
    records = cast("_Nowhere", job.source).records
    waits = (key.name for key, one in records.items() if key.what is What.SIGNAL and one == Record(Phase.BEGUN))
    return next(waits, None)


class _Nowhere:
    """In place of the queue: what the verbs of a job without a database do."""

    def __init__(self, name: str, engine: Engine | None, codec: Codec) -> None:
        self.name = name
        self.codec = codec
        self._engine = engine
        self._versions = count(2)
        self.records: dict[Key, Record] = {}

    def complete_many(self, jobs: Sequence[LeasedJob], *, using: object = None) -> list[Verdict]:
        return [self._settle(one, "complete") for one in jobs]

    def fail_many(self, jobs: Sequence[LeasedJob], error: object, *, retry_in: float | None = None) -> list[Verdict]:
        return [self._settle(one, "fail") for one in jobs]

    def snooze_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        return [self._settle(one, "snooze") for one in jobs]

    def release_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        return [self._settle(one, "release") for one in jobs]

    def cancel_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        return [self._settle(one, "cancel") for one in jobs]

    def bury_many(self, jobs: Sequence[LeasedJob], error: object) -> list[Verdict]:
        return [self._settle(one, "bury") for one in jobs]

    def extend_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        for one in jobs:
            if _is_leased(one):
                one.version = next(self._versions)
        return [_verdict(one) for one in jobs]

    def progress_of(self, one: LeasedJob, report: object) -> Verdict:
        return _verdict(one)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        if self._engine is None:
            raise ConfigurationError("this job has no database: give queue_db.testing.job(…) the engine= of your test")
        with self._engine.begin() as connection:
            yield connection

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        raise ConfigurationError("async with job.transaction() needs a database: test this handler with drain()")

    def records_of(self, one: LeasedJob) -> Records:
        return _Records(one, self.records, self.codec)

    def _settle(self, one: LeasedJob, verb: str) -> Verdict:
        verdict = _verdict(one)
        if verdict:
            one.settled, one.settled_by = True, verb
        return verdict


class _Records:
    """The steps of a job without a database."""

    def __init__(self, one: LeasedJob, records: dict[Key, Record], codec: Codec) -> None:
        self._job = one
        self.codec = codec
        self._records = records

    def read(self) -> tuple[int, dict[Key, Record]]:
        return time.time_ns() // 1000, dict(self._records)

    def find(self, key: Key, using: object) -> Record | None:
        return self._records.get(key)

    def write(self, key: Key, record: Record, using: object = None) -> bool:
        if _is_leased(self._job):
            self._records[key] = record
        return _is_leased(self._job)

    def expire(self, key: Key) -> Record:
        return self._records.setdefault(key, Record(Phase.EXPIRED))._replace(phase=Phase.EXPIRED)

    def suspend(self, wait: Wait) -> bool:
        if not self._job.snooze(0):
            return False
        ends_at = None if wait.micros is None else time.time_ns() // 1000 + wait.micros
        self._records.setdefault(wait.key, Record(Phase.BEGUN, None, ends_at))
        return True

    def callback(self, name: str) -> str | None:
        return f"qdbc_{self._job.id}_test" if _is_leased(self._job) else None

    async def awaited(self, verb: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return verb(*args, **kwargs)

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        raise ConfigurationError("a step_transaction in a coroutine needs a database: test this handler with drain()")


def _is_leased(one: LeasedJob) -> bool:
    return not (one.settled or one.lost.is_set())


def _verdict(one: LeasedJob) -> Verdict:
    return Verdict.APPLIED if _is_leased(one) else Verdict.LOST
