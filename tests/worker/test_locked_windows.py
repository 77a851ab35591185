"""A strategy of one's own that locks its window, in whichever order it draws from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queue_db import Capability, LeasedJob, QueueDB
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store import Transaction, lease


class Locking:
    name = "locking"

    def __init__(self, order: lease.Order, lock: lease.Lock) -> None:
        self.needs = frozenset({Capability.SKIP_LOCKED} if lock is lease.Lock.SKIP else ())
        self._order, self._lock = order, lock

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        window = lease.CandidateWindow(self._order, self._lock, read=3 * request.limit, start=2)
        return lease.claim(tx, request, window)

    def observe(self, result: ClaimResult) -> None:
        """It learns nothing."""


@pytest.mark.parametrize("order", lease.Order)
@pytest.mark.parametrize("lock", [lease.Lock.WAIT, lease.Lock.SKIP])
@pytest.mark.parametrize("priorities", [1, 2])
@pytest.mark.parametrize("higher", ["alone", "if_idle"])
def test_each_job_is_claimed_once_and_whole(
    kind: str,
    open_db: Callable[..., QueueDB],
    name: str,
    differs: Callable[[str], Any],
    order: lease.Order,
    lock: lease.Lock,
    priorities: int,
    higher: str,
) -> None:
    if kind == "sqlite" and lock is lease.Lock.SKIP:
        differs("no SKIP LOCKED")
    queue = open_db(strategy=Locking(order, lock)).queue(name)
    ids = queue.enqueue_many([("mail", number, {"priority": number % priorities}) for number in range(6)])
    queue.db.next_due([name])  # now the priorities are known

    def claim() -> list[LeasedJob]:
        return queue.claim(2) if higher == "alone" else queue.claim_if_idle([f"{name}-high"], 2, 60.0)

    jobs = [*claim(), *claim(), *claim()]
    assert {job.id: (job.payload, job.attempts) for job in jobs} == {job_id: (number, 1) for number, job_id in enumerate(ids)}
    assert claim() == []
