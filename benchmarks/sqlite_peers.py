"""SQLite: other queues in a file, and what deleting alone would take."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import make_url

from benchmarks.claims import Rival, against
from benchmarks.figures import Line
from benchmarks.lab import Lab
from queue_db.compare.contestant import Contestant, Desk, Place
from queue_db.compare.laboratory import contestants

#: Seconds to wait for the other writers, as the product does.
_BUSY = 30.0


@dataclass(frozen=True)
class BulkDelete:
    """DELETE … RETURNING of a batch from the head: at most once, no lease, no retry; the limit of what a batch can do."""

    filler: Contestant = field(repr=False)
    batch: int = 100
    name: str = "DELETE … RETURNING"
    family: str = field(default="limit", init=False)
    claim: str = field(default="DELETE … RETURNING, head of the queue", init=False)
    removal: str = field(default="with the claim", init=False)
    index: str = field(default="(queue, priority, available_at, id)", init=False)

    def window(self, workers: int) -> float | None:
        """None."""
        return None

    @property
    def pick(self) -> str | None:
        """None."""
        return None

    def configuration(self) -> dict[str, str]:
        """As the product: WAL, FULL."""
        return {"synchronous": "FULL", "journal_mode": "WAL"}

    def refused(self, place: Place) -> str | None:
        """It speaks SQLite."""
        return None if place.url.startswith("sqlite") else "DELETE … RETURNING is measured on SQLite only"

    def set_up(self, place: Place, jobs: int) -> None:
        """The product's own table, filled by the product."""
        self.filler.set_up(place, jobs)

    def tear_down(self, place: Place) -> None:
        """Drop it."""
        self.filler.tear_down(place)

    def work(self, place: Place, desk: Desk) -> None:
        """Delete until nothing is left."""
        statement = (
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE queue = 'race' AND priority = 0 "
            "ORDER BY available_at, id LIMIT ?) RETURNING payload"
        )
        connection = sqlite3.connect(make_url(place.url).database or "", timeout=_BUSY, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            desk.ready()
            while not desk.over:
                asked = time.monotonic()
                connection.execute("BEGIN IMMEDIATE")
                payloads = connection.execute(statement, (self.batch,)).fetchall()
                connection.execute("COMMIT")
                if not payloads:
                    desk.found_nothing()
                    continue
                desk.claimed(asked, [int(payload) for (payload,) in payloads])
                desk.left(len(payloads))
        finally:
            connection.close()


def sqlite_peers(lab: Lab) -> Iterator[Line]:
    """Single jobs against the other queues, batches against the limit."""
    yield from against(lab, 1, [Rival("persist-queue", 2.0, peer=True), Rival("litequeue", 3.0, peer=True)])
    (ours,) = contestants(["adaptive"], [100])
    limit = BulkDelete(ours)
    mine, bulk = lab.turns([(ours, lab.jobs_for(100)), (limit, lab.jobs_for(100))])
    yield Line("adaptive ×100 against DELETE … RETURNING of 100 rows", mine, bulk, 0.4)
