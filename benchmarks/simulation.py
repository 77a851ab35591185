"""A discrete-event simulation of workers that claim and complete, on one server or on a cluster whose nodes certify changes.

The picks and windows are those of ``queue_db.strategies``: each simulated worker calls ``claim`` and ``observe`` of a strategy of
its own, as a process does. Only the database is a model: cores that serve first come, first served, row locks that are held until
the commit, and, on a cluster, an order of all changes in which the first change of a job wins. Times are seconds. The same seed
gives the same run.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from queue_db.database.transaction import _FIRST_WAIT as FIRST_WAIT
from queue_db.dialects.claim_sql import Lock
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.strategies import Strategy
from queue_db.verbs.claim import _PAUSE as PAUSE
from queue_db.verbs.claim import _ROUNDS as ROUNDS

#: What was measured on real servers: ``python -m benchmarks simulate --measure URL``.
MEASURED = Path(__file__).with_name("latencies.json")

QUEUE = "race"

# Seconds that a worker sleeps after a claim without a job, where there are always due jobs.
_IDLE = 0.001

#: A worker tells when it goes on, or that another one wakes it (None).
_Steps = Generator[float | None, None, Any]


@dataclass(frozen=True)
class Call:
    """One kind of call: processor time of the client and of the server, and the wait for anything else.

    :param spread: how long calls took, as multiples of the mean: some of their quantiles.
    """

    client: float
    server: float
    wait: float
    spread: tuple[float, ...]

    def drawn(self, rng: random.Random) -> tuple[float, float, float]:
        """Client, server and wait of one call."""
        factor = rng.choice(self.spread)
        return self.client * factor, self.server * factor, self.wait * factor


@dataclass(frozen=True)
class Costs:
    """The calls of one kind of server.

    :param round_trips: statements of a claim that find a job; a claim with locks needs a BEGIN and a COMMIT where this is 2.
    :param apply: processor time of another node for each change.
    :param place: processor time of the server for each place of a window, or locked row, before the picked one.
    """

    read: Call
    claim: Call
    skip_locked: Call
    complete: Call
    round_trips: int
    apply: float = 0.0
    place: float = 0.0

    @classmethod
    def measured(cls, name: str) -> Costs:
        """The costs that were measured on the server of this name."""
        found = json.loads(MEASURED.read_text())[name]
        calls = {
            what: Call(one["client"] / 1e6, one["server"] / 1e6, one["wait"] / 1e6, tuple(one["spread"]))
            for what, one in found["calls"].items()
        }
        return cls(**calls, round_trips=found["round_trips"], apply=found["apply"] / 1e6, place=found["place"] / 1e6)


@dataclass(frozen=True)
class Setting:
    """Who works where.

    :param nodes: that the workers use, in turns. ``idle``: further nodes of the cluster, which only apply changes.
    :param cores: of each node. ``shared``: clients and nodes share the cores of one machine.
    :param switch: processor time that each statement costs more, seconds, where many processes share a machine.
    :param trip: a round trip between a worker and its node.
    :param between: a round trip between two nodes.
    :param flush: how long a commit waits for the disk, in addition to what was measured.
    :param think: work of a job, on average (exponential).
    :param backlog: how many jobs there are; None: always more.
    :param rate: jobs that become due in a second, and how long an idle worker sleeps (``poll``); None: there are always due jobs.
    """

    workers: int
    nodes: int = 1
    idle: int = 0
    cores: int = 2
    shared: bool = False
    switch: float = 0.0
    trip: float = 0.0
    between: float = 0.0
    flush: float = 0.0
    think: float = 0.0
    backlog: int | None = None
    rate: float | None = None
    poll: float = 0.5

    @property
    def cycle(self) -> float:
        """About how long a job takes: workers begin at any moment of it."""
        return max(_IDLE, 3 * self.trip + self.think)


@dataclass
class Outcome:
    """What the measured part of a run showed."""

    jobs: int = 0
    missed: int = 0
    empty: int = 0
    seconds: float = 0.0
    waited: list[float] = field(default_factory=list)  #: from due to claimed, sorted
    window: float = 0.0  #: mean of the workers, jobs

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    @property
    def miss_ratio(self) -> float:
        """Share of the candidates that another worker won."""
        return self.missed / max(1, self.missed + self.jobs)

    def wait(self, part: float) -> float:
        """A quantile of the waiting times of due jobs."""
        return self.waited[min(len(self.waited) - 1, int(part * len(self.waited)))] if self.waited else 0.0


class _Cores:
    """The cores of a machine: first come, first served. No number: as many as are asked for."""

    def __init__(self, number: int | None) -> None:
        self._free = [0.0] * (number or 0)

    def take(self, now: float, seconds: float) -> tuple[float, float]:
        """Begin and end of ``seconds`` of work that is asked for now."""
        if not self._free:
            return now, now + seconds
        begin = max(now, self._free[0])
        end = begin + seconds
        heapreplace(self._free, end)
        return begin, end


class _Node:
    """One node: the due jobs that it sees, in order, and those that an uncommitted claim has locked, with who waits for them."""

    def __init__(self, cores: _Cores) -> None:
        self.cores = cores
        self.due: list[int] = []
        self.locked: dict[int, list[_Steps]] = {}

    def pick(self, start: int, *, skip: bool) -> int | None:
        """The job at a place of the window, or the first if there are fewer; with ``skip`` the first that is not locked."""
        if skip:
            return next((job for job in self.due if job not in self.locked), None)
        return self.due[start if start < len(self.due) else 0] if self.due else None

    def has(self, job: int) -> bool:
        """Whether the job is due here."""
        place = bisect_left(self.due, job)
        return place < len(self.due) and self.due[place] == job

    def remove(self, job: int) -> None:
        """Apply a claim."""
        place = bisect_left(self.due, job)
        if place < len(self.due) and self.due[place] == job:
            del self.due[place]


class _Dialect:
    """Stands in for the dialect of a strategy's transaction: keeps what the strategy picks."""

    skip_locked_pays = range(0)

    def execute_claim(self, tx: Any, claim: Any, parameters: Mapping[str, Any], **how: Any) -> ClaimResult:
        """Keep the place of the pick and whether rows are locked."""
        tx.start, tx.lock = parameters.get("start", 0), claim.lock
        return ClaimResult(parameters["in_queue"], parameters["limit"])


def _text(dialect: Any, ranges: int, order: Any, lock: Lock, *shape: Any) -> Any:
    return SimpleNamespace(lock=lock, has_fast_path=True)


_STORE = SimpleNamespace(
    capabilities=frozenset({Capability.CONCURRENT_WRITERS, Capability.SKIP_LOCKED, Capability.ROW_LOCKS}), claim_text=_text
)

# So many jobs more become due where there are always due jobs.
_MORE = 4096

# Runs of a transaction that loses to other nodes.
_RUNS = 10


class Simulation:
    """One run. ``strategy`` makes the strategy of a worker from a random number generator."""

    def __init__(self, setting: Setting, costs: Costs, strategy: Callable[[random.Random], Strategy], seed: int = 1) -> None:
        self.setting, self.costs, self.rng = setting, costs, random.Random(seed)
        self.outcome, self.now = Outcome(), 0.0
        machine = _Cores(setting.cores)
        self._clients = machine if setting.shared else _Cores(None)
        self._nodes = [_Node(machine if setting.shared else _Cores(setting.cores)) for _ in range(setting.nodes + setting.idle)]
        self._born: dict[int, float] = {}
        self._gone: set[int] = set()  # in the order of the cluster
        self._ids: Iterator[int] = count(1) if setting.backlog is None else iter(range(setting.backlog))
        self._order = count()
        self._events: list[tuple[float, int, _Steps]] = []
        self.strategies = [strategy(random.Random(self.rng.random())) for _ in range(setting.workers)]
        for number, own in enumerate(self.strategies):
            self._at(self.rng.random() * setting.cycle, self._worker(own, self._nodes[number % setting.nodes]))
        if setting.rate is not None:
            self._at(0.0, self._arrivals(setting.rate))

    def run(self, jobs: int, warm_up: int = 0, *, misses: int | None = None) -> Outcome:
        """Run until ``warm_up`` and then ``jobs`` jobs are completed, or ``misses`` missed; the outcome is that of the latter."""
        self._until(warm_up, misses)
        began, self.outcome = self.now, Outcome()
        self._until(jobs, misses)
        found = self.outcome
        found.seconds = self.now - began
        found.waited.sort()
        widths = [getattr(own, "window", 0) for own in self.strategies]
        found.window = sum(wide(QUEUE) if callable(wide) else wide for wide in widths) / len(widths)
        return found

    def _until(self, jobs: int, misses: int | None) -> None:
        while self.outcome.jobs < jobs and (misses is None or self.outcome.missed < misses):
            self.now, _, self._running = heappop(self._events)
            when = next(self._running, None)
            if when is not None:
                self._at(when, self._running)

    def _at(self, when: float, steps: _Steps) -> None:
        heappush(self._events, (when, next(self._order), steps))

    # --- the clients --------------------------------------------------------------------------------------------------

    def _worker(self, own: Strategy, node: _Node) -> _Steps:
        """Claim, work, complete, for ever."""
        setting, context, winning = self.setting, Context(), False
        while True:
            job, winning = yield from self._claim(own, context, node, winning)
            if job is None:
                self.outcome.empty += 1
                yield self.now + (_IDLE if setting.rate is None else setting.poll * self.rng.uniform(0.5, 1.0))
                continue
            self.outcome.waited.append(self.now - self._born.pop(job))
            if setting.think:
                yield self.now + self.rng.expovariate(1 / setting.think)
            yield from self._complete(node)
            self.outcome.jobs += 1

    def _claim(self, own: Strategy, context: Context, node: _Node, winning: bool) -> Generator[float | None, None, Any]:
        """The rounds of a call of claim, as in ``queue_db.verbs.claim``."""
        lost = 0
        # On a database that claims by one statement, a loss on the fast path is followed by another round at once.
        fast = winning and self.costs.round_trips == 1
        while lost < ROUNDS:
            result, job = yield from self._transaction(own, context, node)
            context.run(own.observe, result)
            if job is not None:
                return job, True
            if not result.missed:
                break
            if not fast:
                lost += 1
                if lost < ROUNDS:
                    yield self.now + PAUSE * 2**lost * self.rng.random()
            fast = False
        return None, False

    def _transaction(self, own: Strategy, context: Context, node: _Node) -> Generator[float | None, None, Any]:
        """One round: it runs again after a pause, with another pick, where another node was first (``OwnTransaction``)."""
        missed = 0
        for run in range(_RUNS):
            tx = SimpleNamespace(dialect=_DIALECT, store=_STORE, connection=SimpleNamespace(dialect=None))
            result = context.run(own.claim, tx, ClaimRequest(QUEUE, 1, 0, "", "", ()))
            job, won, beaten = yield from self._round(node, tx.start, skip=tx.lock is Lock.SKIP)
            lost = job is not None and not won
            missed += lost
            self.outcome.missed += lost
            if not beaten:
                break
            yield self.now + min(1.0, FIRST_WAIT * (2 ** (run + 1) // 4)) + self.rng.uniform(0.0, FIRST_WAIT)
        result.missed, result.rows = missed, (job,) if won else ()
        return result, job if won else None

    def _round(self, node: _Node, start: int, *, skip: bool) -> Generator[float | None, None, Any]:
        """One run: the job tried or None, whether it was won, and whether another node won it in the meantime."""
        costs, setting = self.costs, self.setting
        one = costs.round_trips == 1
        # Where a claim takes two statements, a claim with locks also begins and commits.
        parts = costs.round_trips if one or not skip else costs.round_trips + 2
        client, server, wait = (costs.skip_locked if skip else costs.claim).drawn(self.rng)
        client /= parts + 1
        reading = server * min(1.0, costs.read.server / costs.claim.server) + costs.place * (len(node.locked) if skip else start)
        writing = server * max(0.0, 1.0 - costs.read.server / costs.claim.server)
        yield from self._client(client + setting.switch)
        if skip and not one:  # BEGIN
            yield from self._trip(client)
        yield self.now + setting.trip / 2
        begin, end = node.cores.take(self.now, reading + writing * one)
        yield begin
        if setting.rate is None and len(node.due) <= start + len(node.locked):
            self._refill(_MORE + start)
        job, won, beaten = node.pick(start, skip=skip), False, False
        if job is not None and skip:
            node.locked[job] = []
        yield end if not one or job is None else begin + (end - begin) * reading / (reading + writing)
        if job is not None:
            if not one:
                yield from self._trip(client)
                begin, end = node.cores.take(self.now, writing)
                yield begin
            if skip or (yield from self._lock(node, job)):
                yield max(end, self.now)
                if skip and not one:  # COMMIT
                    yield from self._trip(client)
                won = yield from self._commit(node, job, wait)
                beaten = not won
        yield self.now + setting.trip / 2
        yield from self._client(client)
        return job, won, beaten

    def _complete(self, node: _Node) -> _Steps:
        setting = self.setting
        client, server, wait = self.costs.complete.drawn(self.rng)
        yield from self._client(client / 2 + setting.switch)
        yield self.now + setting.trip / 2
        yield node.cores.take(self.now, server)[1]
        if len(self._nodes) > 1:
            yield self.now + setting.between / 2
            self._elsewhere(node, None)
            yield self.now + setting.between / 2
        yield self.now + setting.flush + wait + setting.trip / 2
        yield from self._client(client / 2)

    def _client(self, seconds: float) -> _Steps:
        yield self._clients.take(self.now, seconds)[1]

    def _trip(self, client: float) -> _Steps:
        """From the end of a statement to the beginning of the next one."""
        yield self.now + self.setting.trip / 2
        yield from self._client(client + self.setting.switch)
        yield self.now + self.setting.trip / 2

    # --- the database -------------------------------------------------------------------------------------------------

    def _lock(self, node: _Node, job: int) -> Generator[float | None, None, bool]:
        """Lock the job if it is still due, after a wait for who has locked it."""
        while job in node.locked:
            node.locked[job].append(self._running)
            yield None
        if not node.has(job):
            return False
        node.locked[job] = []
        return True

    def _commit(self, node: _Node, job: int, flush: float) -> Generator[float | None, None, bool]:
        """Commit a claim; return whether no other node has changed the job first."""
        far, won = self.setting.between / 2, True
        if len(self._nodes) > 1:
            yield self.now + far
            won = job not in self._gone
            self._gone.add(job)
            if won:
                self._elsewhere(node, job)
            yield self.now + far
        if won:
            yield self.now + flush + self.setting.flush
            node.remove(job)
        for waiting in node.locked.pop(job):
            self._at(self.now, waiting)
        return won

    def _elsewhere(self, node: _Node, job: int | None) -> None:
        """Send a change to the other nodes."""
        for other in self._nodes:
            if other is not node:
                self._at(self.now + self.setting.between / 2, self._apply(other, job))

    def _apply(self, node: _Node, job: int | None) -> _Steps:
        yield node.cores.take(self.now, self.costs.apply)[1]
        if job is not None:
            node.remove(job)

    def _arrivals(self, rate: float) -> _Steps:
        while True:
            self._refill(1)
            yield self.now + self.rng.expovariate(rate)

    def _refill(self, jobs: int) -> None:
        """Make jobs due, on all nodes."""
        new = [*islice(self._ids, jobs)]
        self._born.update(dict.fromkeys(new, self.now))
        for node in self._nodes:
            node.due.extend(new)


_DIALECT = _Dialect()
