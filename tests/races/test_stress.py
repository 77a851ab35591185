"""Eight workers, a thousand jobs: each job exactly once, and the numbers add up."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from queue_db import Capability, LeasedJob, Queue, QueueDB
from tests.conformance.combinations import STRATEGIES
from tests.races.interleaving import at_once

WORKERS = 8
JOBS = 1000


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest, differs: Callable[[str], None]) -> str:
    if Capability.SKIP_LOCKED in STRATEGIES[request.param]().needs:
        differs("no SKIP LOCKED")
    return str(request.param)


def _work(queue: Queue, seed: int, finished: Counter[int], leases: list[tuple[int, int]], lock: threading.Lock) -> int:
    """Claim and settle until all are done; return how many jobs were claimed."""
    rng = random.Random(seed)
    claimed = 0
    while True:
        with lock:
            if sum(finished.values()) >= JOBS:
                return claimed
        jobs = queue.claim(limit=rng.randint(1, 40), lease=600)
        claimed += len(jobs)
        back = [job for job in jobs if rng.random() < 0.05]
        done = [job for job in jobs if job not in back]
        applied = _applied(done, queue.complete_many(done))
        assert _applied(back, queue.release_many(back)) == back
        with lock:
            leases.extend((job.id, job.version) for job in jobs)
            finished.update(job.id for job in applied)


def _applied(jobs: list[LeasedJob], verdicts: list[object]) -> list[LeasedJob]:
    return [job for job, verdict in zip(jobs, verdicts, strict=True) if verdict]


def test_no_job_is_lost_or_done_twice(open_db: Callable[..., QueueDB], name: str, strategy: str) -> None:
    dbs = [open_db(strategy=STRATEGIES[strategy](), worker=f"worker-{number}", pool_size=1) for number in range(WORKERS)]
    ids = dbs[0].queue(name).enqueue_many([("mail", number) for number in range(JOBS)])
    finished: Counter[int] = Counter()
    leases: list[tuple[int, int]] = []
    lock = threading.Lock()
    claimed = at_once(
        *(lambda db=db, seed=seed: _work(db.queue(name), seed, finished, leases, lock) for seed, db in enumerate(dbs))
    )
    assert not [error for error in claimed if isinstance(error, Exception)], claimed
    assert sorted(finished) == ids
    assert set(finished.values()) == {1}
    assert len(set(leases)) == len(leases), "one (id, version) was given to two workers"
    assert [db.counters.claimed for db in dbs] == claimed
    assert sum(db.counters.claimed for db in dbs) == len(leases) == sum(db.counters.applied for db in dbs)
    assert sum(db.counters.lost + db.counters.exhausted for db in dbs) == 0
    assert all(db.counters.candidates == db.counters.claimed + db.counters.missed for db in dbs)
    assert dbs[0].queue(name).stats().by_kind == {}


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_threads_that_share_one_object_lose_no_count(open_db: Callable[..., QueueDB], name: str, restless: None) -> None:
    db = open_db(pool_size=WORKERS)
    queue = db.queue(name)
    ids = queue.enqueue_many([("mail", number) for number in range(JOBS)])
    finished: Counter[int] = Counter()
    leases: list[tuple[int, int]] = []
    lock = threading.Lock()
    claimed = at_once(*(lambda seed=seed: _work(queue, seed, finished, leases, lock) for seed in range(WORKERS)))
    assert not [error for error in claimed if isinstance(error, Exception)], claimed
    assert sorted(finished) == ids
    assert db.counters.claimed == sum(claimed) == len(leases)  # type: ignore[arg-type]
    assert db.counters.applied == len(leases)
    assert db.counters.candidates == db.counters.claimed + db.counters.missed
