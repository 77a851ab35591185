"""A node is killed while workers claim: nothing is lost, nothing is done twice, and the node comes back with all that it missed."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from queue_db import LeasedJob, QueueDB, TransientStorageError
from tests.clusters.conftest import catch_up
from tests.patience import PATIENCE
from tests.races.interleaving import at_once
from tests.servers.cluster import Cluster
from tests.servers.clusters import CLUSTERS

JOBS = 600
WORKERS = 6

# Seconds. The jobs of a claim whose answer was lost come back after this.
LEASE = 10


class _Ledger:
    """What the workers were told of the jobs that they completed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.applied: list[int] = []
        self.doubtful: set[int] = set()
        self.ends = False

    def complete(self, job: LeasedJob) -> None:
        try:
            verdict = job.complete()
        except TransientStorageError as error:
            if error.outcome_unknown:
                self.doubtful.add(job.id)
            raise
        with self._condition:
            self.applied += [job.id] if verdict else []
            self._condition.notify_all()

    def wait(self, more: int) -> None:
        """Return when so many more jobs are completed."""
        with self._condition:
            wanted = len(self.applied) + more
            assert self._condition.wait_for(lambda: len(self.applied) >= wanted, PATIENCE)


def _work(dbs: list[QueueDB], name: str, first: int, ledger: _Ledger) -> None:
    """Claim and complete one job after another, after an error on the next node, until the queue is empty at the end."""
    at = first
    while True:
        queue = dbs[at % len(dbs)].queue(name)
        try:
            for job in queue.claim(limit=1, lease=LEASE):
                ledger.complete(job)
            if ledger.ends and not queue.stats().by_kind:
                return
        except TransientStorageError:
            at += 1


@pytest.mark.parametrize("cluster", CLUSTERS, indirect=True, scope="session")
def test_a_node_is_killed_and_comes_back_while_workers_claim(cluster: Cluster, urls: list[str], name: str) -> None:
    victim = cluster.writers()[0]
    ledger = _Ledger()
    with ExitStack() as stack:
        dbs = [stack.enter_context(QueueDB(url, strategy="optimistic")) for url in urls]
        ids = dbs[victim].queue(name).enqueue_many([("mail", number) for number in range(JOBS)])

        def kill_and_start() -> None:
            try:
                ledger.wait(50)
                cluster.kill(victim)
                ledger.wait(50)
                cluster.start(victim)
                cluster.wait()
            finally:
                ledger.ends = True

        answers = at_once(kill_and_start, *(lambda first=first: _work(dbs, name, first, ledger) for first in range(WORKERS)))
        assert answers == [None] * (1 + WORKERS)
        assert len(ledger.applied) == len(set(ledger.applied))
        assert set(ledger.applied) | ledger.doubtful == set(ids)
        for db, url in zip(dbs, urls, strict=True):
            catch_up(url)
            assert db.queue(name).stats().by_kind == {}
