"""Enqueues that share an insert with jobs of other callers: everything is as if each were alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from queue_db.model import NewJob
from queue_db.testing.suite import TestClaim, TestEnqueue, clock, db, name, queue, rival, rival_queue  # noqa: F401
from queue_db.verbs.enqueue import Enqueue

pytestmark = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")


@pytest.fixture(autouse=True)
def neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each insert that may be shared has jobs of another queue too."""
    real = Enqueue._together

    def together(self: Enqueue, jobs: Sequence[NewJob]) -> Sequence[Any]:
        others = [job._replace(queue=f"{job.queue}-beside", payload="0", headers=None, priority=1) for job in jobs]
        outcomes = real(self, [*others, *jobs, *others])
        assert all(isinstance(outcome, int) for outcome in outcomes)
        assert len(set(outcomes)) == len(outcomes)
        return outcomes[len(others) : -len(others)]

    monkeypatch.setattr(Enqueue, "_together", together)
