"""A model of one queue, two workers and the time, and a machine that does the same things to the model and to the real queue."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import delete, select

from queue_db import (
    Adaptive,
    ArgumentError,
    DuplicateJobError,
    JobNotFoundError,
    LeasedJob,
    Optimistic,
    Pessimistic,
    QueueDB,
    SkipLocked,
    State,
    Verdict,
)
from queue_db.model import to_micros
from queue_db.store.schema import BLOCKED
from queue_db.testing import SettableClock

SECOND = 1_000_000
KEYS = (None, "a", "b")
GROUPS = (None, None, "g", "h")

# The same steps must do the same when they are tried again: chance is seeded.
STRATEGIES = {
    "adaptive": lambda: Adaptive(rng=random.Random(1)),
    "head": lambda: Optimistic(pick="head"),
    "slot": lambda: Optimistic(window=3, rng=random.Random(2)),
    "slice": lambda: Optimistic(window=3, pick="slice", rng=random.Random(3)),
    "skip_locked": SkipLocked,
    "pessimistic": Pessimistic,
}

workers = st.integers(0, 1)
seconds = st.integers(0, 12)


@dataclass
class ModelJob:
    """What must be true of one job."""

    version: int
    attempts: int
    max_attempts: int
    priority: int
    available_at: int
    key: str | None
    group: str | None = None
    held: bool = False
    dead: bool = False
    #: When it is due after those before it in its group; None: nobody is before it.
    then_due: int | None = None

    @property
    def blocked(self) -> bool:
        return self.then_due is not None


class QueueMachine(RuleBasedStateMachine):
    """Everything that two workers, a producer and an operator may do, in any order.

    ``pool`` is an open database; ``only`` the strategies that it can serve.
    """

    def __init__(self, pool: QueueDB, only: list[str]) -> None:
        super().__init__()
        self.pool = pool
        self.only = only
        self.name = f"machine-{uuid.uuid4().hex[:12]}"
        self.clock = SettableClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.jobs: dict[int, ModelJob] = {}
        self.gone: dict[int, int] = {}
        self.leases: list[tuple[int, LeasedJob]] = []
        self.given: set[tuple[int, int]] = set()

    @initialize(
        data=st.data(),
        removal=st.sampled_from(["delete", "lock_then_delete", "delete_mark"]),
        per_group=st.sampled_from([1, 1, 2, 3]),
    )
    def open(self, data: st.DataObject, removal: str, per_group: int) -> None:
        strategy = data.draw(st.sampled_from(self.only), label="strategy")
        self.queues = [
            QueueDB(
                self.pool.database.engine,
                STRATEGIES[strategy](),
                removal,
                clock=self.clock,
                worker=f"worker-{number}",
                retry_after=lambda attempt: 3.0 * attempt,
            ).queue(self.name)
            for number in range(2)
        ]
        self.per_group = per_group
        if per_group > 1:
            self.queues[0].limit(per_group=per_group)

    def teardown(self) -> None:
        tables = self.pool.store.tables
        with self.pool.database.begin() as connection:
            for table in (tables.jobs, tables.dead):
                connection.execute(delete(table).where(table.c.queue == self.name))
            connection.execute(delete(tables.queues).where(tables.queues.c.name == self.name))

    # --- the model's own questions ----------------------------------------------------------------------------------

    def live(self) -> dict[int, ModelJob]:
        return {job_id: job for job_id, job in self.jobs.items() if not job.dead}

    def due(self) -> list[int]:
        now = self.clock()
        found = [(job.priority, job.available_at, job_id) for job_id, job in self.live().items() if job.available_at <= now]
        return [job_id for _, _, job_id in sorted(found)]

    def keyed(self, key: str | None) -> int | None:
        return next((job_id for job_id, job in self.live().items() if key is not None and job.key == key), None)

    def leave(self, *job_ids: int) -> None:
        left = [self.jobs[job_id] for job_id in job_ids]
        for job_id in job_ids:
            self.gone[job_id] = self.jobs.pop(job_id).version
        self.let_in(left)

    def bury(self, *jobs: ModelJob) -> None:
        for job in jobs:
            job.dead, job.held, job.version = True, False, job.version + 1
        self.let_in(jobs)

    def of_group(self, group: str | None) -> list[ModelJob]:
        return [job for _, job in sorted(self.live().items()) if group is not None and job.group == group]

    def let_in(self, left: Sequence[ModelJob]) -> None:
        """For each job that was not blocked and has left its group, one of the first of those that are."""
        for group in {job.group for job in left} - {None}:
            room = sum(job.group == group and not job.blocked for job in left)
            self.admit(group, room)

    def admit(self, group: str | None, room: int) -> None:
        for job in [job for job in self.of_group(group)[: self.per_group] if job.blocked][:room]:
            assert job.then_due is not None
            job.available_at, job.then_due, job.version = max(self.clock(), job.then_due), None, job.version + 1

    def fill(self, group: str | None) -> None:
        """As many as may run, whatever was there before."""
        self.admit(group, max(0, self.per_group - sum(not job.blocked for job in self.of_group(group))))

    def add(self, job_id: int | None, job: ModelJob) -> None:
        assert job_id is not None
        assert job_id not in self.jobs, "an id was used again"
        assert job_id not in self.gone, "an id was used again"
        if job.group is not None and len(self.of_group(job.group)) >= self.per_group:
            self.block(job)
        self.jobs[job_id] = job

    def block(self, job: ModelJob) -> None:
        job.available_at, job.then_due = BLOCKED, job.available_at

    # --- producers --------------------------------------------------------------------------------------------------

    @rule(
        worker=workers,
        key=st.sampled_from(KEYS),
        policy=st.sampled_from(["raise", "skip", "replace", "debounce"]),
        priority=st.sampled_from([0, 0, -1, 2]),
        delay=st.sampled_from([0, 0, 5]),
        max_attempts=st.sampled_from([1, 2, 25]),
        group=st.sampled_from(GROUPS),
    )
    def enqueue(
        self, worker: int, key: str | None, policy: str, priority: int, delay: int, max_attempts: int, group: str | None
    ) -> None:
        if group is not None:
            max_attempts = 25  # a claim that meets a job whose attempts are used up may go on with the next of its group

        def add() -> int | None:
            return self.queues[worker].enqueue(
                "kind",
                unique_key=key,
                on_duplicate="raise" if key is None else policy,
                priority=priority,
                delay=delay,
                max_attempts=max_attempts,
                group=group,
            )

        existing = self.keyed(key)
        fresh = ModelJob(0, 0, max_attempts, priority, self.clock() + delay * SECOND, key, group)
        there = None if existing is None else self.jobs[existing]
        if existing is None or there is None:
            self.add(add(), fresh)
        elif policy == "debounce" and there.group == group and there.held and there.available_at > self.clock():
            there.key = None
            self.add(add(), fresh)
            self.fill(group)
        elif policy in ("replace", "debounce") and there.group != group:
            with pytest.raises(ArgumentError, match="group"):
                add()
        elif policy == "raise":
            with pytest.raises(DuplicateJobError) as caught:
                add()
            assert caught.value.existing_id == existing
        elif policy == "skip":
            assert add() is None
            self.fill(group)
        else:
            assert add() == existing
            fresh.version = there.version + 1
            if there.blocked:
                self.block(fresh)
            self.jobs[existing] = fresh
            self.fill(group)

    @rule(worker=workers, groups=st.lists(st.sampled_from(GROUPS), max_size=4), priority=st.sampled_from([0, 1]))
    def enqueue_many(self, worker: int, groups: list[str | None], priority: int) -> None:
        jobs = [("kind", number, {"priority": priority, "group": group}) for number, group in enumerate(groups)]
        ids = self.queues[worker].enqueue_many(jobs)
        assert len(set(ids)) == len(groups)
        for job_id, group in zip(ids, groups, strict=True):
            self.add(job_id, ModelJob(0, 0, 25, priority, self.clock(), None, group))

    # --- workers ----------------------------------------------------------------------------------------------------

    @rule(worker=workers, limit=st.integers(1, 4), lease=st.integers(1, 10))
    def claim(self, worker: int, limit: int, lease: int) -> None:
        self._claimed(worker, limit, lease, lambda: self.queues[worker].claim(limit=limit, lease=lease))

    def _claimed(self, worker: int, limit: int, lease: int, claim: Callable[[], list[LeasedJob]]) -> None:
        due = self.due()
        exhausted = [job_id for job_id in due if self.jobs[job_id].attempts >= self.jobs[job_id].max_attempts]
        won = claim()
        ids = [job.id for job in won]
        assert set(ids) <= set(due) - set(exhausted), "a job that is not due was given away"
        assert len(ids) == len(set(ids)) == min(limit, len(due) - len(exhausted))
        for job in won:
            model = self.jobs[job.id]
            model.version, model.attempts, model.held = model.version + 1, model.attempts + 1, True
            model.available_at = self.clock() + lease * SECOND
            assert (job.version, job.attempts) == (model.version, model.attempts)
            assert to_micros(job.lease_expires) == model.available_at
            assert (job.id, job.version) not in self.given, "one (id, version) was given away twice"
            self.given.add((job.id, job.version))
            self.leases.append((worker, job))
        for job_id in exhausted:
            # A claim that was filled before it came to them leaves some; one that was not has met them all.
            if self.queues[worker].get(job_id).state is State.DEAD:
                # The claim that finds it is no attempt.
                self.jobs[job_id].version += 1
                self.bury(self.jobs[job_id])
            else:
                assert len(won) == limit, "a job whose attempts are used up was left"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), verb=st.sampled_from(["complete", "cancel", "fail", "backoff", "snooze", "release", "extend", "bury"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        worker, jobs, holding = self._some_leases(data)
        queue = self.queues[worker]
        wait = data.draw(seconds, label="seconds") + (verb == "extend")
        verbs: dict[str, Callable[[], list[Verdict]]] = {
            "complete": lambda: queue.complete_many(jobs),
            "cancel": lambda: queue.cancel_many(jobs),
            "fail": lambda: queue.fail_many(jobs, "failed", retry_in=wait),
            "backoff": lambda: queue.fail_many(jobs, "failed"),
            "snooze": lambda: queue.snooze_many(jobs, wait),
            "release": lambda: queue.release_many(jobs),
            "extend": lambda: queue.extend_many(jobs, wait),
            "bury": lambda: queue.bury_many(jobs, "buried"),
        }
        assert [bool(verdict) for verdict in verbs[verb]()] == holding
        settled = {job.id: job for job, holds in zip(jobs, holding, strict=True) if holds}
        if verb in ("complete", "cancel"):
            self.leave(*settled)
            return
        over = [job_id for job_id in settled if verb == "bury" or (verb in ("fail", "backoff") and self._last(job_id))]
        for job in settled.values():
            if job.id not in over:
                self._settled(job, verb, wait)
        self.bury(*(self.jobs[job_id] for job_id in over))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), limit=st.integers(0, 4), lease=st.integers(1, 10))
    def complete_and_claim(self, data: st.DataObject, limit: int, lease: int) -> None:
        worker, jobs, holding = self._some_leases(data)
        verdicts, won = self.queues[worker].complete_and_claim(jobs, limit, lease)
        assert [bool(verdict) for verdict in verdicts] == holding
        self.leave(*{job.id for job, holds in zip(jobs, holding, strict=True) if holds})
        if limit:
            self._claimed(worker, limit, lease, lambda: won)
        else:
            assert won == []

    def _some_leases(self, data: st.DataObject) -> tuple[int, list[LeasedJob], list[bool]]:
        """Leases of one worker, and whether each still holds."""
        chosen = data.draw(st.lists(st.sampled_from(range(len(self.leases))), min_size=1, max_size=4), label="leases")
        worker = self.leases[chosen[0]][0]
        jobs = [self.leases[place][1] for place in chosen if self.leases[place][0] == worker]
        return worker, jobs, [job.id in self.live() and self.jobs[job.id].version == job.version for job in jobs]

    def _last(self, job_id: int) -> bool:
        return self.jobs[job_id].attempts >= self.jobs[job_id].max_attempts

    def _settled(self, job: LeasedJob, verb: str, wait: int) -> None:
        model = self.jobs[job.id]
        waits = {"fail": wait, "backoff": 3 * job.attempts, "snooze": wait, "release": 0, "extend": wait}
        model.version += 1
        model.available_at = self.clock() + waits[verb] * SECOND
        model.held = verb == "extend"
        if verb in ("snooze", "release"):
            model.attempts -= 1
        if verb == "extend":
            assert job.version == model.version
            self.given.add((job.id, job.version))

    # --- the operator -----------------------------------------------------------------------------------------------

    @rule(by=st.one_of(seconds, st.floats(0, 3, allow_nan=False)))
    def time_passes(self, by: float) -> None:
        self.clock.advance(by)

    @precondition(lambda self: self.jobs or self.gone)
    @rule(worker=workers, data=st.data())
    def cancel(self, worker: int, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted([*self.jobs, *self.gone])), label="job")
        if job_id in self.live():
            assert self.queues[worker].cancel(job_id) is Verdict.APPLIED
            self.leave(job_id)
        else:
            with pytest.raises(JobNotFoundError):
                self.queues[worker].cancel(job_id)

    @rule(worker=workers)
    def purge(self, worker: int) -> None:
        waiting = [job_id for job_id, job in self.live().items() if not job.held or job.available_at <= self.clock()]
        assert self.queues[worker].purge() == len(waiting)
        self.leave(*waiting)

    @precondition(lambda self: len(self.live()) < len(self.jobs))
    @rule(worker=workers, limit=st.sampled_from([None, None, 1]))
    def redrive(self, worker: int, limit: int | None) -> None:
        expected = []
        keys = {job.key for job in self.live().values()} - {None}
        for job_id in sorted(self.jobs):
            job = self.jobs[job_id]
            if job.dead and job.key not in keys and (limit is None or len(expected) < limit):
                expected.append(job_id)
                keys |= {job.key} - {None}
        assert self.queues[worker].db.dead.redrive(queue=self.name, limit=limit) == expected
        crowds = {group: len(self.of_group(group)) for group in GROUPS}
        for job_id in expected:
            job = self.jobs[job_id]
            job.dead, job.version, job.attempts, job.available_at = False, job.version + 1, 0, self.clock()
            crowds[job.group] += 1
            if job.group is not None and crowds[job.group] > self.per_group:
                self.block(job)

    @precondition(lambda self: len(self.live()) < len(self.jobs))
    @rule(worker=workers)
    def purge_dead(self, worker: int) -> None:
        dead = [job_id for job_id, job in self.jobs.items() if job.dead]
        assert self.queues[worker].db.dead.purge(self.name) == len(dead)
        for job_id in dead:
            self.gone[job_id] = self.jobs.pop(job_id).version

    @rule(worker=workers)
    def repair_groups(self, worker: int) -> None:
        self.queues[worker].repair_groups()
        for group in set(GROUPS) - {None}:
            self.fill(group)

    @rule(worker=workers)
    def sweep(self, worker: int) -> None:
        self.queues[worker].db.sweep()

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def counts_add_up(self) -> None:
        now, live = self.clock(), self.live().values()
        stats = self.queues[0].stats()
        assert (stats.available, stats.scheduled, stats.blocked, stats.running, stats.dead) == (
            sum(job.available_at <= now for job in live),
            sum(job.available_at > now and not job.held and not job.blocked for job in live),
            sum(job.blocked for job in live),
            sum(job.available_at > now and job.held for job in live),
            len(self.jobs) - len(live),
        )
        waits = [now - job.available_at for job in live if job.available_at <= now]
        assert stats.oldest_available_age == (max(waits) / SECOND if waits else None)

    @invariant()
    def groups_keep_their_limit_and_go_on(self) -> None:
        for group in set(GROUPS) - {None}:
            jobs = self.of_group(group)
            admitted = sum(not job.blocked for job in jobs)
            assert admitted <= self.per_group
            assert bool(admitted) == bool(jobs)

    @invariant()
    def nothing_is_lost_and_the_order_holds(self) -> None:
        assert [job.id for job in self.queues[1].peek(limit=1000)] == self.due()
        jobs = self.pool.store.tables.jobs
        query = select(jobs.c.id, jobs.c.version, jobs.c.attempts).where(jobs.c.queue == self.name, jobs.c.delete_mark == 0)
        with self.pool.database.engine.connect() as connection:
            stored = {job_id: (version, attempts) for job_id, version, attempts in connection.execute(query)}
        assert stored == {job_id: (job.version, job.attempts) for job_id, job in self.live().items()}
        dead = {job.id: job.version for job in self.queues[1].db.dead.list(self.name, limit=1000)}
        assert dead == {job_id: job.version for job_id, job in self.jobs.items() if job.dead}

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)), label="job")
        model, seen = self.jobs[job_id], self.queues[1].get(job_id)
        assert (seen.version, seen.attempts, seen.priority, seen.unique_key) == (
            model.version,
            model.attempts,
            model.priority,
            model.key,
        )
        if not model.dead:
            assert seen.available_at - self.clock.now() == timedelta(microseconds=model.available_at - self.clock())
