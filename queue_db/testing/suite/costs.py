"""Statements per verb: the number of round trips is guaranteed."""

from __future__ import annotations

import pytest

from queue_db.testing.clock import SettableClock
from queue_db.testing.statements import counted_statements
from queue_db.testing.suite.fixtures import OpenDB, Statements

__all__ = ["TestStatements"]


class TestStatements:
    """The same for one job and for a hundred."""

    @pytest.mark.parametrize("set_clock", [False, True], ids=["database_clock", "set_clock"])
    def test_claim_and_complete(
        self, open_db: OpenDB, clock: SettableClock, name: str, most_statements: Statements, set_clock: bool
    ) -> None:
        for jobs in (1, 10, 100):
            # A new object: its very first claim counts.
            db = open_db(clock=clock if set_clock else None)
            queue = db.queue(name)
            open_db(clock=clock if set_clock else None).queue(name).enqueue_many([("mail", number) for number in range(2 * jobs)])
            for _ in range(2):
                with counted_statements(db.database.engine) as claiming:
                    claimed = queue.claim(limit=jobs)
                assert len(claimed) == jobs
                assert len(claiming) <= most_statements.claim, claiming
                with counted_statements(db.database.engine) as completing:
                    assert all(queue.complete_many(claimed))
                assert len(completing) <= (most_statements.complete if jobs > 1 else most_statements.complete_one), completing
