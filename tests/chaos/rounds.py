"""One round: clients are started, struck by faults, healed and drained; then their log is checked."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from sqlalchemy import select

from queue_db import QueueDB, StorageError
from tests.chaos import clients, feeds, jobs, ledger, nodes
from tests.chaos.checker import Checker, Final, Violation
from tests.chaos.client import Order
from tests.chaos.faults import End, Faults
from tests.chaos.feed_checker import FeedChecker
from tests.chaos.log import SUFFIX, Operation, read_log
from tests.chaos.plan import ClientPlan, Fault, Plan
from tests.servers import Server
from tests.servers.cluster import Cluster
from tests.servers.proxy import Proxy

#: Seconds in which clients must end, and all jobs be done, when the faults are over.
PATIENCE = 90.0
#: How clients end by faults: the signal of an interrupt ends one that has just been started.
ENDED = (-signal.SIGKILL, -signal.SIGUSR2)
#: Roles that end when they have done what a round gives them to do.
BOUNDED = ("producer", "publisher", "overtaken")
#: The file with the final state of the database.
FINAL = "final.json"

# Forks clients from a process without threads that has imported all of it: a fork takes milliseconds, an import a second.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.chaos.clients", "psycopg2", "pymysql"])


@dataclass
class Result:
    """What came of a round."""

    plan: Plan
    violations: list[Violation]
    operations: list[Operation] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    seconds: float = 0.0
    #: Seconds in which nobody could claim, at each fault of nodes.
    without_a_claim: list[float] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return sum(len(one.arguments["jobs"]) for one in self.operations if one.ok and one.name.startswith("enqueue"))

    def __str__(self) -> str:
        unknown = sum(one.status == "unknown" for one in self.operations)
        verdict = "held" if not self.violations else f"VIOLATED: {', '.join(sorted({one.check for one in self.violations}))}"
        numbers = f"{len(self.operations)} operations ({unknown} in doubt), {self.jobs} jobs, {len(self.struck)} faults"
        gaps = ", ".join(f"{seconds:.1f} s" for seconds in self.without_a_claim)
        without = f", nobody claimed for {gaps}" if gaps else ""
        return f"{self.plan.kind} seed {self.plan.seed}: {numbers}, {self.seconds:.0f} s{without}: {verdict}"


def check(operations: list[Operation], final: Final) -> list[Violation]:
    """What of a round breaks a promise."""
    return Checker(operations, final).check() + FeedChecker(operations, final).check()


class Round:
    """A round at work.

    :param urls: an empty database, on each node.
    :param server: its server or cluster.
    :param folder: for the log.
    :param broken: the guarantee that is taken away; empty: none.
    """

    def __init__(self, plan: Plan, urls: Sequence[str], server: Server | Cluster | None, folder: Path, broken: str = "") -> None:
        self.plan = plan
        self.urls = urls
        self.url = ledger.together(urls)
        self.folder = folder
        self.broken = broken
        self.final = Final()
        self.struck: list[Fault] = []
        self._proxies = [Proxy.before(url) for url in urls] if server is not None else []
        self._faults = Faults(urls, server, self._proxies, self)
        self._processes: dict[str, BaseProcess] = {}
        self._plans = {client.name: client for client in plan.clients}
        self._ends: list[tuple[float, int, End]] = []
        self._number = itertools.count()
        self._log: list[str] = []

    def pid(self, client: str) -> int | None:
        """The process of a client; None: it has ended."""
        process = self._processes.get(client)
        return process.pid if process is not None and process.is_alive() else None

    def run(self) -> Result:
        """Run the round and check it."""
        began = time.monotonic()
        with contextlib.ExitStack() as closing:
            for proxy in self._proxies:
                closing.enter_context(proxy)
            self._prepare()
            try:
                self._begin()
                self._strike()
                self._heal()
                self._drain()
            finally:
                for process in self._processes.values():
                    process.kill()
                for process in self._processes.values():
                    process.join()
        operations = read_log(self.folder)
        violations = check(operations, self.final)
        (self.folder / "plan").write_text(f"{self.plan}\n")
        (self.folder / "faults").write_text("\n".join(self._log))
        (self.folder / FINAL).write_text(json.dumps(asdict(self.final)))
        without = [nodes.without_a_claim(operations, *moments) for _, *moments in self._faults.of_nodes]
        return Result(self.plan, violations, operations, self.struck, time.monotonic() - began, without)

    def _prepare(self) -> None:
        engine = ledger.engine_of(*self.urls)
        ledger.LEDGER.create(engine)
        engine.dispose()
        with QueueDB(self.url) as db:
            db.migrate()
            feeds.prepare(db)
        nodes.catch_up(self.urls)

    # --- clients ----------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        client = self._plans[name]
        urls = [proxy.url(url) for proxy, url in zip(self._proxies, self.urls, strict=True)] if client.proxied else self.urls
        first = int(name.partition("-")[2] or 0) % len(urls)
        order = Order(
            name,
            client.role,
            self.plan.seed,
            [*urls[first:], *urls[:first]],
            str(self.folder),
            self.plan.lease,
            client.skew,
            self.plan.operations,
            self.plan.pause,
            self.broken,
        )
        process = _FORKS.Process(target=clients.main, args=(order,), name=name, daemon=True)
        process.start()
        self._processes[name] = process

    def _begin(self) -> None:
        """Start all clients, and wait until they are at work: the first round of a process waits for its imports."""
        for name in self._plans:
            self._start(name)
        limit = time.monotonic() + PATIENCE
        while not all(map(self._is_at_work, self._plans)) and time.monotonic() < limit:
            time.sleep(0.02)

    def _is_at_work(self, name: str) -> bool:
        log = self.folder / f"{name}{SUFFIX}"
        return log.exists() and (log.stat().st_size > 0 or self._plans[name].role not in {"producer", "consumer"})

    def _revive(self) -> None:
        """Start those that were killed again."""
        for name, process in list(self._processes.items()):
            if process.exitcode is None or process.exitcode == 0:
                continue
            if process.exitcode == -signal.SIGTERM:
                continue  # it had just been started
            if process.exitcode not in ENDED:
                self._crashed(name, process)
            self._start(name)

    def _crashed(self, name: str, process: BaseProcess) -> None:
        why = self._output(name)
        self.final.stuck.append(f"client {name} ended with {process.exitcode}\n{why}")
        if len(self.final.stuck) > 20:
            raise RuntimeError(f"clients cannot work: {self.final.stuck[0]}")

    def _output(self, name: str) -> str:
        path = self.folder / f"{name}.stderr"
        return path.read_text()[-3000:] if path.exists() else ""

    def _of(self, *roles: str) -> list[str]:
        return [name for name, client in self._plans.items() if client.role in roles]

    def _end(self, names: list[str]) -> None:
        """Let clients end what they do, and end."""
        limit = time.monotonic() + PATIENCE
        while (
            left := [name for name in names if self._processes[name].exitcode not in {0, -signal.SIGTERM}]
        ) and time.monotonic() < limit:
            self._revive()
            for name in left:
                if (pid := self.pid(name)) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)
        for name in left:
            if (pid := self.pid(name)) is not None:
                os.kill(pid, signal.SIGUSR1)
                time.sleep(1.0)
                self.final.stuck.append(f"client {name} hangs:\n{self._output(name)}")

    # --- faults -----------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        """Until the producers have done what they were to do."""
        began = time.monotonic()
        coming = list(self.plan.faults)
        while (over := self._over(began)) < 1.0 or (coming and self.plan.operations is not None):
            while coming and coming[0].at <= over:
                fault = coming.pop(0)
                self.struck.append(fault)
                self._log.append(f"{time.monotonic():.6f} {fault}")
                end = self._faults.strike(fault)
                if end is not None:
                    heapq.heappush(self._ends, (time.monotonic() + fault.seconds, next(self._number), end))
            while self._ends and self._ends[0][0] <= time.monotonic():
                heapq.heappop(self._ends)[2]()
            self._revive()
            time.sleep(0.02)

    def _over(self, began: float) -> float:
        """The part of the round that is over."""
        if self.plan.operations is None:
            return (time.monotonic() - began) / self.plan.seconds
        producers = self._of("producer", "publisher")
        if all(self._processes[name].exitcode == 0 for name in self._of(*BOUNDED)):
            return 1.0
        done = sum(_lines(self.folder / f"{name}{SUFFIX}") for name in producers) / 2
        # Not over before they have ended.
        return min(done / (self.plan.operations * len(producers)), 0.999)

    def _heal(self) -> None:
        while self._ends:
            heapq.heappop(self._ends)[2]()
        self._faults.forward()
        self._faults.join()
        self.final.stuck += self._faults.failed

    # --- the end ----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._end(self._of(*BOUNDED))
        self._plans["drainer"] = ClientPlan("drainer", "drainer", proxied=False, skew=0.0)
        self._start("drainer")
        with self._opened() as db:
            nodes.catch_up(self.urls)
            self._wait_until_drained(db)
            self._end([name for name in self._plans if self._processes[name].exitcode != 0])
            nodes.catch_up(self.urls)
            self._look(db)

    def _opened(self) -> QueueDB:
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return QueueDB(self.url)
            except StorageError:
                # Sessions that were killed with their clients are still there.
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)

    def _wait_until_drained(self, db: QueueDB) -> None:
        least, limit = math.inf, 0.0
        while left := _left(db):
            if sum(left.values()) < least:
                least, limit = sum(left.values()), time.monotonic() + PATIENCE
            if time.monotonic() > limit:
                self.final.stuck.append(f"in {PATIENCE:.0f} s nothing of these was done: {left}")
                return
            self._revive()
            time.sleep(0.1)

    def _look(self, db: QueueDB) -> None:
        """Read what is there."""
        tables, decode = db.store.tables, db.core.codec.decode
        with db.database.begin(write=False) as connection:
            for row in connection.execute(select(tables.jobs.c.queue, tables.jobs.c.payload)):
                self.final.live.append((row.queue, decode(row.payload)))
            self.final.dead += [decode(text) for text in connection.execute(select(tables.dead.c.payload)).scalars()]
            rows = connection.execute(select(ledger.LEDGER.c.what, ledger.LEDGER.c.mark).order_by(ledger.LEDGER.c.at))
            self.final.ledger += [(row.what, row.mark) for row in rows]
        for name in feeds.FEEDS:
            page = db.feed(name).read(limit=10_000)
            self.final.feeds[name] = [(message.seq, message.payload) for message in page.messages]


def _left(db: QueueDB) -> dict[str, int]:
    """Jobs and messages that are not done, by queue and feed."""
    found = {}
    # Before the queues: a message that fails becomes a job.
    for name in feeds.FEEDS:
        feed = db.feed(name)
        feed.rank()
        found[name] = sum(cursor.behind for cursor in feed.cursors())
    for queue in (jobs.WORK, jobs.OVERTAKEN):
        stats = db.queue(queue).stats()
        found[queue] = stats.available + stats.scheduled + stats.running + stats.blocked
    return {name: number for name, number in found.items() if number}


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
