"""The table of bad inputs: what somebody may pass by mistake, and the words of the refusal that help."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from queue_db import (
    Adaptive,
    ArgumentError,
    ConfigurationError,
    DuplicateJobError,
    LeasedJob,
    Optimistic,
    PayloadError,
    PermanentStorageError,
    Pessimistic,
    Queue,
    QueueDB,
    QueueDBError,
    SkipLocked,
    backoff,
)
from queue_db.codecs import JSONCodec
from queue_db.removal import Delete, DeleteMark, LockThenDelete
from queue_db.worker import Worker

NAN, INFINITE, HUGE, ENDLESS = float("nan"), float("inf"), 10**400, 10**5000


@dataclass
class World:
    """What a case may use: a queue with one waiting job, one leased job, and a database to open again."""

    url: str
    db: QueueDB
    queue: Queue
    waiting: int
    leased: LeasedJob
    #: Databases that a case has opened although it should not have been able to.
    opened: list[QueueDB]

    def open(self, **options: Any) -> None:
        self.opened.append(QueueDB(**({"url_or_engine": self.url} | options)))


Act = Callable[[World], object]


@dataclass(frozen=True)
class Case:
    name: str
    act: Act
    says: str
    kind: type[QueueDBError] = ArgumentError


class NoOffset(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None


class BrokenZone(tzinfo):
    """What Python's own base class does."""


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Codes:
    """A codec that returns or raises something."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self._result, self._error = result, error

    def encode(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def decode(self, text: str) -> Any:
        return json.loads(text)


def _closed(world: World) -> Connection:
    with world.db.database.engine.connect() as connection:
        return connection


def _enqueue_after_a_rollback(world: World) -> None:
    with Session(world.db.database.engine) as session, session.begin():
        session.rollback()
        world.queue.enqueue("k", using=session)


def _enqueue_a_key_twice(world: World) -> None:
    world.queue.enqueue_many([("k", None, {"unique_key": "same"})] * 2)


Values = Mapping[str, tuple[Any, str]]

_NAMES: Values = {
    "empty": ("", " is empty: give it 1 to "),
    "too long": ("x" * 201, " has 201 characters; "),
    "ends with a blank": ("mail ", "begins or ends with a blank"),
    "line break": ("a\nb", "control character"),
    "NUL": ("a\0b", "control character"),
    "lone surrogate": ("a\ud800", "control character"),
    "number": (7, "=7: must be a string"),
    "bytes": (b"mail", "=b'mail': must be a string"),
    "list": (["mail"], r"=\['mail'\]: must be a string"),
}

_SPANS: Values = {
    "negative": (-1, "=-1: must be "),
    "NaN": (NAN, "=nan: must be a finite number of seconds"),
    "infinite": (INFINITE, "=inf: must be a finite number of seconds"),
    "text": ("5", "='5': must be a number of seconds"),
    "boolean": (True, "=True: must be a number of seconds"),
    "milliseconds": (1e13, "the unit is seconds"),
    "beyond floats": (HUGE, "the unit is seconds"),
    "beyond printing": (ENDLESS, "the unit is seconds"),
    "negative timedelta": (timedelta(seconds=-1), "must be "),
}

_COUNTS: Values = {
    "negative": (-1, "=-1: must be "),
    "half": (2.5, "=2.5: must be a whole number"),
    "text": ("a", "='a': must be a whole number"),
    "boolean": (True, "=True: must be a whole number"),
    "NaN": (NAN, "=nan: must be a whole number"),
    "too large": (2**63, "must be "),
    "beyond printing": (ENDLESS, "must be "),
}

_TIMES: Values = {
    "without a zone": (datetime(2030, 1, 1), "has no time zone: use datetime.now"),  # noqa: DTZ001
    "zone without an offset": (datetime(2030, 1, 1, tzinfo=NoOffset()), "has no time zone: use datetime.now"),
    "zone that raises": (datetime(2030, 1, 1, tzinfo=BrokenZone()), "has no time zone: use datetime.now"),
    "number": (5, "=5: must be a datetime with a time zone"),
    "text": ("2030-01-01", "must be a datetime with a time zone"),
}

_LISTS: Values = {
    "None": (None, "=None: must be "),
    "number": (5, "=5: must be "),
}


def _each(what: str, values: Values, act: Callable[[World, Any], object], *, without: Iterable[str] = ()) -> Iterator[Case]:
    for name, (value, says) in values.items():
        if name not in without:
            yield Case(f"{what}: {name}", lambda world, value=value: act(world, value), says)  # type: ignore[misc]


def _names() -> Iterator[Case]:
    verbs: dict[str, Callable[[World, Any], object]] = {
        "queue": lambda world, value: world.db.queue(value),
        "kind": lambda world, value: world.queue.enqueue(value),
        "kind of a pair": lambda world, value: world.queue.enqueue_many([(value, 1)]),
        "unique_key": lambda world, value: world.queue.enqueue("k", unique_key=value),
        "group": lambda world, value: world.queue.enqueue("k", group=value),
        "worker": lambda world, value: world.open(worker=value),
        "claim's worker": lambda world, value: world.queue.claim(worker=value),
        "rescue": lambda world, value: world.db.rescue(value),
        "schedule": lambda world, value: world.db.schedules.set(value, "q", "k", every=5),
        "schedule's queue": lambda world, value: world.db.schedules.set("s", value, "k", every=5),
        "schedule's pause": lambda world, value: world.db.schedules.pause(value),
        "schedule to run now": lambda world, value: world.db.schedules.run_now(value),
        "schedule's removal": lambda world, value: world.db.schedules.remove(value),
        "stream": lambda world, value: world.db.streams.release(value),
        "streams of a queue": lambda world, value: world.db.streams.list(value),
        "dead of a queue": lambda world, value: world.db.dead.list(value),
        "finished kind": lambda world, value: world.db.finished_jobs(kind=value),
    }
    for what, act in verbs.items():
        yield from _each(what, _NAMES, act)


def _spans() -> Iterator[Case]:
    zero: Values = {"zero": (0, "=0: must be more than 0 seconds")}
    positive: dict[str, Callable[[World, Any], object]] = {
        "lease": lambda world, value: world.queue.claim(1, lease=value),
        "extend": lambda world, value: world.leased.extend(value),
        "unique_for": lambda world, value: world.queue.enqueue("k", unique_key="x", unique_for=value),
        "per": lambda world, value: world.queue.limit(rate=5, per=value),
        "every": lambda world, value: world.db.schedules.set("s", "q", "k", every=value),
        "worker's lease": lambda world, value: Worker(world.db, "q", lease=value),
        "worker's poll": lambda world, value: Worker(world.db, "q", poll=value),
        "handler's timeout": lambda world, value: Worker(world.db, "q").handles("k", timeout=value)(print),
    }
    for what, act in positive.items():
        yield from _each(what, {**_SPANS, **zero}, act)
    others: dict[str, Callable[[World, Any], object]] = {
        "delay": lambda world, value: world.queue.enqueue("k", delay=value),
        "reschedule's delay": lambda world, value: world.queue.reschedule(world.waiting, delay=value),
        "delay of many": lambda world, value: world.queue.enqueue_many([("k", 1), ("k", 2, {"delay": value})]),
        "snooze": lambda world, value: world.leased.snooze(value),
        "retry_in": lambda world, value: world.leased.fail("x", retry_in=value),
        "pause": lambda world, value: world.queue.pause(wait=value),
        "wait": lambda world, value: world.db.wait(world.waiting, value),
        "errors_older_than": lambda world, value: world.db.prune(errors_older_than=value),
        "older_than": lambda world, value: world.db.dead.purge(older_than=value),
        "grace": lambda world, value: Worker(world.db, "q", grace=value),
        "constant": lambda _, value: backoff.constant(value),
        "listed": lambda _, value: backoff.listed([1, value]),
        "exponential's base": lambda _, value: backoff.exponential(base=value),
        "exponential's max": lambda _, value: backoff.exponential(max=value),
        "geometric": lambda _, value: backoff.geometric(base=value),
        "linear's base": lambda _, value: backoff.linear(base=value),
        "linear's step": lambda _, value: backoff.linear(step=value),
        "arithmetic": lambda _, value: backoff.arithmetic(step=value),
        "quartic": lambda _, value: backoff.quartic(spread=value),
    }
    for what, act in others.items():
        yield from _each(what, _SPANS, act)


def _counts() -> Iterator[Case]:
    verbs: dict[str, Callable[[World, Any], object]] = {
        "claim": lambda world, value: world.queue.claim(value),
        "pop": lambda world, value: world.queue.pop(value),
        "peek": lambda world, value: world.queue.peek(value),
        "handle": lambda world, value: world.queue.lease_from_token(value, 1, "token"),
        "handle's version": lambda world, value: world.queue.lease_from_token(1, value, "token"),
        "reschedule": lambda world, value: world.queue.reschedule(value, delay=0),
        "reschedule's version": lambda world, value: world.queue.reschedule(1, delay=0, version=value),
        "cancel's version": lambda world, value: world.queue.cancel(1, version=value),
        "jobs' limit": lambda world, value: world.queue.jobs("available", limit=value),
        "max_attempts": lambda world, value: world.queue.enqueue("k", max_attempts=value),
        "get": lambda world, value: world.queue.get(value),
        "cancel": lambda world, value: world.db.cancel(value),
        "errors": lambda world, value: world.db.errors(value),
        "finished": lambda world, value: world.db.finished(value),
        "batch": lambda world, value: world.db.batch(value),
        "redrive": lambda world, value: world.db.dead.redrive([value]),
        "redrive's limit": lambda world, value: world.db.dead.redrive(limit=value),
        "purge's limit": lambda world, value: world.db.dead.purge(limit=value),
        "purge's keep": lambda world, value: world.db.dead.purge(keep=value),
        "dead.list's limit": lambda world, value: world.db.dead.list(limit=value),
        "batches' after": lambda world, value: world.db.batches(after=value),
        "batches' limit": lambda world, value: world.db.batches(limit=value),
        "finished_jobs' limit": lambda world, value: world.db.finished_jobs(limit=value),
        "sweep": lambda world, value: world.db.sweep(value),
        "actions.add's number": lambda world, value: world.db.actions.add("ann", "purge", "mail", value),
        "metrics' width": lambda world, value: world.db.metrics.history(since=datetime.now(UTC), width=value),
        "failures' limit": lambda world, value: world.db.failures(limit=value),
        "dead.count's most": lambda world, value: world.db.dead.count(most=value),
        "actions.list's limit": lambda world, value: world.db.actions.list(limit=value),
        "actions.list's after": lambda world, value: world.db.actions.list(after=value),
        "limit's concurrency": lambda world, value: world.queue.limit(concurrency=value),
        "limit's rate": lambda world, value: world.queue.limit(rate=value),
        "limit's per_group": lambda world, value: world.queue.limit(per_group=value),
        "max_payload": lambda world, value: world.open(max_payload=value),
        "pool_size": lambda world, value: world.open(pool_size=value),
        "worker's concurrency": lambda world, value: Worker(world.db, "q", concurrency=value),
        "worker's prefetch": lambda world, value: Worker(world.db, "q", prefetch=value),
        "worker's shares": lambda world, value: Worker(world.db, {"q": value}),
        "worker's dead_at_most": lambda world, value: Worker(world.db, "q", dead_at_most=value),
        "optimistic": lambda _, value: Optimistic(value),
        "adaptive": lambda _, value: Adaptive(value),
        "delete": lambda _, value: Delete(value),
        "lock_then_delete": lambda _, value: LockThenDelete(value),
        "delete_mark": lambda _, value: DeleteMark(value),
    }
    for what, act in verbs.items():
        yield from _each(what, _COUNTS, act)
    yield from _each(
        "reschedule's priority", _COUNTS, lambda world, value: world.queue.reschedule(1, priority=value), without=["negative"]
    )
    yield from _each("priority", _COUNTS, lambda world, value: world.queue.enqueue("k", priority=value), without=["negative"])
    for what in ("claim", "peek", "pop", "max_attempts", "pool_size", "optimistic", "worker's concurrency"):
        yield Case(f"{what}: zero", lambda world, act=verbs[what]: act(world, 0), "=0: must be 1 to ")  # type: ignore[misc]


def _times() -> Iterator[Case]:
    yield from _each("reschedule's run_at", _TIMES, lambda world, value: world.queue.reschedule(1, run_at=value))
    yield from _each("run_at", _TIMES, lambda world, value: world.queue.enqueue("k", run_at=value))
    yield from _each("since", _TIMES, lambda world, value: world.db.metrics.history(since=value))
    first = {**_TIMES}
    yield from _each("first_at", first, lambda world, value: world.db.schedules.set("s", "q", "k", every=5, first_at=value))


def _lists() -> Iterator[Case]:
    verbs: dict[str, Callable[[World, Any], object]] = {
        "enqueue_many": lambda world, value: world.queue.enqueue_many(value),
        "enqueue_batch": lambda world, value: world.queue.enqueue_batch(value, ("k", None)),
        "then": lambda world, value: world.queue.enqueue_batch([("k", 1)], value),
        "complete_many": lambda world, value: world.queue.complete_many(value),
        "fail_many": lambda world, value: world.queue.fail_many(value, "x"),
        "snooze_many": lambda world, value: world.queue.snooze_many(value, 5),
        "release_many": lambda world, value: world.queue.release_many(value),
        "extend_many": lambda world, value: world.queue.extend_many(value, 5),
        "cancel_many": lambda world, value: world.queue.cancel_many(value),
        "bury_many": lambda world, value: world.queue.bury_many(value, "x"),
        "handles": lambda world, value: world.queue.leases_from_tokens(value),
        "next_due": lambda world, value: world.db.next_due(value),
        "listed": lambda _, value: backoff.listed(value),
    }
    for what, act in verbs.items():
        yield from _each(what, _LISTS, act)
    yield from _each("worker's queues", _LISTS, lambda world, value: Worker(world.db, value))


# What is none of the above: its argument, and what it says.
_SINGLE: dict[str, tuple[Act, str]] = {
    "enqueue_many of a text": (lambda world: world.queue.enqueue_many("ab"), r"job 0: must be \(kind, payload\)"),  # type: ignore[arg-type]
    "enqueue_many of kinds": (lambda world: world.queue.enqueue_many(["k"]), r"job 0: must be \(kind, payload\)"),  # type: ignore[list-item]
    "enqueue_many of nothing in a tuple": (lambda world: world.queue.enqueue_many([()]), r"job 0: must be \(kind, payload\)"),  # type: ignore[list-item]
    "enqueue_many of four in a tuple": (lambda world: world.queue.enqueue_many([("k", 1, {}, 1)]), "job 0: must be"),  # type: ignore[list-item]
    "enqueue_many with an unknown option": (
        lambda world: world.queue.enqueue_many([("k", 1), ("k", 2, {"dealy": 3})]),
        "job 1: unknown options dealy; known: delay",
    ),
    "enqueue_many with options in a list": (
        lambda world: world.queue.enqueue_many([("k", 1, ["delay"])]),  # type: ignore[list-item]
        "job 0: options must be a mapping",
    ),
    "on_duplicate unknown": (
        lambda world: world.queue.enqueue("k", on_duplicate="ignore"),
        "on_duplicate='ignore': must be raise, skip, replace or debounce",
    ),
    "on_duplicate a list": (lambda world: world.queue.enqueue("k", on_duplicate=[]), "must be raise, skip"),  # type: ignore[arg-type]
    "skip without a key": (lambda world: world.queue.enqueue("k", on_duplicate="skip"), "on_duplicate='skip' .* unique_key"),
    "replace without a key": (lambda world: world.queue.enqueue("k", on_duplicate="replace"), "'replace' .* unique_key"),
    "debounce without a key": (lambda world: world.queue.enqueue("k", on_duplicate="debounce"), "'debounce' .* unique_key"),
    "unique_for without a key": (lambda world: world.queue.enqueue("k", unique_for=5), "unique_for .* unique key"),
    "a batch that replaces": (
        lambda world: world.queue.enqueue_batch([("k", 1)], ("k", 2), on_duplicate="replace"),
        "cannot be counted; use raise or skip",
    ),
    "then with a delay": (
        lambda world: world.queue.enqueue_batch([("k", 1)], ("k", 2, {"delay": 1})),
        "its options may be headers, max_attempts, priority",
    ),
    "headers a list": (lambda world: world.queue.enqueue("k", headers=["a"]), "headers=.*must be a mapping"),  # type: ignore[arg-type]
    "headers with numbers as keys": (lambda world: world.queue.enqueue("k", headers={1: 2}), "mapping with string keys"),  # type: ignore[dict-item]
    "priority an unprintable object": (
        lambda world: world.queue.enqueue("k", priority=Unprintable()),  # type: ignore[arg-type]
        "priority=<Unprintable instance at .*>: must be a whole number",
    ),
    "next_due of a text": (lambda world: world.db.next_due("mail"), r"queues='mail': must be a list of names: \['mail'\]"),
    "next_due of bytes": (lambda world: world.db.next_due(b"mail"), "must be a list of names"),  # type: ignore[arg-type]
    "redrive of a queue": (lambda world: world.db.dead.redrive("mail"), "ids='mail': .*queue='mail'"),  # type: ignore[arg-type]
    "redrive of half an id": (lambda world: world.db.dead.redrive([1.5]), "id=1.5: must be a whole number"),  # type: ignore[list-item]
    "dead.list after a number": (lambda world: world.db.dead.list(after=5), "after=5: must be the last job of the previous page"),  # type: ignore[arg-type]
    "finished_jobs after a number": (
        lambda world: world.db.finished_jobs(after=5),  # type: ignore[arg-type]
        "after=5: must be the last one of the previous page",
    ),
    "finished_jobs after a live job": (
        lambda world: world.db.finished_jobs(after=world.queue.get(world.waiting)),  # type: ignore[arg-type]
        "must be the last one of the previous page",
    ),
    "complete_many of one job": (lambda world: world.queue.complete_many(world.leased), "jobs=.*: must be a list"),  # type: ignore[arg-type]
    "complete_many of ids": (lambda world: world.queue.complete_many([world.leased, world.leased.id]), "is not a LeasedJob"),  # type: ignore[list-item]
    "complete_many of snapshots": (
        lambda world: world.queue.complete_many([world.queue.get(world.leased.id)]),  # type: ignore[list-item]
        "is not a LeasedJob: settle the objects that claim",
    ),
    "complete_many of another queue": (
        lambda world: world.db.queue("another").complete_many([world.leased]),
        "was claimed from .*, not from",
    ),
    "complete_many with too few retained": (
        lambda world: world.queue.complete_many([world.leased], results=[]),
        "0 results to retain for 1 jobs: give one for each",
    ),
    "fail_many with too few errors": (lambda world: world.queue.fail_many([world.leased], []), "0 errors for 1 jobs"),
    "fail_many with too few waits": (lambda world: world.queue.fail_many([world.leased], "x", retry_in=[]), "0 waits"),
    "fail_many with too few ends": (
        lambda world: world.queue.fail_many([world.leased] * 2, "x", last=[True]),
        "1 ends for 2 jobs",
    ),
    "fail_many with a number of ends": (lambda world: world.queue.fail_many([world.leased], "x", last=1), "last=1: must be a list"),  # type: ignore[arg-type]
    "fail without a reason": (lambda world: world.leased.fail(None), "error=None: must be a text or an exception"),  # type: ignore[arg-type]
    "bury for a number": (lambda world: world.leased.bury(5), "error=5: must be a text or an exception"),  # type: ignore[arg-type]
    "a handler's outcome": (lambda world: world.leased.settle("done"), "return nothing, Snooze, Retry, Cancel or Dead"),  # type: ignore[arg-type]
    "progress above 1": (lambda world: world.leased.progress(50), "fraction=50: must be 0 to 1"),
    "progress NaN": (lambda world: world.leased.progress(NAN), "fraction=nan: must be 0 to 1"),
    "progress a text": (lambda world: world.leased.progress("half"), "must be a number from 0 to 1"),  # type: ignore[arg-type]
    "progress' note a number": (lambda world: world.leased.progress(0.5, 5), "note=5: must be a string"),  # type: ignore[arg-type]
    "schedule without a rule": (lambda world: world.db.schedules.set("s", "q", "k"), "give either cron, such as 0 3 "),
    "schedule with two rules": (lambda world: world.db.schedules.set("s", "q", "k", cron="* * * * *", every=5), "give either"),
    "schedule with no cron line": (lambda world: world.db.schedules.set("s", "q", "k", cron="daily"), "the fields are minute hour"),
    "schedule with a number as cron": (lambda world: world.db.schedules.set("s", "q", "k", cron=5), "cron=5: must be a string"),  # type: ignore[arg-type]
    "schedule on a day that never comes": (
        lambda world: world.db.schedules.set("s", "q", "k", cron="0 0 30 2 *"),
        "cron='0 0 30 2",
    ),
    "schedule in an unknown zone": (
        lambda world: world.db.schedules.set("s", "q", "k", cron="* * * * *", zone="Mars/Olympus"),
        "no such time zone",
    ),
    "schedule in no zone": (
        lambda world: world.db.schedules.set("s", "q", "k", cron="* * * * *", zone=None),  # type: ignore[arg-type]
        "no such time zone",
    ),
    "schedule that catches up twice": (
        lambda world: world.db.schedules.set("s", "q", "k", every=5, catch_up="two"),
        "must be one, all or none",
    ),
    "schedule with a list to catch up": (
        lambda world: world.db.schedules.set("s", "q", "k", every=5, catch_up=["one"]),  # type: ignore[arg-type]
        "must be one, all or none",
    ),
    "schedule that is not there": (lambda world: world.db.schedules.resume("nowhere"), "there is no schedule 'nowhere'"),
    "optimistic with an unknown pick": (lambda _: Optimistic(pick="any"), "must be one of head"),  # type: ignore[arg-type]
    "optimistic with a list to pick": (lambda _: Optimistic(pick=[]), "must be one of head"),  # type: ignore[arg-type]
    "optimistic with a number for chance": (lambda _: Optimistic(rng=5), "rng=5: must be a random.Random"),  # type: ignore[arg-type]
    "adaptive with a class for chance": (lambda _: Adaptive(rng=dict), "rng=.*: must be a random.Random"),  # type: ignore[arg-type]
    "adaptive with locks in words": (lambda _: Adaptive(skip_locked="no"), "skip_locked='no': must be True or False"),  # type: ignore[arg-type]
    "adaptive without costs": (lambda _: Adaptive(cost_ratio=0), "cost_ratio=0: must be above 0"),
    "adaptive with NaN costs": (lambda _: Adaptive(cost_ratio=NAN), "cost_ratio=nan: must be a finite number"),
    "adaptive with endless costs": (lambda _: Adaptive(cost_ratio=INFINITE), "cost_ratio=inf: must be a finite number"),
    "adaptive with costs in words": (lambda _: Adaptive(cost_ratio="much"), "cost_ratio='much': must be a finite number"),  # type: ignore[arg-type]
    "listed without a wait": (lambda _: backoff.listed([]), "give it one wait at least"),
    "listed as a text": (lambda _: backoff.listed("15"), "must be a list of seconds"),  # type: ignore[arg-type]
    "exponential that shrinks": (lambda _: backoff.exponential(factor=-2), "factor=-2: must be 0 to 1000"),
    "exponential beyond floats": (lambda _: backoff.exponential(factor=1e10), "factor=1e[+]10: must be 0 to 1000"),
    "exponential with a NaN factor": (lambda _: backoff.exponential(factor=NAN), "factor=nan: must be a finite number"),
    "exponential with a factor in words": (lambda _: backoff.exponential(factor="2"), "factor='2': must be a finite number"),  # type: ignore[arg-type]
    "exponential that jumps about": (lambda _: backoff.exponential(jitter=2), "jitter=2: must be 0 to 1"),
    "exponential with a NaN jitter": (lambda _: backoff.exponential(jitter=NAN), "jitter=nan: must be 0 to 1"),
    "exponential without chance": (lambda _: backoff.exponential(rng=5), "rng=5: must be a function"),  # type: ignore[arg-type]
    "geometric with a NaN ratio": (lambda _: backoff.geometric(ratio=NAN), "ratio=nan: must be a finite number"),
    "quartic without chance": (lambda _: backoff.quartic(rng=None), "rng=None: must be a function"),  # type: ignore[arg-type]
    "worker for a URL": (lambda _: Worker("sqlite:///x", "q"), r"db='sqlite:///x': must be a QueueDB: .*QueueDB\('sqlite:///x'\)"),  # type: ignore[arg-type]
    "worker for a URL with a password": (
        lambda _: Worker("postgresql://u:hunter2-Zq@host/d", "q"),  # type: ignore[arg-type]
        r"postgresql://u:\*\*\*@host/d.*must be a QueueDB",
    ),
    "worker for a queue": (lambda world: Worker(world.queue, "q"), "must be a QueueDB"),  # type: ignore[arg-type]
    "worker for None": (lambda _: Worker(None, "q"), "db=None: must be a QueueDB"),  # type: ignore[arg-type]
    "worker without a queue": (lambda world: Worker(world.db, []), "queues is empty: name at least one"),
    "worker of a number": (lambda world: Worker(world.db, ["q", 5]), "must be a string"),  # type: ignore[list-item]
    "worker of a list": (lambda world: Worker(world.db, [["q"]]), "must be a string"),  # type: ignore[list-item]
    "worker with one weight": (lambda world: Worker(world.db, ["q", "r"], weights={"q": 1}), "must have a weight for each of"),
    "worker with a list of weights": (lambda world: Worker(world.db, ["q"], weights=[1]), r"weights=\[1\]: must"),  # type: ignore[arg-type]
    "worker with no weight": (lambda world: Worker(world.db, ["q"], weights={"q": 0}), "weights.* must be 1 to"),
    "worker in an unknown mode": (lambda world: Worker(world.db, "q", mode="once"), "must be at_least_once or at_most_once"),
    "worker with a list of modes": (lambda world: Worker(world.db, "q", mode=[]), "must be at_least_once or"),  # type: ignore[arg-type]
    "worker ahead of itself": (
        lambda world: Worker(world.db, "q", prefetch=5, mode="at_most_once"),
        "exclude each other",
    ),
    "handler without a job": (
        lambda world: Worker(world.db, "q").handles("k")(lambda: None),  # type: ignore[type-var]
        "the handler of kind 'k' must be a function of one job: too many positional arguments",
    ),
    "handler of more than a job": (
        lambda world: Worker(world.db, "q").handles("k")(lambda job, mailer: None),  # type: ignore[type-var]
        "must be a function of one job: missing a required argument: 'mailer'",
    ),
    "wrapper without a call": (
        lambda world: Worker(world.db, "q").around(lambda job: None),  # type: ignore[type-var]
        "must be a function of a job and of the function to call with it: too many positional arguments",
    ),
    "hook without an event": (
        lambda world: Worker(world.db, "q").on(lambda: None),  # type: ignore[arg-type]
        "must be a function of one JobEvent: too many positional arguments",
    ),
    "handler that cannot be called": (lambda world: Worker(world.db, "q").handles("k")(5), "must be a function of one job"),  # type: ignore[type-var]
    "handler's backoff": (lambda world: Worker(world.db, "q").handles("k", backoff=5)(print), "must be a function of the attempt"),  # type: ignore[arg-type]
    "handler's executor": (
        lambda world: Worker(world.db, "q").handles("k", executor="gpu")(print),
        "must be one of thread, process",
    ),
    "handler's schema": (lambda world: Worker(world.db, "q").handles("k", schema=5)(print), "schema=5: must be a pydantic model"),
    "hook that cannot be called": (lambda world: Worker(world.db, "q").on(5), "must be a function of one JobEvent"),  # type: ignore[arg-type]
    "table None": (lambda world: world.open(table=None), "table=None: use 1 to 40"),
    "table a number": (lambda world: world.open(table=5), "table=5: use 1 to 40"),
    "table empty": (lambda world: world.open(table=""), "table=''"),
    "table with a blank": (lambda world: world.open(table="my jobs"), "table='my jobs'"),
    "table too long": (lambda world: world.open(table="j" * 41), "table='jjj"),
    "schema a number": (lambda world: world.open(schema=5), "schema=5: use 1 to 40"),
    "schema empty": (lambda world: world.open(schema=""), "schema=''"),
    "codec a number": (lambda world: world.open(codec=5), "codec=5: must be an object with encode and decode"),
    "codec a class": (lambda world: world.open(codec=JSONCodec), r"codec=JSONCodec is a class: pass an object, JSONCodec\(\)"),
    "codec a module": (lambda world: world.open(codec=json), "must be an object with encode and decode"),
    "codec half": (lambda world: world.open(codec=SimpleNamespace(encode=str)), "must be an object with encode and decode"),
    "codec false": (lambda world: world.open(codec=0), "codec=0: must be an object with encode and decode"),
    "clock a number": (lambda world: world.open(clock=5), "clock=5: must be a function"),
}

_SETTINGS: dict[str, tuple[Act, str]] = {
    "strategy unknown": (lambda world: world.open(strategy="fast"), "unknown strategy 'fast'; known: adaptive"),
    "strategy a class": (
        lambda world: world.open(strategy=Optimistic),
        r"strategy=Optimistic is a class: pass an object, Optimistic\(\)",
    ),
    "strategy another class": (lambda world: world.open(strategy=SkipLocked), r"pass an object, SkipLocked\(\)"),
    "strategy a third class": (lambda world: world.open(strategy=Pessimistic), r"pass an object, Pessimistic\(\)"),
    "strategy a removal": (lambda world: world.open(strategy=Delete()), "neither a name nor an object with name, needs"),
    "strategy None": (lambda world: world.open(strategy=None), "neither a name nor an object"),
    "removal unknown": (lambda world: world.open(removal="burn"), "unknown removal 'burn'; known: delete"),
    "removal a class": (lambda world: world.open(removal=Delete), r"removal=Delete is a class: pass an object, Delete\(\)"),
    "removal a strategy": (lambda world: world.open(removal=Optimistic()), "neither a name nor an object"),
    "removal None": (lambda world: world.open(removal=None), "neither a name nor an object"),
    "URL None": (lambda world: world.open(url_or_engine=None), "not a database URL"),
    "URL a number": (lambda world: world.open(url_or_engine=5), "not a database URL"),
    "URL a path": (lambda world: world.open(url_or_engine=Path("queue.db")), "not a database URL"),
    "URL empty": (lambda world: world.open(url_or_engine=""), "not a database URL; write for example sqlite"),
    "URL without a scheme": (lambda world: world.open(url_or_engine="queue.db"), "not a database URL"),
    "URL of nobody": (lambda world: world.open(url_or_engine="nosuch://host/d"), "unknown database scheme 'nosuch'; use one of"),
    "URL with a port in words": (lambda world: world.open(url_or_engine="mysql://u@host:port/d"), "not a database URL"),
    "URL with an @ in its password": (lambda world: world.open(url_or_engine="mysql://u:p@ss@host/d"), "write it as %40"),
    "URL with an unknown driver": (lambda world: world.open(url_or_engine="sqlite+nosuch:///x"), "unknown driver"),
    "URL with another driver, which is not installed": (
        lambda world: world.open(url_or_engine="mysql+mysqlconnector://u@host/d"),
        r"the driver of 'mysql\+mysqlconnector' is not installed: install it, or use mysql\+pymysql://",
    ),
    "URL for asyncio": (lambda world: world.open(url_or_engine="sqlite+aiosqlite:///x"), "is for asyncio: use sqlite://"),
    "URL with an unknown option": (lambda world: world.open(url_or_engine=f"{world.url}?nosuch=1"), "nosuch"),
    "URL with two slashes": (lambda world: world.open(url_or_engine="sqlite://queue.db"), "Valid SQLite URL forms"),
    "URL with a wait in words": (lambda world: world.open(url_or_engine=f"{world.url}?timeout=long"), "cannot open .*long"),
    "URL with MySQL's wait in words": (
        lambda world: world.open(url_or_engine="mysql://u@127.0.0.1:1/d?read_timeout=long"),
        "cannot open .*long",
    ),
    "URL with a port too large": (lambda world: world.open(url_or_engine="mysql://u@127.0.0.1:70000/d"), "cannot open .*:70000"),
    "connection of SQLite's own": (
        lambda world: world.queue.enqueue("k", using=sqlite3.connect(":memory:")),  # type: ignore[arg-type]
        "using= is a connection to a database in memory",
    ),
    "engine for a connection": (
        lambda world: world.queue.enqueue("k", using=world.db.database.engine),  # type: ignore[arg-type]
        "using= takes a SQLAlchemy Connection or Session, or an open connection of psycopg.*, not Engine",
    ),
    "connection of SQLite's from a pool": (
        lambda world: world.queue.enqueue("k", using=world.db.database.engine.raw_connection()),  # type: ignore[arg-type]
        "using= takes a SQLAlchemy Connection or Session, or .*, not ",
    ),
    "number for a connection": (lambda world: world.leased.complete(using=5), "using= takes a SQLAlchemy Connection"),  # type: ignore[arg-type]
    "migration unknown": (lambda world: world.db.migrate(revision="nosuch"), "there is no revision 'nosuch'"),
    "migration a number": (lambda world: world.db.migrate(revision=5), "there is no revision 5: give head, base"),  # type: ignore[arg-type]
    "migration printed to nowhere": (lambda world: world.db.migration_sql("nosuch"), "there is no revision 'nosuch'"),
}


_REFUSED_BY_SQLALCHEMY: dict[str, tuple[Act, str]] = {
    "closed connection": (
        lambda world: world.queue.enqueue("k", using=_closed(world)),
        "the connection is closed: use it within its with block",
    ),
    "session without an engine": (lambda world: world.queue.enqueue("k", using=Session()), r"no engine: Session\(engine\)"),
    "session whose transaction has ended": (
        _enqueue_after_a_rollback,
        "no transaction is open: begin one, and use it within its with block",
    ),
}


def cases() -> list[Case]:
    """All of them; no two have the same name."""
    found = [*_names(), *_spans(), *_counts(), *_times(), *_lists()]
    found += [Case(name, act, says) for name, (act, says) in _SINGLE.items()]
    found += [Case(name, act, says, ConfigurationError) for name, (act, says) in _SETTINGS.items()]
    found += [Case(name, act, says, PermanentStorageError) for name, (act, says) in _REFUSED_BY_SQLALCHEMY.items()]
    found += [
        Case("payload with a date", lambda world: world.queue.enqueue("k", datetime.now(UTC)), "make it text", PayloadError),
        Case("key twice", _enqueue_a_key_twice, "is taken by job 0 of the same call", DuplicateJobError),
    ]
    return found
