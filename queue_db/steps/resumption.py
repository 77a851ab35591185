"""What one run of a handler does with the steps of its job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from queue_db import arguments
from queue_db.codecs import Codec, described
from queue_db.dialects.borrowed import AsyncUsing, Using
from queue_db.errors import ArgumentError, ConfigurationError, HandlerResultError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.outcomes import Suspended
from queue_db.steps.records import Records
from queue_db.steps.store import Key, Phase, Record, Wait, What
from queue_db.steps.tables import NAME_LENGTH

#: The most bytes of a state, of the result of a step, of a cursor, and of the payload of a signal.
MOST_BYTES = 64 * 1024

#: The most steps, sleeps and signals of one job: all are read when it runs again.
MOST_RECORDS = 1000

_STATE = Key(What.STATE, "")

# The steps inside which this code runs, each as the id of its Resumption and its key.
_inside: ContextVar[frozenset[tuple[int, Key]]] = ContextVar("queue_db_steps", default=frozenset())

_HOW = {
    What.STEP: "the step {0!r}: give each step a name of its own, such as f{0!r} with a number; or use job.loop",
    What.SLEEP: "the sleep {0!r}: give each sleep a name of its own: job.sleep(60, name=…)",
    What.SIGNAL: "the wait for {0!r}: a signal is sent once; keep its payload, or give each signal a name of its own",
}


class JobState:
    """What a job keeps from run to run."""

    def __init__(self, resumption: Resumption) -> None:
        self._resumption = resumption

    def load(self, default: Any = None) -> Any:
        """What was saved last, by this run or an earlier one; ``default`` if nothing was."""
        return self._resumption.load_state(default)

    def save(self, value: Any) -> Verdict:
        """Save a value: JSON of at most 64 KB. Returns the verdict: LOST if the lease was lost, and then nothing was saved.

        :raises ArgumentError: the value is no JSON, or too long.
        """
        return self._resumption.save_state(value)


class AsyncJobState:
    """:class:`JobState` for a coroutine, which awaits both verbs."""

    def __init__(self, resumption: Resumption) -> None:
        self._resumption = resumption

    async def load(self, default: Any = None) -> Any:
        """What was saved last, by this run or an earlier one; ``default`` if nothing was."""
        return await self._resumption.records.awaited(self._resumption.load_state, default)

    async def save(self, value: Any) -> Verdict:
        """Save a value: JSON of at most 64 KB. Returns the verdict: LOST if the lease was lost, and then nothing was saved.

        :raises ArgumentError: the value is no JSON, or too long.
        """
        return await self._resumption.records.awaited(self._resumption.save_state, value)


class Loop:
    """Where a loop is.

    :ivar cursor: what :meth:`advance` was given last, in this run or an earlier one; None: the loop begins.
    """

    def __init__(self, resumption: Resumption, key: Key, cursor: Any) -> None:
        self._resumption = resumption
        self._key = key
        self.cursor = cursor

    def advance(self, cursor: Any, *, using: Using | None = None) -> None:
        """Store how far the loop is, then :meth:`check`.

        :param cursor: JSON, such as the id of the last row that is done.
        :param using: a transaction of yours: the cursor is stored if it is committed. :meth:`check` is then left to you.
        :raises LeaseLostError: the lease was lost; nothing was stored.
        """
        self._resumption.advance(self._key, cursor, using)
        self.cursor = cursor

    def check(self) -> None:
        """End the run if the worker stops: the job is released, and the attempt is not counted. Otherwise do nothing.

        While another step of the job is under way, the run goes on.
        """
        self._resumption.check()


class AsyncLoop:
    """:class:`Loop` for a coroutine, which awaits its verbs.

    :ivar cursor: what :meth:`advance` was given last, in this run or an earlier one; None: the loop begins.
    """

    def __init__(self, resumption: Resumption, key: Key, cursor: Any) -> None:
        self._resumption = resumption
        self._key = key
        self.cursor = cursor

    async def advance(self, cursor: Any, *, using: AsyncUsing | None = None) -> None:
        """Store how far the loop is, then :meth:`check`.

        :param cursor: JSON, such as the id of the last row that is done.
        :param using: a transaction of yours: the cursor is stored if it is committed. :meth:`check` is then left to you.
        :raises LeaseLostError: the lease was lost; nothing was stored.
        """
        resumption = self._resumption
        if using is None:
            await resumption.records.awaited(resumption.advance, self._key, cursor)
        else:
            from queue_db.concurrency.greenlets import joined, run

            await run(resumption.advance, self._key, cursor, joined(using))
        self.cursor = cursor

    async def check(self) -> None:
        """End the run if the worker stops: the job is released, and the attempt is not counted. Otherwise do nothing.

        While another step of the job is under way, the run goes on.
        """
        await self._resumption.records.awaited(self._resumption.check)


def resumption_of(job: LeasedJob) -> Resumption:
    """The steps of this run; made at first use.

    :raises ConfigurationError: the job has no row any more that a step could be stored with.
    """
    if not hasattr(job, "resumption"):
        if job.claimant is not None and job.claimant.at_most_once:
            raise ConfigurationError(
                f"{job!r} left its queue when it was claimed, so it has no steps, state, sleeps and signals: give its worker "
                "mode='at_least_once'"
            )
        job.resumption = Resumption(job, job.source.records_of(job))
    found: Resumption = job.resumption
    return found


class Resumption:
    """The steps of a leased job in one run. They are read once, when the run first needs them."""

    def __init__(self, job: LeasedJob, records: Records) -> None:
        self._job = job
        #: Where the steps are kept.
        self.records = records
        self.state = JobState(self)
        self._codec = records.codec
        self._found: dict[Key, Record] | None = None
        self._now = 0
        self._used: set[Key] = set()
        # Steps that this run has stored in transactions of callers: whether these were committed is not known.
        self._joined: set[Key] = set()
        # Guards the steps whose functions run, whether the run was ended because its worker stops, and the verb that ends it.
        self._lock = threading.Lock()
        self._under_way: set[Key] = set()
        self._interrupted = False
        self._suspended_by: str | None = None

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        using: Using | None = None,
    ) -> Any:
        self._check(name, function, awaited=False)
        with self._once(name) as key:
            done, value, _ = self._look(key, joins=using is not None)
            if done:
                return value
            if using is None:
                return self._keep(key, function(*args, **named))
            self._require_new(key, using)
            return self._join(key, function(*args, **named), using)

    async def async_step(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        using: AsyncUsing | None = None,
    ) -> Any:
        self._check(name, function, awaited=True)
        with self._once(name) as key:
            done, value, _ = await self.records.awaited(self._look, key, joins=using is not None)
            if done:
                return value
            if using is None:
                return await self.records.awaited(self._keep, key, await function(*args, **named))
            from queue_db.concurrency.greenlets import joined, run

            await run(self._require_new, key, joined(using))
            return await run(self._join, key, await function(*args, **named), joined(using))

    def loop(self, name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self._check(name, function, awaited=False)
        with self._once(name) as key:
            done, value, cursor = self._look(key)
            return value if done else self._keep(key, function(Loop(self, key, cursor), *args, **named))

    async def async_loop(self, name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self._check(name, function, awaited=True)
        with self._once(name) as key:
            done, value, cursor = await self.records.awaited(self._look, key)
            if done:
                return value
            return await self.records.awaited(self._keep, key, await function(AsyncLoop(self, key, cursor), *args, **named))

    def step_transaction(self, name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self._check(name, function, awaited=False)
        with self._once(name) as key:
            done, value, _ = self._look(key)
            if done:
                return value
            with self._job.source.transaction() as connection:
                record = self._encoded(key, function(connection, *args, **named))
                self._write(key, record, connection)
            return self._noted(key, record)

    async def async_step_transaction(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        self._check(name, function, awaited=True)
        from queue_db.concurrency.greenlets import joined, run

        with self._once(name) as key:
            done, value, _ = await self.records.awaited(self._look, key)
            if done:
                return value
            async with self.records.transaction_on_loop() as connection:
                record = self._encoded(key, await function(connection, *args, **named))
                await run(self._write, key, record, joined(connection))
            return self._noted(key, record)

    def advance(self, key: Key, cursor: Any, using: Using | None = None) -> None:
        record = Record(Phase.BEGUN, self._text(f"the cursor of {key.name!r}", cursor, ArgumentError))
        self._write(key, record, using)
        if using is None:
            self.check()

    def check(self, begins: Key | None = None, *, joins: bool = False) -> None:
        """End the run if its worker stops, unless another step of it is under way: the next run would call its function again.

        :param begins: the step that is under way from now on, if the run goes on.
        :param joins: whether this step is in the transaction of a caller, who may have locked the job in it: then the run goes on.
        :raises ArgumentError: a sleep or a wait has ended the run, or is ending it.
        """
        stops = self._job.claimant is not None and self._job.claimant.stopping.is_set() and not joins
        with self._lock:
            if self._suspended_by is not None:
                raise ArgumentError(f"{self._suspended_by} has ended this run of job {self._job.id}: begin no step beside it")
            if not self._interrupted and (self._others() or not stops):
                if begins in self._used:  # otherwise its task was cancelled meanwhile
                    self._under_way.add(begins)
                return
            released, self._interrupted = self._interrupted, True
        if not released:
            try:
                self._job.release().require(self._job)
            except BaseException:
                self._interrupted = False
                raise
        raise Suspended(self._job.id, "was interrupted, since its worker stops")

    def _others(self) -> set[Key]:
        """The steps that are under way, without those inside which this code runs."""
        return self._under_way and self._under_way - {key for run, key in _inside.get() if run == id(self)}

    # --- sleeps and signals -----------------------------------------------------------------------------------------

    def sleep(self, seconds: float, name: str = "") -> None:
        micros = arguments.seconds("seconds", seconds)
        key = self._begun(What.SLEEP, name)
        record = self._records().get(key)
        if record is None or record.ends_at is None or record.ends_at > self._now:
            raise self._suspended(Wait(key, micros), "sleeps", "job.sleep")

    def wait_for(self, signal: str, timeout: float | None = None) -> Any:
        micros = None if timeout is None else arguments.seconds("timeout", timeout)
        key = self._begun(What.SIGNAL, signal)
        record = self._records().get(key)
        if record is None or record.phase is Phase.BEGUN:
            record = self._records(again=True).get(key)
        if record is not None and record.phase is Phase.BEGUN and record.ends_at is not None and record.ends_at <= self._now:
            record = self.records.expire(key)
        if record is None or record.phase is Phase.BEGUN:
            raise self._suspended(Wait(key, micros), f"waits for the signal {signal!r}", "job.wait_for")
        if record.phase is Phase.EXPIRED:
            raise TimeoutError(f"the signal {signal!r} was not sent to job {self._job.id} in time")
        return self._value(record)

    def callback(self, signal: str) -> str:
        token = self.records.callback(arguments.name("signal", signal, NAME_LENGTH))
        if token is None:
            raise LeaseLostError(self._job.id, self._job.version)
        return token

    # --- the state --------------------------------------------------------------------------------------------------

    def load_state(self, default: Any = None) -> Any:
        record = self._records().get(_STATE)
        return default if record is None else self._value(record)

    def save_state(self, value: Any) -> Verdict:
        record = Record(Phase.DONE, self._text("the state", value, ArgumentError))
        if not self.records.write(_STATE, record):
            return Verdict.LOST
        if self._found is not None:
            self._found[_STATE] = record
        return Verdict.APPLIED

    # --- records ----------------------------------------------------------------------------------------------------

    def _begun(self, what: What, name: str) -> Key:
        """Check the name of a step, sleep or signal, and that this run has not used it."""
        key = Key(what, name if what is What.SLEEP and name == "" else arguments.name("name", name, NAME_LENGTH))
        if key in self._used:
            raise ArgumentError(f"this run of job {self._job.id} has had {_HOW[what].format(name)}")
        self._used.add(key)
        return key

    @contextmanager
    def _once(self, name: str) -> Iterator[Key]:
        """The key of a step. If the step fails, the run may try again."""
        key = self._begun(What.STEP, name)
        failed, outer = True, _inside.get()
        _inside.set(outer | {(id(self), key)})
        try:
            yield key
            failed = False
        finally:
            _inside.set(outer)
            with self._lock:
                self._under_way.discard(key)
                if failed or key in self._joined:  # the caller may roll back and try again
                    self._used.discard(key)

    def _check(self, name: str, function: Callable[..., Any], *, awaited: bool) -> None:
        """Check the function of a step.

        :raises ArgumentError: it is no function, or is not awaited although it is an ``async def``, or the other way round.
        """
        if (problem := arguments.not_run(function)) is not None:
            raise ArgumentError(f"the function of the step {name!r} {problem}")
        if arguments.asynchronous(function) is not awaited:
            how = "is awaited: make it an async def" if awaited else "is an async def: annotate the handler's job as AsyncLeasedJob"
            raise ArgumentError(f"the function of the step {name!r} {how}")

    def _records(self, *, again: bool = False) -> dict[Key, Record]:
        if self._found is None or again:
            self._now, found = self.records.read()
            if self._found is None:
                self._found = found
            else:  # what this run has written meanwhile stays: only signals come from others
                self._found |= {key: record for key, record in found.items() if key.what is What.SIGNAL}
        return self._found

    def _look(self, key: Key, *, joins: bool = False) -> tuple[bool, Any, Any]:
        """Whether a step is done; its result if it is; otherwise its cursor."""
        record = self._records().get(key)
        if record is None or record.phase is not Phase.DONE:
            self.check(key, joins=joins)  # a worker that stops begins no further step
            if key in self._joined and not joins:
                self._require_new(key)
        if record is None:
            if len(self._records()) + len(self._joined) >= MOST_RECORDS:
                raise ArgumentError(f"job {self._job.id} has {MOST_RECORDS:,} steps: store where a loop is with job.loop")
            return False, None, None
        value = self._value(record)
        return (True, value, None) if record.phase is Phase.DONE else (False, None, value)

    def _encoded(self, key: Key, result: Any) -> Record:
        arguments.done(f"the step {key.name!r}", result)
        return Record(Phase.DONE, self._text(f"the result of the step {key.name!r}", result, HandlerResultError))

    def _keep(self, key: Key, result: Any) -> Any:
        record = self._encoded(key, result)
        self._write(key, record)
        return self._noted(key, record)

    def _join(self, key: Key, result: Any, using: Using | None) -> Any:
        """Store the result in the transaction of a caller. Only a later run can rely on it."""
        record = self._encoded(key, result)
        self._write(key, record, using)
        self._joined.add(key)
        return self._value(record)

    def _require_new(self, key: Key, using: Using | None = None) -> None:
        """Check that this run has not stored the step, unless that was rolled back; and that the transaction can be used.

        :raises ArgumentError: this run has used the name before.
        """
        record = self.records.find(key, using)
        if record is not None and record.phase is Phase.DONE:
            raise ArgumentError(f"this run of job {self._job.id} has had {_HOW[key.what].format(key.name)}")
        self._joined.discard(key)

    def _noted(self, key: Key, record: Record) -> Any:
        """Note what is stored; return its value, which is the same in each run."""
        self._records()[key] = record
        return self._value(record)

    def _write(self, key: Key, record: Record, using: Using | None = None) -> None:
        if not self.records.write(key, record, using):
            raise LeaseLostError(self._job.id, self._job.version)

    def _suspended(self, wait: Wait, why: str, verb: str) -> Suspended:
        """End the run. A step that is under way could not store its result any more.

        :raises ArgumentError: another step is under way.
        """
        with self._lock:
            if others := self._others():
                name = min(key.name for key in others)
                raise ArgumentError(
                    f"{verb} would end this run of job {self._job.id} while its step {name!r} runs: wait for it first"
                )
            self._suspended_by = verb
        try:
            held = self.records.suspend(wait)
        except BaseException:
            self._suspended_by = None
            raise
        if not held:
            self._suspended_by = None
            raise LeaseLostError(self._job.id, self._job.version)
        return Suspended(self._job.id, why)

    def _value(self, record: Record) -> Any:
        return None if record.value is None else self._codec.decode(record.value)

    def _text(self, what: str, value: Any, refusal: type[ArgumentError | HandlerResultError]) -> str:
        return encoded(self._codec, what, value, refusal)


def encoded(codec: Codec, what: str, value: Any, refusal: type[ArgumentError | HandlerResultError] = ArgumentError) -> str:
    """The text of a value as it is stored.

    :raises ArgumentError: the value cannot be encoded, or is too long; or ``refusal``.
    """
    try:
        text = codec.encode(value)
    except Exception as error:
        raise refusal(f"{what} cannot be stored: {described(error)}; use texts, numbers, lists and objects") from error
    if len(text) > MOST_BYTES or len(text.encode()) > MOST_BYTES:
        raise refusal(f"{what} is longer than {MOST_BYTES:,} bytes: store it elsewhere, and keep its name")
    return text
