"""One process looks at single claims of a layout: their time, and the rows that they read; and at what else a layout costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ClauseElement, Executable, text
from sqlalchemy.ext.compiler import compiles

from benchmarks.layouts.processes import LEASE, Consumer, statements
from benchmarks.layouts.server import QUEUE, Meter
from benchmarks.layouts.statements import BEGINNING, Claimed
from benchmarks.layouts.tables import Layout
from queue_db import QueueDB

#: Jobs of one statement where their number is not what is measured.
_MANY = 100
_IDLE = 200
_FEW = 10


class _Explained(Executable, ClauseElement):
    """PostgreSQL's report of a statement that it has run."""

    inherit_cache = False

    def __init__(self, statement: Any) -> None:
        self.statement = statement


@compiles(_Explained, "postgresql")
def _explained(element: _Explained, compiler: Any, **kw: Any) -> str:
    return "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + str(compiler.process(element.statement, **kw))


class Probe:
    """A layout, and a consumer of it."""

    def __init__(self, db: QueueDB, layout: Layout) -> None:
        self.db, self.layout = db, layout
        self.one = statements(layout, db.database.dialect)
        self.consumer = Consumer(db, self.one, skip=False)

    def enqueue(self, number: int, payload: str) -> None:
        """Insert jobs in one statement."""
        self.consumer.run(self.one.enqueue, QUEUE, [payload] * number)

    def take(self, batch: int, *, lease: int = LEASE) -> list[list[Claimed]]:
        """Claim all that is due."""
        taken = []
        while jobs := self.consumer.claim(batch, lease=lease):
            taken.append(jobs)
        return taken

    def claims(self, batch: int, times: int, payload: str, *, rescan: bool = False) -> list[float]:
        """Milliseconds of claims one after the other; completed and refilled meanwhile. ``rescan``: without a low-water mark."""
        taken = []
        for turn in range(times + 3):
            if rescan:
                self.consumer.floor = BEGINNING
            began = time.perf_counter()
            jobs = self.consumer.claim(batch)
            took = (time.perf_counter() - began) * 1000
            if len(jobs) != batch:
                raise AssertionError(f"{self.layout.name}: a claim of {batch} got {len(jobs)}")
            if turn >= 3:  # the first ones connect, compile, prepare and find the low-water mark
                taken.append(took)
            self.consumer.complete(jobs)
            self.enqueue(batch, payload)
        return taken

    def reads(self, batch: int, *, rescan: bool = False) -> tuple[int, int | None]:
        """Index entries that the search for candidates reads, and on PostgreSQL the pages."""
        values = {"in_queue": QUEUE, "floor": BEGINNING if rescan else self.consumer.floor, "limit": batch, "start": 0}
        look = self.one.look(skip=False)
        with self.db.database.engine.connect() as connection:
            if self.db.database.engine.dialect.name == "postgresql":
                connection.execute(look, values).all()  # marks what is dead
                plan = connection.execute(_Explained(look), values).scalar_one()[0]["Plan"]
                return _entries(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            before = _handler_reads(connection)
            connection.execute(look, values).all()
            return _handler_reads(connection) - before, None


def _entries(plan: dict[str, Any]) -> int:
    """Entries of indexes that a plan reads; at least one each time that it looks."""
    own = 0
    if "Scan" in plan["Node Type"]:
        seen = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        own = round(plan["Actual Loops"] * max(1, seen))
    return own + sum(_entries(part) for part in plan.get("Plans", []))


def _handler_reads(connection: Any) -> int:
    rows = connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'")).all()
    return sum(int(number) for name, number in rows if not name.endswith(("_rnd", "_rnd_next", "_rnd_deleted")))


class Costs:
    """Microseconds of the server and bytes of its log for each job, of what is neither a claim nor a completion."""

    def __init__(self, probe: Probe, meter: Meter, size: int, payload: str) -> None:
        self.probe, self.meter, self.size, self.payload = probe, meter, size, payload
        self.found: dict[str, tuple[float, float]] = {}

    @contextmanager
    def _counted(self, name: str, number: int) -> Iterator[None]:
        self.meter.begin()
        yield
        cpu, log = self.meter.end()
        self.found[name] = (1e6 * cpu / number, log / number)

    def measure(self) -> dict[str, tuple[float, float]]:
        """Enqueue, claim, extend and complete; then claim for a worker that dies, and bring the jobs back."""
        probe, size = self.probe, self.size
        singles = max(1, size // 10)
        probe.enqueue(1, self.payload)
        with self._counted("enqueue ×1", singles):
            self._repeat(singles, lambda: probe.enqueue(1, self.payload))
        with self._counted(f"enqueue ×{_MANY}", size):
            self._repeat(size // _MANY, lambda: probe.enqueue(_MANY, self.payload))
        taken = probe.take(_MANY)
        pairs = [[(job.id, job.version) for job in jobs] for jobs in taken]
        for _ in range(2):
            with self._counted("extend ×100", sum(map(len, pairs))):
                held = sum(probe.consumer.run(probe.one.extend, some, LEASE) for some in pairs)
        if held != sum(map(len, pairs)):
            raise AssertionError(f"{self.probe.layout.name}: {held} of {sum(map(len, pairs))} leases held")
        self.found["look for expired"] = (0.0, 0.0)
        if probe.layout.returned:
            with self._counted("look for expired", _IDLE):
                self._repeat(_IDLE, lambda: probe.consumer.run(probe.one.bring_back, _MANY))
        for jobs in taken:
            probe.consumer.complete(jobs)
        self._lose_a_worker()
        return self.found

    def _lose_a_worker(self) -> None:
        """Jobs whose lease ends come back; who completes them late is refused."""
        probe, size, name = self.probe, self.size, "bring back ×100"
        self._repeat(size // _MANY, lambda: probe.enqueue(_MANY, self.payload))
        lost = probe.take(_MANY, lease=-1) if probe.layout.returned else [probe.consumer.claim(_MANY, lease=-1)]
        expected = sum(map(len, lost))
        self.found[name] = (0.0, 0.0)
        if probe.layout.returned:
            with self._counted(name, expected):
                while probe.consumer.run(probe.one.bring_back, _MANY):
                    pass
        probe.consumer.floor = BEGINNING
        again = probe.take(_MANY)
        if not {job.id for jobs in lost for job in jobs} <= {job.id for jobs in again for job in jobs}:
            raise AssertionError(f"{probe.layout.name}: a job did not come back")
        if sum(probe.consumer.complete(jobs) for jobs in lost):
            raise AssertionError(f"{probe.layout.name}: a lease that has ended completed a job")
        for jobs in again:
            probe.consumer.complete(jobs)

    @staticmethod
    def _repeat(times: int, work: Callable[[], object]) -> None:
        for _ in range(max(1, times)):
            work()


def churn(probe: Probe, number: int, payload: str) -> None:
    """Jobs come and go."""
    for _ in range(max(1, number // 1000)):
        probe.enqueue(1000, payload)
        probe.consumer.complete(probe.consumer.claim(1000))


def stand(probe: Probe, number: int) -> None:
    """Leases that last, of the first jobs."""
    probe.consumer.floor = BEGINNING
    while number > 0:
        number -= len(probe.consumer.claim(min(number, 1000)))
    probe.consumer.claim(_FEW)
