"""What a fair queue costs and keeps: ``python -m benchmarks fairness --url URL``.

claims    a claim of ten jobs of a plain queue and of fair ones, in turns; beside it the enqueue and the completion
weights   the share of a group with weight 3 beside one with 1, while both have work
one       claims until the one job of a group starts, beside a group with 1,000
limits    threads hold jobs of groups under a concurrency and under a rate: the most at once, and how much of the limit is used

Each line has its errors, the candidates that other claims won, and the jobs that came twice. Everything happens in tables of its
own, which are dropped afterwards. On a busy machine only ratios say much.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.running import own_tables
from queue_db import LeasedJob, Queue, QueueDB
from queue_db.fairness.policy import BY_TIME_EVERY

#: Jobs of a claim.
BATCH = 10

#: Of the limits: groups, and the jobs that may run at once or begin in a second.
GROUPS, CONCURRENCY, RATE = 3, 5, 20

#: Seconds for which a thread waits after a claim that got nothing.
PAUSE = 0.01

#: What must be kept: how far a share may be from its weight, and how much of a limit may stay free.
SHARE, FREE = 0.05, 0.1


@dataclass
class Seen:
    """The jobs that a section has claimed, and what went wrong."""

    jobs: Counter[int] = field(default_factory=Counter)
    errors: int = 0
    missed: int = 0

    def add(self, jobs: Sequence[LeasedJob]) -> None:
        """Note the jobs of a claim."""
        self.jobs.update(job.id for job in jobs)

    @property
    def twice(self) -> int:
        """Jobs that came more than once."""
        return sum(number > 1 for number in self.jobs.values())

    def __str__(self) -> str:
        return f"errors {self.errors}, missed {self.missed}, twice {self.twice}"


@dataclass(frozen=True)
class Line:
    """One result."""

    text: str
    met: bool
    seen: Seen

    def __str__(self) -> str:
        return f"{'  ' if self.met and not self.seen.twice and not self.seen.errors else '✗ '}{self.text}; {self.seen}"


def _fill(queue: Queue, jobs: int, group: Callable[[int], str | None]) -> float:
    """Enqueue jobs, 1,000 at a time; return the seconds."""
    began = time.perf_counter()
    for first in range(0, jobs, 1000):
        some = range(first, min(first + 1000, jobs))
        queue.enqueue_many([("bench", number, {"group": group(number)}) for number in some])
    return time.perf_counter() - began


def _same(group: str, _place: int) -> str:
    return group


def claims(db: QueueDB, groups: int, number: int, most: float) -> Iterator[Line]:
    """Claims of a plain queue, and of fair ones with one group and with many, in turns.

    :param number: claims of each.
    :param most: the highest ratio that is met.
    """
    sides: dict[str, Callable[[int], str | None]] = {
        "plain": lambda _: None,
        "1 group": lambda _: "alone",
        f"{groups:,} groups": lambda place: f"tenant-{place % groups:06}",
    }
    jobs = max(groups, number * BATCH)
    seen, before = {side: Seen() for side in sides}, db.counters.missed
    took: dict[str, tuple[list[float], list[float]]] = {side: ([], []) for side in sides}
    enqueued = {}
    for side, group in sides.items():
        if side != "plain":
            db.queue(side).fair()
        enqueued[side] = _fill(db.queue(side), jobs, group)
    for _ in range(number):
        for side in sides:
            queue, began = db.queue(side), time.perf_counter()
            found = queue.claim(BATCH)
            claimed = time.perf_counter()
            seen[side].errors += len(found) - sum(map(bool, queue.complete_many(found)))
            took[side][0].append(claimed - began)
            took[side][1].append(time.perf_counter() - claimed)
            seen[side].add(found)
            seen[side].missed += db.counters.missed - before
            before = db.counters.missed
    claim = {side: statistics.median(times[0]) for side, times in took.items()}
    complete = {side: statistics.median(times[1]) for side, times in took.items()}
    for side in sides:
        ratios = (claim[side] / claim["plain"], enqueued[side] / enqueued["plain"], complete[side] / complete["plain"])
        words = (
            f"claim {claim[side] * 1000:.2f} ms, {ratios[0]:.2f} times; enqueue {ratios[1]:.2f}, completion {ratios[2]:.2f} times"
        )
        full = len(seen[side].jobs) == number * BATCH
        yield Line(f"{side:14} {words}{'' if full else '; claims were not full'}", full and ratios[0] <= most, seen[side])


def weights(db: QueueDB, jobs: int) -> Iterator[Line]:
    """The share of the group with weight 3, in claims of one and of ten."""
    for batch in (1, BATCH):
        queue, seen = db.queue(f"weights {batch}"), Seen()
        queue.fair(weights={"three": 3})
        for group in ("one", "three"):
            _fill(queue, jobs, partial(_same, group))
        counts = Counter[str | None]()
        while counts.total() < jobs:
            found = queue.claim(batch)
            seen.add(found)
            counts.update(job.group for job in found)
        share = counts["three"] / counts.total()
        yield Line(f"weights 3 : 1, claims of {batch}: {share:.1%} of {counts.total():,}", abs(share / 0.75 - 1) <= SHARE, seen)


def one(db: QueueDB, times: int) -> Iterator[Line]:
    """How many claims it takes until the one job of a group starts. One claim in 64 is not by turns, but by time."""
    for batch in (1, BATCH):
        queue, seen, waits = db.queue(f"one {batch}"), Seen(), Counter[int]()
        queue.fair()
        _fill(queue, 1000 + 3 * batch * times, lambda _: "many")
        for _ in range(times):
            seen.add(queue.claim(batch))  # the turn of the other group ends
            job = queue.enqueue("bench", group="one")
            number = 0
            while seen.jobs[job] == 0 and number < 100:
                number += 1
                seen.add(queue.claim(batch))
            waits[number] += 1
        words = f"starts in the next claim {waits[1]} of {times} times, at the latest in claim {max(waits)}"
        met = times - waits[1] <= 1 + times / BY_TIME_EVERY and max(waits) <= 2
        yield Line(f"one job beside 1,000, claims of {batch}: {words}", met, seen)


class _Holders:
    """Threads, each with connections of its own, that claim jobs under limits and hold them for a while."""

    def __init__(self, url: str, table: str, queue: str, held: float) -> None:
        self._open: Callable[[], QueueDB] = lambda: QueueDB(url, table=table, pool_size=1)
        self._queue, self._held = queue, held
        self._lock = threading.Lock()
        self.seen = Seen()
        self.now, self.most, self.begun = Counter[str](), Counter[str](), Counter[str]()
        self.busy = 0.0

    def run(self, threads: int, warm: float, seconds: float) -> None:
        """Work for ``warm`` seconds, and then count for ``seconds``."""
        ends = time.monotonic() + warm + seconds
        some = [threading.Thread(target=self._work, args=(ends - seconds, ends)) for _ in range(threads)]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()

    def _work(self, starts: float, ends: float) -> None:
        with self._open() as db:
            queue = db.queue(self._queue)
            while time.monotonic() < ends:
                try:
                    if found := queue.claim(1):
                        self._hold(queue, found[0], starts, ends)
                    else:
                        time.sleep(PAUSE)
                except Exception:  # noqa: BLE001 - counted; the line is not met
                    with self._lock:
                        self.seen.errors += 1
            with self._lock:
                self.seen.missed += db.counters.missed

    def _hold(self, queue: Queue, job: LeasedJob, starts: float, ends: float) -> None:
        group, began = str(job.group), time.monotonic()
        with self._lock:
            self.seen.add([job])
            self.now[group] += 1
            self.most[group] = max(self.most[group], self.now[group])
            self.begun[group] += starts <= began < ends
        time.sleep(self._held)
        with self._lock:
            self.now[group] -= 1
            self.busy += max(0.0, min(time.monotonic(), ends) - max(began, starts))
        job.complete()


def limits(url: str, db: QueueDB, seconds: float, held: float) -> Iterator[Line]:
    """How many jobs run at once and begin in a second, beside what the limits allow.

    :param held: seconds for which a job is held under the limit of concurrency.
    """
    names = [f"tenant-{number}" for number in range(GROUPS)]
    for what, jobs in (("concurrency", CONCURRENCY / held), ("rate", RATE)):
        queue = db.queue(what)
        queue.fair()
        if what == "concurrency":
            queue.limit_groups(concurrency=CONCURRENCY)
        else:
            queue.limit_groups(rate=RATE)
        _fill(queue, round(3 * GROUPS * jobs * (seconds + 2)), lambda number: names[number % GROUPS])
        holders = _Holders(url, db.store.tables.jobs.name, what, held if what == "concurrency" else 0.0)
        # The first second uses up what an idle rate allows at once.
        holders.run(GROUPS * CONCURRENCY + 1, 1.0, seconds)
        if what == "concurrency":
            used, most = holders.busy / (seconds * GROUPS * CONCURRENCY), max(holders.most.values())
            free = held * (1 / used - 1) * 1000
            words = f"at most {most} of {CONCURRENCY} at once of each of {GROUPS} groups, a place is free for {free:.0f} ms"
            met = most <= CONCURRENCY
        else:
            allowed = RATE * seconds
            used, most = holders.begun.total() / (allowed * GROUPS), max(holders.begun.values())
            words = f"{most} of {allowed:.0f} began in {seconds:g} s of each of {GROUPS} groups"
            met = most <= allowed + RATE
        yield Line(f"{what}: {words}, {used:.1%} of the limit used", met and used >= 1 - FREE, holders.seen)


def measured(url: str, asked: argparse.Namespace) -> Iterator[Line]:
    """All lines of one database."""
    quick = asked.quick
    with own_tables(url, f"bench_fair_{os.getpid()}") as db:
        if "claims" in asked.only:
            yield from claims(db, asked.groups or (200 if quick else 10_000), 20 if quick else 400, asked.most)
        if "weights" in asked.only:
            yield from weights(db, 200 if quick else 2000)
        if "one" in asked.only:
            yield from one(db, 3 if quick else 50)
        if "limits" in asked.only:
            yield from limits(url, db, 0.5 if quick else 10.0, 0.1 if quick else asked.held)


SECTIONS = ("claims", "weights", "one", "limits")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 if something is not kept, or a claim costs more than ``--most``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks fairness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--groups", type=int, help="default 10,000")
    parser.add_argument("--held", type=float, default=0.5, help="seconds of a job under a limit of concurrency (default 0.5)")
    parser.add_argument("--only", choices=SECTIONS, nargs="*", default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes: whether everything works; the figures say nothing")
    parser.add_argument("--most", type=float, default=1.3, help="the highest ratio of claims that is met")
    asked = parser.parse_args(arguments)
    met = True
    with QueueDB(asked.url) as db:
        sys.stdout.write(f"{db.url}\n")
    for line in measured(asked.url, asked):
        met = met and line.met and not line.seen.twice and not line.seen.errors
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
