"""Two table names: two independent sets of queues in one database."""

from __future__ import annotations

from queue_db.errors import SchemaOutOfDateError
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import OpenDB

__all__ = ["TestTables"]

OTHER = "conformance_other"


class TestTables:
    """``QueueDB(table=…)``."""

    def test_two_stores_are_independent(self, open_db: OpenDB, clock: SettableClock, name: str) -> None:
        db, other = open_db(clock=clock), open_db(clock=clock, table=OTHER)
        try:
            other.check()
        except SchemaOutOfDateError:
            other.migrate()
        here, there = db.queue(name), other.queue(name)
        try:
            here.enqueue("here", unique_key="k")
            there.enqueue("there", unique_key="k")
            (mine,), (theirs,) = here.claim(limit=5), there.claim(limit=5)
            assert (mine.kind, theirs.kind) == ("here", "there")
            assert theirs.bury("no use")
            assert db.dead.list(name) == []
            assert [job.kind for job in other.dead.list(name)] == ["there"]
            assert (here.stats().running, there.stats().running) == (1, 0)
            assert mine.complete()
        finally:
            there.purge()
            other.dead.purge(name)
