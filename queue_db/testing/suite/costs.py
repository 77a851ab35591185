"""Statements per verb: the number of round trips is guaranteed."""

from __future__ import annotations

from collections.abc import Sequence

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
                assert len(claiming) <= most_statements.claim, _more(claiming, f"claim({jobs})", most_statements)
                with counted_statements(db.database.engine) as completing:
                    assert all(queue.complete_many(claimed))
                most = most_statements.complete if jobs > 1 else most_statements.complete_one
                assert len(completing) <= most, _more(completing, f"complete_many of {jobs}", most_statements)


def _more(sent: Sequence[str], verb: str, most: Statements) -> str:
    return "\n".join([f"{verb} sent {len(sent)} statements; the fixture `most_statements` allows {most}:", *sent])
