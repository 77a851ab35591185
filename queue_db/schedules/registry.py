"""``db.schedules``: jobs enqueued by cron lines or at intervals; each occurrence once, however many processes check."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from queue_db import arguments
from queue_db.codecs import Schema, decoded_or_text
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError, ConfigurationError, PayloadError
from queue_db.model import UNCHANGED, NewJob, Unchanged, from_micros, to_micros
from queue_db.schedules import store
from queue_db.schedules.recurrence import Cron, Interval, Rule, rule_of, zone_of
from queue_db.schedules.tables import NAME_LENGTH, RULE_LENGTH
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import OnDuplicate
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, QUEUE_LENGTH
from queue_db.verbs import new_jobs

CatchUp = Literal["one", "all", "none"]
"""Which jobs a schedule enqueues for the occurrences at which no worker ran."""

CATCH_UP: tuple[CatchUp, ...] = get_args(CatchUp)

#: With ``catch_up="none"`` an occurrence that is more than this many seconds late is skipped.
MISSED_AFTER = 60.0

#: With ``catch_up="all"``: most occurrences enqueued in one transaction; the next tick enqueues more.
AT_ONCE = 1000

#: What a new schedule has where nothing is given.
_DEFAULTS: dict[str, Any] = {
    "payload": None,
    "zone": "UTC",
    "catch_up": "one",
    "priority": 0,
    "max_attempts": DEFAULT_MAX_ATTEMPTS,
    "headers": None,
}

_AS_STORED = ("name", "queue", "kind", "rule", "zone", "catch_up", "priority", "max_attempts")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it was when it was read."""

    name: str
    queue: str
    kind: str
    payload: Any
    rule: str  #: the cron line, or ``every`` and seconds
    zone: str
    catch_up: str
    paused: bool
    next_at: datetime
    last_at: datetime | None
    priority: int
    max_attempts: int
    headers: Mapping[str, Any]  #: of each job

    def upcoming(self, count: int = 5) -> list[datetime]:
        """The times of the next ``count`` occurrences, from ``next_at`` on. They are computed from the rule; nothing is read.

        :raises ConfigurationError: this process cannot parse the rule.
        """
        times = [self.next_at][: arguments.whole("count", count, 0)]
        with suppress(ArgumentError):  # a cron line may have no further occurrence
            rule = rule_of(self.rule, self.zone)
            while 0 < len(times) < count:
                times.append(from_micros(rule.after(to_micros(times[-1]))))
        return times


class Schedules:
    """The schedules of one database. Workers enqueue due occurrences; a program without workers calls :meth:`tick`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def set(
        self,
        name: str,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: float | None = None,
        zone: str | Unchanged = "UTC",
        catch_up: CatchUp | Unchanged = "one",
        first_at: datetime | None = None,
        priority: int | Unchanged = 0,
        max_attempts: int | Unchanged = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | Unchanged | None = None,
    ) -> bool:
        """Create or change the schedule with this name; return whether it is new.

        What is UNCHANGED, as the payload may be too, stays as it is; a new schedule gets the default. Every process may call it at
        its start: the next occurrence changes only if the rule changes or ``first_at`` is given.

        :param cron: minute, hour, day, month, weekday, in ``zone``. An occurrence in an hour that a clock change skips comes at the
            end of this hour.
        :param every: seconds between two occurrences.
        :param catch_up: for occurrences that passed while no worker ran: ``one`` enqueues a job for the last one, ``all`` a job for
            each, and ``none`` a job for the last one only if it is at most a minute late.
        :param first_at: the first occurrence; default: the next by ``cron``, or ``every`` seconds from now.
        :raises ArgumentError: an argument is out of range; nothing was changed.
        :raises PayloadError: the payload cannot be stored; nothing was changed.
        """
        core = self._core
        arguments.name("name", name, NAME_LENGTH)
        arguments.name("queue", queue, QUEUE_LENGTH)
        settings = {"payload": payload, "zone": zone, "catch_up": catch_up}
        settings |= {"priority": priority, "max_attempts": max_attempts, "headers": headers}
        given = {one: value for one, value in settings.items() if value is not UNCHANGED}
        rule = str(_rule(cron, every, given.get("zone", _DEFAULTS["zone"])))
        first = arguments.moment("first_at", first_at)
        refused: PayloadError | None = None
        try:
            columns = self._columns(queue, kind, rule, _DEFAULTS | given, core.schemas)
        except PayloadError as error:
            if "payload" in given:
                raise
            # The schema of this kind asks for a payload: the schedule can be changed, and cannot be new.
            refused, columns = error, self._columns(queue, kind, rule, _DEFAULTS | given, {})
        changed = {one: columns[one] for one in ("queue", "kind", "rule", *given)}
        new = core.run(Run("schedules.put", upserts=True), store.put, name, changed, None if refused else columns, first)
        if new is None:
            raise refused or ArgumentError(f"there is no schedule {name!r}")
        return new

    def list(self) -> list[Schedule]:
        """All schedules by name."""
        return [self._schedule(row) for row in self._core.read("schedules.all_schedules", store.all_schedules)]

    def pause(self, name: str) -> None:
        """Stop the schedule from enqueuing jobs until :meth:`resume`.

        :raises ArgumentError: there is no such schedule.
        """
        self._change(name, {"paused": 1})

    def resume(self, name: str) -> None:
        """Let the schedule enqueue jobs again; ``catch_up`` decides about occurrences that passed during the pause.

        :raises ArgumentError: there is no such schedule.
        """
        self._change(name, {"paused": 0})

    def run_now(self, name: str) -> int:
        """Enqueue the job of a schedule now, paused or not, and return its id; the time of the next occurrence does not change.

        The job's header ``occurrence`` has the present time.

        :raises ArgumentError: there is no such schedule.
        """
        arguments.name("name", name, NAME_LENGTH)
        ran = self._core.run(Run("run_now"), _run_now, name)
        if ran is None:
            raise ArgumentError(f"there is no schedule {name!r}")
        return ran

    def remove(self, name: str) -> bool:
        """Delete the schedule; False if there is none."""
        arguments.name("name", name, NAME_LENGTH)
        return self._core.write("schedules.remove", store.remove, name)

    def tick(self) -> tuple[int, float | None]:
        """Enqueue the due occurrences. Return the number of jobs, and the seconds until the next occurrence; None: there is none.

        Any number of processes may call it at once: the process that advances a schedule enqueues its occurrence.

        :raises ConfigurationError: this process cannot parse a rule; the occurrences of all other schedules were enqueued.
        """
        now, rows, later = self._core.read("schedules.due", store.due)
        enqueued = 0
        upcoming = [] if later is None else [later]
        unreadable: ConfigurationError | None = None
        for row in rows:
            try:
                occurrences, next_at = _occurrences(rule_of(row.rule, row.zone), row.next_at, now, row.catch_up)
            except ConfigurationError as error:
                unreadable = unreadable or ConfigurationError(f"schedule {row.name!r}: {error}")
                continue
            upcoming.append(next_at)
            enqueued += self._core.run(Run("tick"), _tick, row, occurrences, next_at)
        if unreadable is not None:
            raise unreadable
        return enqueued, max(0.0, (min(upcoming) - now) / 1_000_000) if upcoming else None

    def _schedule(self, row: Any) -> Schedule:
        return Schedule(
            **{name: getattr(row, name) for name in _AS_STORED},
            payload=decoded_or_text(self._core.codec, row.payload),
            headers=json.loads(row.headers) if row.headers else {},
            paused=bool(row.paused),
            next_at=from_micros(row.next_at),
            last_at=None if row.last_at is None else from_micros(row.last_at),
        )

    def _columns(self, queue: str, kind: str, rule: str, settings: dict[str, Any], schemas: Mapping[str, Schema]) -> dict[str, Any]:
        """The columns of a schedule with these settings, checked and encoded."""
        job = dict(settings)
        catch_up, zone = job.pop("catch_up"), job.pop("zone")
        if catch_up not in CATCH_UP:
            raise arguments.wrong("catch_up", catch_up, ": must be one, all or none")
        zone_of(zone)
        built = new_jobs.JobBuilder(queue, self._core.codec, self._core.max_payload, schemas).job(kind, **job)
        return new_jobs.columns_of(built) | {"rule": rule, "zone": zone, "catch_up": catch_up}

    def _change(self, name: str, values: dict[str, Any]) -> None:
        arguments.name("name", name, NAME_LENGTH)
        if not self._core.write("schedules.change", store.change, name, values):
            raise ArgumentError(f"there is no schedule {name!r}")


def _tick(tx: Transaction, row: Any, occurrences: Sequence[int], next_at: int) -> int:
    """Advance a schedule and enqueue the jobs of its occurrences, unless another process was first; return the number of jobs."""
    last = occurrences[-1] if occurrences else None
    if not store.advance(tx, row.name, row.version, last_at=last, next_at=next_at):
        return 0
    if occurrences:
        enqueue.insert_jobs(tx, [_job(row, occurrence) for occurrence in occurrences], OnDuplicate.RAISE)
        tx.wake(row.queue)
    return len(occurrences)


def _run_now(tx: Transaction, name: str) -> int | None:
    """Enqueue the job of a schedule and return its id; None: there is no such schedule."""
    row = store.find_schedule(tx, name)
    if row is None:
        return None
    (job_id,) = enqueue.insert_jobs(tx, [_job(row, tx.read_clock())], OnDuplicate.RAISE)
    assert job_id is not None  # noqa: S101 - only a duplicate has no id, and this job has no unique key
    tx.wake(row.queue)
    return job_id


def check_rule(*, cron: str | None = None, every: float | None = None, zone: str = "UTC") -> None:
    """Check the rule of a schedule as :meth:`Schedules.set` does. No database is asked.

    :param every: seconds between two occurrences.
    :raises ArgumentError: the cron line, the interval or the time zone is wrong, or not exactly one of the first two is given.
    :raises ConfigurationError: this process cannot parse cron lines.
    """
    _rule(cron, every, zone)
    zone_of(zone)


def _rule(cron: str | None, every: float | None, zone: str) -> Rule:
    if (cron is None) == (every is None):
        raise ArgumentError("give either cron, such as 0 3 * * *, or every, in seconds")
    if cron is not None:
        return Cron(arguments.name("cron", cron.strip() if isinstance(cron, str) else cron, RULE_LENGTH), zone)
    return Interval(arguments.seconds("every", every, zero=False))


def _occurrences(rule: Rule, first: int, now: int, catch_up: str) -> tuple[list[int], int]:
    """Choose by ``catch_up`` which occurrences from ``first`` to ``now`` to enqueue; return them and the next occurrence."""
    if catch_up == "all":
        occurrences = [first]
        while len(occurrences) < AT_ONCE and (occurrence := rule.after(occurrences[-1])) <= now:
            occurrences.append(occurrence)
        return occurrences, rule.after(occurrences[-1])
    last = rule.last(first, now)
    missed = catch_up == "none" and now - last > MISSED_AFTER * 1_000_000
    return [] if missed else [last], rule.after(last)


def _job(row: Any, occurrence: int) -> NewJob:
    """The job of one occurrence; its headers name the schedule and the occurrence."""
    return new_jobs.job_of(row, {"schedule": row.name, "occurrence": from_micros(occurrence).isoformat()})
