"""Whether the adaptive strategy is as fast as the best of SKIP LOCKED and the fixed windows, and follows the number of workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.beside import Beside
from benchmarks.figures import Line, Side
from benchmarks.lab import Lab
from queue_db import Adaptive, Optimistic, QueueDB, Strategy
from queue_db.compare.contestant import Contestant, Target, WorkerContext
from queue_db.compare.product import PRODUCT
from queue_db.compare.worker_pool import Assignment

_QUEUE = "race"
_LEASE = 600.0

#: Numbers of workers, and the fixed windows to compare with.
_WORKERS = (2, 10, 32)
_SHARES = (0.5, 1, 2, 4)
_BATCHES = (1, 100)

#: Within what is asked of the best of the others.
_BOUND = 0.97

#: Number of permanent workers, number of workers in the middle phase, and seconds of each of the three phases.
_FEW, _MANY = 2, 50
_SECONDS = 8.0

#: Jobs per second of a phase: more than can be processed.
_RATE = 6_000


def following(lab: Lab) -> Iterator[Line]:
    """Compare adaptive with SKIP LOCKED and fixed windows at several numbers of workers, and while that number changes."""
    rows = {row.name: row for row in PRODUCT}
    for workers in _WORKERS:
        windows = sorted({max(1, round(share * workers)) for share in _SHARES})
        fixed = [replace(rows["optimistic"], name=f"window {window}", strategy=partial(_fixed, window)) for window in windows]
        for batch in _BATCHES:
            some = [replace(row, batch=batch) for row in (rows["adaptive"], rows["skip_locked"], *fixed)]
            own, *others = lab.turns([(row, lab.jobs_for(batch)) for row in some], workers)
            what = f"adaptive ×{batch} against the best of skip_locked and the windows {windows}, {workers} workers"
            best = max(others, key=lambda side: side.spread.median if side.spread else 0.0)
            yield Line(what, own, best, _BOUND)
    yield from _tide(lab, rows["adaptive"])


def _fixed(window: int, workers: int) -> Strategy:
    return Optimistic(window=window)


@dataclass(frozen=True, kw_only=True)
class Tide(Beside):
    """Few workers, then many, then few again, all with windows."""

    seconds: float
    name: str = "tide"

    def work(self, target: Target, context: WorkerContext) -> None:
        """Claim and complete in this worker's phases; the first worker records the window and empties the queue at the end."""
        strategy = Adaptive(skip_locked=False)
        with QueueDB(target.url, strategy, schema=target.schema, pool_size=1) as db:
            queue = db.queue(_QUEUE)
            queue.claim()[0].release()  # connect before the start
            context.wait_for_start()
            began = time.monotonic()
            seen: list[list[int]] = [[], [], []]
            while not context.over and (phases := (time.monotonic() - began) / self.seconds) < len(seen):
                if context.number >= _FEW and int(phases) != 1:
                    time.sleep(0.005)
                    continue
                for job in queue.claim(lease=_LEASE):
                    context.record_removal(int(bool(job.complete())))
                if phases % 1 > 0.5:
                    seen[int(phases)].append(strategy.window(_QUEUE))
            if context.number == 0:
                context.notes.windows = [statistics.fmean(windows) if windows else 0.0 for windows in seen]
                self._clear_up(db, context)

    def _clear_up(self, db: QueueDB, context: WorkerContext) -> None:
        queue = db.queue(_QUEUE)
        while not context.over:
            context.record_removal(queue.purge())
            time.sleep(0.05)


def _tide(lab: Lab, adaptive: Contestant) -> Iterator[Line]:
    seconds = max(0.5, _SECONDS * min(lab.scale, 1.0))
    tide, target = Tide(like=adaptive, seconds=seconds), lab.at(_MANY)
    found: list[list[float]] = []
    for turn in range(lab.repeat):
        lab.say(f"{_FEW} workers, {_MANY}, {_FEW} again, {seconds:g} s each, {turn + 1} of {lab.repeat}")
        try:
            tide.set_up(target, jobs := int(3 * seconds * _RATE))
            history = lab.pools(_MANY).run(Assignment(tide, target, 0.0, 0.0, verify=False), jobs, limit=lab.plan.limit)
        finally:
            tide.tear_down(target)
        found.append(history.notes[0].windows)
        lab.say("    windows " + ", ".join(f"{window:.1f}" for window in found[-1]))
    few, many, again = (
        Side(what, "batches", [windows[phase] for windows in found])
        for phase, what in enumerate((f"window, {_FEW} workers", f"window, {_MANY} workers", f"window, {_FEW} workers again"))
    )
    yield Line(f"the window with {_MANY} workers against that with {_FEW}, while running", many, few, 2.0)
    yield Line(f"the window with {_FEW} workers again against that before", again, few, 2.0, at_most=True)
