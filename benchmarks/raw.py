"""The overhead of the API: compared with a loop that sends the same statements through the driver.

Both sides use the fixed window, so that they pick alike, and connections with the same driver and settings.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError

from benchmarks.beside import Beside
from benchmarks.figures import Line
from benchmarks.lab import Lab
from benchmarks.recording import Recorded, Spot, Template, record
from queue_db import Optimistic, QueueDB, Strategy
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.product import PRODUCT

#: The queue that the laboratory's product rows fill for both sides.
_QUEUE = "race"

_LEASE = 600_000_000
_BEGINNING = -(2**62)
_SLACK = 2_000_000

#: Claims in a row that may lose every candidate, and the pause after the first, seconds: as in ``queue_db.verbs.claim``.
_ROUNDS = 5
_PAUSE = 0.002

#: Tries of one claim or completion.
_ATTEMPTS = 6


@dataclass(frozen=True, kw_only=True)
class Raw(Beside):
    """A row that sends the recorded statements in a loop."""

    recorded: Recorded = field(repr=False)
    name: str = "raw driver"

    def window(self, workers: int) -> float | None:
        """Batch size of the recorded claims."""
        return float(workers * self.batch)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Claim and complete."""
        with QueueDB(target.url, Optimistic(window=target.workers, pick="slice"), schema=target.schema, pool_size=1) as db:
            engine = db.database.engine
            raw = engine.raw_connection()
            try:
                driver: Any = raw.driver_connection
                if engine.dialect.name == "sqlite":
                    driver.isolation_level = None  # the loop sends BEGIN itself
                loop = _Loop(db, driver.cursor(), self.recorded, self.batch)
                loop.warm_up()
                context.wait_for_start()
                loop.run(context)
            finally:
                raw.close()


class _Loop:
    """The loop of one worker."""

    def __init__(self, db: QueueDB, cursor: Any, recorded: Recorded, batch: int) -> None:
        self.db, self.cursor, self.recorded, self.batch = db, cursor, recorded, batch
        self.errors: type[Exception] = db.database.engine.dialect.loaded_dbapi.Error
        self.file = db.database.engine.dialect.name == "sqlite"
        self.floor = _BEGINNING
        self.tried = self.doubtful = 0
        self.fill: dict[Spot, Any] = {Spot.QUEUE: _QUEUE}
        self.columns: dict[str, dict[str, int]] = {}

    def warm_up(self) -> None:
        """Prepare the statements of a connection."""
        for text in self.recorded.prepares:
            self.cursor.execute(text)
        self.fill[Spot.QUEUE] = "no queue"
        for _ in range(3):
            self._claim()
        self.fill[Spot.QUEUE] = _QUEUE

    def run(self, context: WorkerContext) -> None:
        """Claim and complete until the end of the run."""
        notes = context.notes
        lost = 0
        while not context.over:
            asked = time.monotonic()
            jobs = self._again(self._claim, context)
            notes.rounds += 1
            notes.candidates += self.tried
            notes.won += len(jobs)
            if not jobs:
                lost = self._step_aside(context, lost)
                continue
            lost = 0
            context.record_claim(asked, [json.loads(payload) for _, _, payload in jobs])
            pairs = sorted((job_id, version) for job_id, version, _ in jobs)
            left = self._again(partial(self._complete, pairs), context)
            notes.lost += len(jobs) - left
            context.record_removal(left)

    def _step_aside(self, context: WorkerContext, lost: int) -> int:
        """Wait after a lost claim as the product does: this is part of its algorithm, not overhead."""
        if self.doubtful == 1:
            return lost
        if not self.tried:
            self.floor = _BEGINNING
        elif lost + 1 < _ROUNDS:
            time.sleep(_PAUSE * 2 ** (lost + 1) * random.random())
            return lost + 1
        context.record_empty_claim()
        return 0

    def _again(self, work: Callable[[], Any], context: WorkerContext) -> Any:
        """Run ``work``; after an error count it, roll back and retry, as the product does."""
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except self.errors as error:
                fault = self.db.database.dialect.errors.fault(DBAPIError("", None, error))
                context.notes.faults[fault] += 1
                self.cursor.execute("ROLLBACK")
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")  # pragma: no cover

    def _send(self, template: Template, pairs: Sequence[tuple[int, int]]) -> None:
        if template.repeated:
            self.cursor.executemany(template.text, pairs)
            return
        text, values = template.filled(self.fill, pairs)
        self.cursor.execute(text, values)

    def _rows(self, what: str) -> tuple[list[Any], dict[str, int]]:
        rows = self.cursor.fetchall()
        if what not in self.columns:
            self.columns[what] = {column[0]: target for target, column in enumerate(self.cursor.description)}
        return rows, self.columns[what]

    def _claim(self) -> list[tuple[int, int, str]]:
        """Return ``(id, version, payload)`` of the won jobs."""
        self.fill[Spot.TOKEN] = secrets.token_hex(16)
        self.fill[Spot.FLOOR] = self.floor
        claim = random.choice(self.recorded.claims)
        self._send(claim, ())
        found, at = self._rows(claim.text)
        if self.recorded.take:
            return self._take(found, at)
        if not found:
            # The queue is empty, or all candidates were lost.
            self.doubtful += 1
            self.tried = 0
            return []
        tried = found[0][at["tried"]] if "tried" in at else len(found)
        self.tried = (self.batch if tried is None else tried) + self.doubtful * self.batch  # None: as many as wanted
        self.doubtful = 0
        if not self.file and self.recorded.from_the_head(claim):
            head = found[0][at["head"]] if "head" in at else min(row[at["due_at"]] for row in found)
            self.floor = min(head, found[0][at["available_at"]] - _LEASE - _SLACK)
        id_, version, payload = at["id"], at["version"], at["payload"]
        return [(row[id_], row[version], row[payload]) for row in found]

    def _take(self, found: Sequence[Any], at: dict[str, int]) -> list[tuple[int, int, str]]:
        """Send the second statement of a claim, and the third if the second did not take all candidates."""
        id_, version, payload = at["id"], at["version"], at["payload"]
        self.tried = len(found)
        if not found:
            return []
        looked_at = found[0][at["looked_at"]]
        if found[0][at["head"]] is not None:
            self.floor = min(found[0][at["head"]], looked_at - _SLACK)
        self.fill[Spot.UNTIL] = looked_at + _LEASE
        pairs = sorted((row[id_], row[version]) for row in found)
        self._send(self.recorded.take[len(pairs) > 1], pairs)
        won = self.cursor.rowcount
        if won == len(found):
            return [(row[id_], row[version] + 1, row[payload]) for row in found]
        if won == 0 or self.recorded.read_back is None:
            return []
        self._send(self.recorded.read_back, pairs)
        rows, at = self._rows("read back")
        return [(row[at["id"]], row[at["version"]], row[at["payload"]]) for row in rows]

    def _complete(self, pairs: Sequence[tuple[int, int]]) -> int:
        left = 0
        for template in self.recorded.completes[len(pairs) > 1]:
            self._send(template, pairs)
            if template.text not in ("BEGIN", "COMMIT"):
                # The last statement counts: it deletes the rows that earlier ones have locked.
                left = self.cursor.rowcount if self.cursor.description is None else len(self.cursor.fetchall())
        return left


def _slices(workers: int) -> Strategy:
    return Optimistic(window=workers, pick="slice")


def overhead(lab: Lab, bounds: Sequence[tuple[int, float]] = ((1, 0.7), (100, 0.85))) -> Iterator[Line]:
    """Measure the API and the loop in turns; ``bounds``: (batch, share of the loop's throughput)."""
    for batch, bound in bounds:
        (row,) = [row for row in PRODUCT if row.name == "optimistic"]
        # Both sides pick anew for each claim: a kept slot could not be recorded and replayed.
        api = replace(row, batch=batch, strategy=_slices)
        lab.say(f"recording the statements of claims of {batch}")
        bare = Raw(like=api, recorded=record(replace(lab.target, workers=lab.plan.workers), batch))
        ours, theirs = lab.turns([(api, lab.jobs_for(batch)), (bare, lab.jobs_for(batch))])
        yield Line(f"API ×{batch} against the same statements on the raw driver", ours, theirs, bound)
