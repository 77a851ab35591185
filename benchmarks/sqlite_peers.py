"""SQLite: other queues, and a plain DELETE … RETURNING."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import make_url

from benchmarks.beside import Beside
from benchmarks.claims import Rival, against
from benchmarks.figures import Line
from benchmarks.lab import Lab
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.laboratory import contestants

#: Busy timeout, seconds, as in the product.
_BUSY = 30.0


@dataclass(frozen=True, kw_only=True)
class BulkDelete(Beside):
    """DELETE … RETURNING of a batch from the head: at most once, no lease, no retry; the upper limit for batches."""

    name: str = "DELETE … RETURNING"

    def refused(self, target: Target) -> str | None:
        """Return why it is not supported: it is for SQLite only."""
        return None if target.url.startswith("sqlite") else "DELETE … RETURNING is measured on SQLite only"

    def work(self, target: Target, context: WorkerContext) -> None:
        """Delete until the queue is empty."""
        statement = (
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE queue = 'race' AND priority = 0 "
            "ORDER BY available_at, id LIMIT ?) RETURNING payload"
        )
        connection = sqlite3.connect(make_url(target.url).database or "", timeout=_BUSY, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            context.wait_for_start()
            while not context.over:
                asked = time.monotonic()
                connection.execute("BEGIN IMMEDIATE")
                payloads = connection.execute(statement, (self.batch,)).fetchall()
                connection.execute("COMMIT")
                if not payloads:
                    context.record_empty_claim()
                    continue
                context.record_claim(asked, [int(payload) for (payload,) in payloads])
                context.record_removal(len(payloads))
        finally:
            connection.close()


def sqlite_peers(lab: Lab) -> Iterator[Line]:
    """Compare single claims with other queues, and batches with the limit."""
    yield from against(lab, 1, [Rival("persist-queue", 1.5, peer=True), Rival("litequeue", 1.5, peer=True)])
    ours, together = contestants(["adaptive", "complete_and_claim"], [100])
    limit = BulkDelete(like=ours)
    mine, faster, bulk = lab.turns([(row, lab.jobs_for(100)) for row in (ours, together, limit)])
    yield Line("adaptive ×100 against DELETE … RETURNING of 100 rows", mine, bulk)
    yield Line("complete_and_claim ×100 against DELETE … RETURNING of 100 rows", faster, bulk, 0.4)
