"""Claims on three nodes at once: each job goes to one worker, and every worker knows the jobs that it has."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

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


def _enqueue_claim_complete(queue: Queue, numbers: list[int], seed: int) -> list[int]:
    """Enqueue these, and claim and complete meanwhile until no job is left; return the numbers of the completed jobs."""
    rng, done = random.Random(seed), list[int]()
    while True:
        size = rng.choice([1, 1, 10])
        new, numbers = numbers[:size], numbers[size:]
        if len(new) == 1:
            queue.enqueue("mail", new[0])
        elif new:
            queue.enqueue_many([("mail", number) for number in new])
        jobs = queue.claim(limit=size, lease=600)
        verdicts = [job.complete() for job in jobs] if len(jobs) == 1 else queue.complete_many(jobs)
        done += [job.payload for job, verdict in zip(jobs, verdicts, strict=True) if verdict]
        if not (numbers or jobs or queue.stats().available):
            return done


@pytest.mark.parametrize("cluster", ["galera"], indirect=True, scope="session")
def test_ten_thousand_jobs_are_done_once_and_no_verb_raises(nodes: list[QueueDB], name: str) -> None:
    workers = [db.queue(name) for db in nodes * 3]
    shares = [list(range(worker, 10_000, len(workers))) for worker in range(len(workers))]
    works = [partial(_enqueue_claim_complete, *one) for one in zip(workers, shares, range(len(workers)), strict=True)]
    done = at_once(*works)
    assert not [error for error in done if isinstance(error, Exception)], done
    assert sorted(number for numbers in done for number in numbers) == list(range(10_000))  # type: ignore[union-attr]
    assert sum(db.counters.claimed for db in nodes) == 10_000
    assert sum(db.counters.lost for db in nodes) == 0
