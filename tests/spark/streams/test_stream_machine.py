"""Streams, workers, producers and an operator in any order: every job is in one place, and where the model has it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import Connection, delete

from queue_db import DuplicateJobError, LeasedJob, Queue, QueueDB
from queue_db.errors import CheckpointMismatchError, StreamFencedError
from queue_db.spark.streams.store import Offset
from queue_db.spark.tables import spark_tables
from queue_db.store import settle
from queue_db.store.base import Transaction
from queue_db.store.schema import NEVER
from queue_db.testing import SettableClock
from tests.marks import begin_anew
from tests.spark.streams.conftest import ID, RETENTION, VERSION, Cut, Reader, open_stream, snapshot

SECOND = 1_000_000

which = st.integers(0, 1)


@dataclass
class Model:
    """What must be true of one job. Another content is another job, although it has the id of the one that it replaced."""

    id: int
    key: str | None
    priority: int
    available_at: int
    version: int = 0
    attempts: int = 0
    #: queue, leased, held, dead; or, when it has left: completed, cancelled, replaced.
    place: str = "queue"
    reason: str | None = None
    #: Held, but its row in the queue is another job's, or gone.
    orphan: bool = False

    @property
    def live(self) -> bool:
        return self.place in ("queue", "leased") or (self.place == "held" and not self.orphan)


@dataclass
class ModelStream:
    """A stream, and a reader with a checkpoint."""

    name: str
    reader: Reader
    #: The checkpoint: all up to here is written.
    at: Offset
    #: The last completed batch.
    acked: Offset
    #: Number of the last claimed batch, and its jobs while they are held.
    allocated: int = 0
    held: list[int] = field(default_factory=list)
    #: The end of the claimed batch, once the reader has it; its rows, once they were read.
    end: Offset | None = None
    rows: list[list[tuple[Any, ...]]] | None = None
    #: It has been read since the checkpoint was made.
    delivered: bool = False
    stale: list[Reader] = field(default_factory=list)
    #: How often the claimed batch was given to a query, once for each reader, and the last of these readers.
    deliveries: int = 0
    delivered_to: Reader | None = None

    @property
    def again(self) -> int:
        """Attempts that its jobs have had besides the one that the claim counted."""
        return max(self.deliveries - 1, 0)

    @property
    def open(self) -> bool:
        """Whether a batch is claimed that is not in the checkpoint yet."""
        return self.allocated > self.at.batch


class StreamMachine(RuleBasedStateMachine):
    """Two streams, two workers, a producer and an operator on one queue."""

    def __init__(self, db: QueueDB, clock: SettableClock) -> None:
        super().__init__()
        self.db, self.clock = db, clock
        self.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
        self.name = f"machine-{uuid.uuid4().hex[:12]}"
        self.jobs: list[Model] = []
        self.leases: list[tuple[int, LeasedJob]] = []
        self.streams = [self.new(f"{self.name} {number}") for number in range(2)]

    def new(self, name: str) -> ModelStream:
        reader = open_stream(self.db, self.name, name)
        start = reader.initial()
        return ModelStream(name, reader, start, start)

    def teardown(self) -> None:
        tables = self.db.store.tables
        numbers = [stream.reader.session.stream for stream in self.streams]
        with self.db.database.begin() as connection:
            for table in (tables.jobs, tables.dead):
                connection.execute(delete(table).where(table.c.queue == self.name))
            for table in (spark_tables(tables).held, spark_tables(tables).batches):
                connection.execute(delete(table).where(table.c.stream.in_(numbers)))
            connection.execute(delete(spark_tables(tables).streams).where(spark_tables(tables).streams.c.id.in_(numbers)))

    @property
    def queue(self) -> Queue:
        """As a worker sees it that has just been started: it remembers no marks."""
        begin_anew(self.db.core, self.name)
        return Queue(self.db.core, self.name, self.db)

    def due(self) -> list[int]:
        """Numbers of the jobs that a claim would take, in its order."""
        now = self.clock()
        found = [
            (job.priority, job.available_at, job.id, number)
            for number, job in enumerate(self.jobs)
            if job.place in ("queue", "leased") and job.available_at <= now
        ]
        return [number for *_, number in sorted(found)]

    # --- producers --------------------------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from([None, "a", "b", "c"]),
        policy=st.sampled_from(["raise", "skip", "replace", "replace"]),
        priority=st.sampled_from([0, 0, -1]),
        delay=st.sampled_from([0, 0, 0, 5]),
    )
    def enqueue(self, key: str | None, policy: str, priority: int, delay: int) -> None:
        existing = next((job for job in self.jobs if key is not None and job.live and job.key == key), None)

        def add() -> int | None:
            return self.queue.enqueue(
                "k",
                len(self.jobs),
                unique_key=key,
                on_duplicate="raise" if key is None else policy,
                priority=priority,
                delay=delay,
                max_attempts=1000,
            )

        fresh = Model(0, key, priority, self.clock() + delay * SECOND)
        if existing is None:
            job_id = add()
            assert job_id is not None
            assert job_id not in {job.id for job in self.jobs}, "an id was used again"
            fresh.id = job_id
        elif policy == "raise":
            with pytest.raises(DuplicateJobError):
                add()
            return
        elif policy == "skip":
            assert add() is None
            return
        else:
            assert add() == existing.id
            fresh.id, fresh.version = existing.id, existing.version + 1
            if existing.place == "held":
                existing.orphan = True
            else:
                existing.place = "replaced"
        self.jobs.append(fresh)

    @initialize()
    def begin(self) -> None:
        for key in ("a", "b"):
            self.enqueue(key, "raise", 0, 0)

    @rule(count=st.integers(1, 5))
    def enqueue_many(self, count: int) -> None:
        ids = self.queue.enqueue_many([("k", len(self.jobs) + number, {"max_attempts": 1000}) for number in range(count)])
        self.jobs += [Model(job_id or 0, None, 0, self.clock()) for job_id in ids]

    # --- readers ----------------------------------------------------------------------------------------------------

    def left(self, stream: ModelStream) -> None:
        """What is in the checkpoint and not completed is completed."""
        if stream.held and not stream.open:
            for number in stream.held:
                job = self.jobs[number]
                # A job that was replaced or cancelled meanwhile cannot die.
                job.place = "dead" if job.reason is not None and not job.orphan else "completed"
                job.attempts += stream.again
            stream.held, stream.rows = [], None
            stream.deliveries, stream.delivered_to = 0, None
        if not stream.open:
            stream.acked = stream.at

    @rule(number=which, limit=st.integers(1, 4), dies=st.sampled_from(["", "", "before the commit", "after it"]))
    def allocate(self, number: int, limit: int, dies: str) -> None:
        self.allocate_in(self.streams[number], limit, dies)

    def allocate_in(self, stream: ModelStream, limit: int, dies: str) -> None:
        reader = stream.reader
        if dies == "before the commit":

            def die(connection: Connection) -> None:
                reader.allocating(stream.at, limit)(Transaction(connection, reader.db.store))
                raise Cut

            with pytest.raises(Cut):
                self.db.database.run(die, name="claim batch")
            return
        end = reader.allocate(stream.at, limit, partitions=2)
        was_open = stream.open
        self.left(stream)
        if was_open:
            assert stream.end in (None, end), "a replay is another batch"
        elif due := self.due()[:limit]:
            stream.allocated += 1
            stream.held = due
            for taken in due:
                job = self.jobs[taken]
                job.place, job.version, job.attempts = "held", job.version + 1, job.attempts + 1
        else:
            assert end == stream.at, "something was claimed although nothing is due"
            return
        assert end.batch == stream.allocated
        if dies == "":
            stream.end = end

    def among(self, number: int, good: Callable[[ModelStream], bool]) -> ModelStream:
        """One of the streams for which something holds."""
        some = [stream for stream in self.streams if good(stream)]
        return some[number % len(some)]

    @precondition(lambda self: any(stream.open for stream in self.streams))
    @rule(number=which)
    def deliver(self, number: int) -> None:
        self.read(self.among(number, lambda stream: stream.open))

    def read(self, stream: ModelStream) -> None:
        if stream.end is None:
            stream.end = stream.reader.allocate(stream.at)
        rows = stream.reader.rows(stream.at, stream.end)
        if stream.delivered_to is not stream.reader:
            # One more attempt, and nothing else is another one.
            if stream.rows is not None:
                stream.rows = [[(*row[:5], row[5] + 1, *row[6:]) for row in part] for part in stream.rows]
            stream.deliveries, stream.delivered_to = stream.deliveries + 1, stream.reader
        given = [[tuple(row) for row in part] for part in rows]
        assert stream.rows in (None, given), "a replay has other rows"
        jobs = sorted((self.jobs[taken].id, str(taken), taken) for taken in stream.held)
        found = [(row[ID], row[2], row[VERSION], row[5]) for part in rows for row in part]
        assert found == [
            (job_id, text, self.jobs[taken].version, self.jobs[taken].attempts + stream.again) for job_id, text, taken in jobs
        ]
        stream.rows, stream.delivered = given, True

    @precondition(lambda self: any(stream.delivered for stream in self.streams))
    @rule(number=which, completes=st.booleans())
    def write(self, number: int, completes: bool) -> None:
        """The batch is written elsewhere; without completion the next allocation does that."""
        stream = self.among(number, lambda stream: stream.delivered)
        assert stream.end is not None
        stream.at, stream.end, stream.delivered = stream.end, None, False
        if completes:
            stream.reader.complete(stream.at)
            self.left(stream)

    @rule(number=which, limit=st.integers(1, 4), completes=st.booleans())
    def micro_batch(self, number: int, limit: int, completes: bool) -> None:
        """All of it, with nothing in between."""
        stream = self.streams[number]
        if not stream.open:
            self.allocate_in(stream, limit, "")
        if stream.open:
            self.read(stream)
            self.write(0 if stream is self.among(0, lambda stream: stream.delivered) else 1, completes)

    @rule(number=which)
    def complete_again(self, number: int) -> None:
        stream = self.streams[number]
        stream.reader.complete(stream.acked)

    @rule(number=which, fresh=st.booleans())
    def take_over(self, number: int, fresh: bool) -> None:
        """Another process goes on, from the checkpoint or without one."""
        stream = self.streams[number]
        stream.stale.append(stream.reader)
        stream.reader = open_stream(self.db, self.name, stream.name)
        assert stream.reader.initial() == stream.acked
        stream.delivered = False
        if fresh and stream.at != stream.acked:
            stream.at, stream.end = stream.acked, None

    @precondition(lambda self: any(stream.stale for stream in self.streams))
    @rule(number=which, data=st.data())
    def come_back(self, number: int, data: st.DataObject) -> None:
        """A reader that was taken over knows nothing of it."""
        stream = self.among(number, lambda stream: bool(stream.stale))
        old = data.draw(st.sampled_from(stream.stale), label="reader")
        at, end = stream.at, stream.end or stream.at
        for verb in (old.initial, partial(old.allocate, at), partial(old.partition, at, end), partial(old.complete, end)):
            with pytest.raises(StreamFencedError):
                verb()

    @precondition(lambda self: any(stream.open for stream in self.streams))
    @rule(number=which, data=st.data())
    def give_up(self, number: int, data: st.DataObject) -> None:
        stream = self.among(number, lambda stream: stream.open)
        chosen = data.draw(st.sets(st.sampled_from(stream.held), min_size=1), label="jobs")
        reasons = {(self.jobs[taken].id, self.jobs[taken].version): f"no use {taken}" for taken in chosen}
        assert stream.reader.mark_dead(reasons) == len(chosen)
        for taken in chosen:
            self.jobs[taken].reason = f"no use {taken}"

    def released(self, stream: ModelStream) -> int:
        """What a release does; how many come back."""
        back = 0
        for number in stream.held:
            job = self.jobs[number]
            job.reason = None
            if job.orphan:
                job.place = "cancelled"
                continue
            job.place, job.version, job.attempts = "queue", job.version + 1, max(job.attempts - 1, 0)
            back += 1
        stream.held, stream.rows, stream.end, stream.delivered = [], None, None, False
        stream.deliveries, stream.delivered_to = 0, None
        stream.stale.append(stream.reader)
        return back

    def begin_anew(self, stream: ModelStream) -> None:
        """After a release the checkpoint is no good, and a new one begins after all that was claimed."""
        stream.reader = open_stream(self.db, self.name, stream.name)
        for offset in {stream.at, stream.acked}:
            with pytest.raises(CheckpointMismatchError):
                stream.reader.allocate(offset)
        stream.at = stream.acked = stream.reader.initial()
        assert stream.at.batch == stream.allocated

    @rule(number=which, seldom=st.integers(0, 2))
    def release(self, number: int, seldom: int) -> None:
        stream = self.streams[number]
        if seldom:
            return
        assert self.db.streams.release(stream.name) == self.released(stream)
        self.begin_anew(stream)

    # --- workers ----------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 3), lease=st.integers(1, 10))
    def claim(self, limit: int, lease: int) -> None:
        expected = self.due()[:limit]
        won = self.queue.claim(limit, lease=lease)
        assert [job.payload for job in won] == expected
        for job in won:
            model = self.jobs[job.payload]
            model.place, model.version, model.attempts = "leased", model.version + 1, model.attempts + 1
            model.available_at = self.clock() + lease * SECOND
            self.leases.append((job.payload, job))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), verb=st.sampled_from(["complete", "complete", "release", "bury"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        number, job = data.draw(st.sampled_from(self.leases), label="lease")
        model = self.jobs[number]
        holds = model.place == "leased" and model.version == job.version
        verbs = {"complete": job.complete, "release": job.release, "bury": partial(job.bury, "no use")}
        assert bool(verbs[verb]()) is holds
        if not holds:
            return
        if verb == "complete":
            model.place = "completed"
            return
        model.version += 1
        if verb == "bury":
            model.place = "dead"
        else:
            model.place, model.attempts, model.available_at = "queue", model.attempts - 1, self.clock()

    # --- the operator -----------------------------------------------------------------------------------------------

    @rule(seconds=st.integers(0, 8))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seldom=st.integers(0, 2))
    def nobody_reads(self, seldom: int) -> None:
        """Streams that hold something give it back; the others stay as they are."""
        if seldom:
            return
        self.clock.advance(RETENTION / SECOND + 1)
        names = self.db.streams.expire()
        for stream in self.streams:
            late = stream.allocated > stream.acked.batch
            assert (stream.name in names) is late
            if late:
                self.released(stream)
                self.begin_anew(stream)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = [number for number, job in enumerate(self.jobs) if job.live]
        # Without a key there is nothing in the queue while a stream has the job.
        live = [number for number in live if self.jobs[number].place != "held" or self.jobs[number].key is not None]
        # Those that a stream holds first: there are few.
        live = [number for number in live if self.jobs[number].place == "held"] or live
        if not live:
            return
        job = self.jobs[data.draw(st.sampled_from(live), label="job")]
        work = partial(settle.delete, pairs=[(job.id, job.version)])
        assert self.db.database.run(work, store=self.db.store, name="cancel") == {job.id}
        if job.place == "held":
            job.orphan = True
        else:
            job.place = "cancelled"

    @precondition(lambda self: any(job.place == "dead" for job in self.jobs))
    @rule()
    def redrive(self) -> None:
        keys = {job.key for job in self.jobs if job.live} - {None}
        expected = []
        for job in sorted((job for job in self.jobs if job.place == "dead"), key=lambda job: job.id):
            if job.key in keys:
                continue
            keys |= {job.key} - {None}
            expected.append(job.id)
            job.place, job.version, job.attempts, job.available_at = "queue", job.version + 1, 0, self.clock()
            job.reason = None
        assert self.db.dead.redrive(queue=self.name) == expected

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        now = snapshot(self.db, self.name)
        queued, held, dead = {}, {}, {}
        for number, job in enumerate(self.jobs):
            facts = (str(number), job.version, job.attempts)
            if job.place in ("queue", "leased"):
                assert job.id not in queued
                queued[job.id] = (*facts, job.available_at)
            elif job.place == "held":
                held[number] = (job.id, *facts, job.available_at, job.reason)
                if job.key is not None and not job.orphan:
                    assert job.id not in queued
                    queued[job.id] = (*facts, NEVER)
            elif job.place == "dead":
                assert job.id not in dead
                dead[job.id] = facts
        assert {row.id: (row.payload, row.version, row.attempts, row.available_at) for row in now.jobs} == queued
        assert {row.id: (row.payload, row.version, row.attempts) for row in now.dead} == dead
        assert {
            int(row.payload): (row.id, row.payload, row.version, row.attempts, row.available_at, row.dead_reason)
            for row in now.held
        } == held
        assert len(now.held) == len(held), "a job is held twice"
        by_stream = {row.id: row for row in now.streams}
        for stream in self.streams:
            row = by_stream[stream.reader.session.stream]
            assert (row.acked, row.allocated) == (stream.acked.batch, stream.allocated)
            mine = [int(job.payload) for job in now.held if job.stream == row.id]
            assert sorted(mine) == sorted(stream.held)
            sizes = [batch.size for batch in now.batches if batch.stream == row.id]
            assert sizes == ([len(stream.held)] if row.allocated > row.acked else [])

    @invariant()
    def only_what_is_due_is_available(self) -> None:
        now, stats = self.clock(), self.queue.stats()
        live = [job for job in self.jobs if job.place in ("queue", "leased")]
        assert (stats.available, stats.scheduled, stats.running, stats.dead, stats.held) == (
            sum(job.available_at <= now for job in live),
            sum(job.available_at > now and job.place == "queue" for job in live),
            sum(job.available_at > now and job.place == "leased" for job in live),
            sum(job.place == "dead" for job in self.jobs),
            sum(job.place == "held" for job in self.jobs),
        )


EXAMPLES = {"sqlite": 20, "postgresql": 6, "mysql": 5, "mariadb": 5}


def run_machine(db: QueueDB, clock: SettableClock, examples: int, **options: Any) -> None:
    run_state_machine_as_test(
        lambda: StreamMachine(db, clock),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            **options,
        ),
    )


def run_quickly(db: QueueDB, clock: SettableClock, examples: int) -> None:
    """Always the same; that it fails is enough."""
    run_machine(db, clock, examples, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False)


def test_streams_behave_like_the_model(kind: str, ours: QueueDB, clock: SettableClock) -> None:
    run_machine(ours, clock, EXAMPLES[kind])
