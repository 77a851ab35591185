"""Claims on three nodes at once: each job goes to one worker, and every worker knows the jobs that it has."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from queue_db import Queue, QueueDB
from tests.clusters.conftest import catch_up
from tests.conformance.combinations import STRATEGIES
from tests.races.interleaving import at_once

JOBS = 150
WORKERS = 2


def _claim_all(queue: Queue, seed: int) -> list[int]:
    """Claim until no job is left; return the ids."""
    rng, ids = random.Random(seed), []
    while True:
        jobs = queue.claim(limit=rng.choice([1, 1, 5]), lease=600)
        ids += [job.id for job in jobs]
        if not jobs and not queue.stats().available:
            return ids


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_job_is_claimed_once_and_no_claim_is_lost(
    open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str, strategy: str
) -> None:
    nodes = open_nodes(STRATEGIES[strategy])
    ids = nodes[0].queue(name).enqueue_many([("mail", number) for number in range(JOBS)])
    for url in urls:
        catch_up(url)
    claimed = at_once(*(lambda db=db, seed=seed: _claim_all(db.queue(name), seed) for seed, db in enumerate(nodes * WORKERS)))
    assert not [error for error in claimed if isinstance(error, Exception)], claimed
    assert sorted(job for jobs in claimed for job in jobs) == ids  # type: ignore[union-attr]
    assert sum(db.counters.claimed for db in nodes) == JOBS


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_completions_on_all_nodes_succeed(
    open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str, strategy: str
) -> None:
    nodes = open_nodes(STRATEGIES[strategy])
    nodes[0].queue(name).enqueue_many([("mail", number) for number in range(JOBS)])
    for url in urls:
        catch_up(url)

    def work(queue: Queue) -> int:
        done = 0
        while True:
            jobs = queue.claim(limit=1, lease=600)
            done += sum(map(bool, queue.complete_many(jobs))) if jobs else 0
            if not jobs and not queue.stats().available:
                return done

    done = at_once(*(lambda db=db: work(db.queue(name)) for db in nodes * WORKERS))
    assert not [error for error in done if isinstance(error, Exception)], done
    assert sum(done) == JOBS  # type: ignore[arg-type]
    for db, url in zip(nodes, urls, strict=True):
        catch_up(url)
        assert db.queue(name).stats().by_kind == {}
