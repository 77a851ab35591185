"""The primary is lost and its synchronous standby is promoted: programs go on, and what was acknowledged is there."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from queue_db import DuplicateJobError, QueueDB, TransientStorageError, Verdict
from tests.clusters.conftest import run
from tests.patience import PATIENCE, wait_for
from tests.servers.postgresql_ha import PostgreSQLCluster, ask
from tests.servers.proxy import Proxy

JOBS, BEFORE, WORKERS = 1500, 100, 3

#: No unique key: a job that had its effect twice would stand there twice.
EFFECTS = "CREATE TABLE effects (job_id BIGINT, at TIMESTAMPTZ DEFAULT clock_timestamp())"

PROGRAM = """
import sys
from sqlalchemy import text
from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB(sys.argv[1]), "work", concurrency=4, lease=10)

@worker.handles("work")
def work(job):
    with job.transaction() as connection:
        connection.execute(text("INSERT INTO effects (job_id) VALUES (:id)"), {"id": job.id})

worker.run(started=lambda: print("ready", flush=True))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgreSQLCluster]:
    started = PostgreSQLCluster()
    yield started
    started.remove()


@pytest.fixture
def urls(cluster: PostgreSQLCluster) -> list[str]:
    """A migrated database, by its URL on each node of a cluster that is whole."""
    for number in range(len(cluster.nodes)):
        cluster.start(number)
    cluster.wait()
    found = cluster.create_database()
    with QueueDB(found[cluster.primary]) as db:
        db.migrate()
    run(found[cluster.primary], EFFECTS)
    return found


def several(cluster: PostgreSQLCluster, urls: list[str]) -> str:
    """One URL with the addresses of all nodes, that leads to the one that takes changes."""
    nodes = [make_url(url) for url in urls]
    hosts = tuple(f"{node.host}:{node.port}" for node in nodes)
    first = nodes[0]
    url = URL.create(first.drivername, first.username, first.password, database=first.database)
    return url.update_query_dict({"host": hosts, "target_session_attrs": "read-write"}).render_as_string(hide_password=False)


def balanced(cluster: PostgreSQLCluster, urls: list[str]) -> str:
    return cluster.balanced(urls[0])


def tried(verb: Callable[[], Any]) -> Any:
    """What the verb returned, or the error that it raised."""
    try:
        return verb()
    except TransientStorageError as error:
        return error


@pytest.mark.parametrize("address", [several, balanced])
def test_workers_survive_the_loss_of_the_primary_without_a_line_of_code(
    cluster: PostgreSQLCluster,
    urls: list[str],
    address: Callable[[PostgreSQLCluster, list[str]], str],
    record_property: Callable[[str, object], None],
) -> None:
    url = address(cluster, urls)
    old = cluster.primary
    with QueueDB(url) as db:
        queue = db.queue("work")
        command = [sys.executable, "-c", PROGRAM, url]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(WORKERS)]
        said: list[str] = []
        try:
            for worker in workers:
                assert worker.stdout
                assert worker.stdout.readline() == "ready\n"
            ids = queue.enqueue_many([("work", number) for number in range(JOBS)])
            wait_for(lambda: int(ask(urls[old], "SELECT count(*) FROM effects")) >= BEFORE)
            cluster.kill(old)
            new = cluster.primary
            wait_for(lambda: int(ask(urls[new], "SELECT count(DISTINCT job_id) FROM effects")) == JOBS)
            wait_for(lambda: not queue.stats().by_kind)
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            said = [worker.communicate(timeout=PATIENCE)[1] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * WORKERS, "\n".join(said)
    assert new != old
    assert ask(urls[new], "SELECT count(*) FROM effects") == str(len(ids)) == str(JOBS)
    pause = ask(
        urls[new],
        "SELECT round(max(gap), 1) FROM (SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at)) AS gap FROM effects) g",
    )
    record_property("seconds without a job", pause)
    print(f"{address.__name__}: {pause} s without a job")


def looked_up(db: QueueDB, name: str, key: str) -> int:
    """The id of a key's job, which is enqueued now if it is not there."""
    try:
        return db.queue(name).enqueue("new", unique_key=key)
    except DuplicateJobError as duplicate:
        return duplicate.existing_id


def test_what_was_acknowledged_before_a_kill_is_there_and_the_rest_can_be_looked_up(
    cluster: PostgreSQLCluster, urls: list[str], name: str
) -> None:
    old = cluster.primary
    acknowledged: dict[str, int] = {}
    enough = threading.Event()

    def enqueue(number: int) -> tuple[str, Any]:
        for count in itertools.count():
            key = f"{number} {count}"
            answer = tried(lambda key=key: db.queue(name).enqueue("new", unique_key=key))
            if not isinstance(answer, int):
                return key, answer
            acknowledged[key] = answer
            if len(acknowledged) >= BEFORE:
                enough.set()
        raise AssertionError

    with QueueDB(several(cluster, urls)) as db, ThreadPoolExecutor() as threads:
        calls = [threads.submit(enqueue, number) for number in range(4)]
        assert enough.wait(PATIENCE)
        cluster.kill(old)
        assert cluster.primary != old
        doubted = dict(call.result() for call in calls)
        assert all(error.server_away for error in doubted.values()), doubted
        found = {key: looked_up(db, name, key) for key in {*acknowledged, *doubted}}
        assert {key: found[key] for key in acknowledged} == acknowledged
        assert db.queue(name).stats().available == len(found)


def test_what_became_of_commits_that_waited_for_the_standby_can_be_looked_up(
    cluster: PostgreSQLCluster, urls: list[str], name: str
) -> None:
    old = cluster.primary
    with QueueDB(several(cluster, urls)) as db, ThreadPoolExecutor() as threads:
        queue = db.queue(name)
        queue.enqueue("old")
        (held,) = queue.claim(lease=600)
        keys = [f"new {number}" for number in range(4)]
        verbs = [held.complete, *(lambda key=key: queue.enqueue("new", unique_key=key) for key in keys)]
        with cluster.standby_silent():
            calls = [threads.submit(tried, verb) for verb in verbs]
            # A COMMIT with a NOTIFY waits for the one before it, which waits for the standby.
            waits = f"datname = '{make_url(urls[old]).database}' AND wait_event_type IN ('IPC', 'Lock')"
            wait_for(
                lambda: ask(cluster.nodes[old].url(), f"SELECT count(*) FROM pg_stat_activity WHERE {waits}") == str(len(verbs))
            )
            cluster.kill(old)
        answers = [call.result() for call in calls]
        assert all(isinstance(one, TransientStorageError) and one.outcome_unknown for one in answers), answers
        assert cluster.primary != old
        held.complete()  # LOST: it took effect then
        assert len({looked_up(db, name, key) for key in keys}) == len(keys)
        assert {kind: stats.available for kind, stats in queue.stats().by_kind.items()} == {"new": len(keys)}


def test_a_completion_that_only_the_lost_primary_has_is_not_taken_for_one(
    cluster: PostgreSQLCluster, urls: list[str], name: str
) -> None:
    old, new = cluster.primary, 1 - cluster.primary

    def waiting() -> set[str]:
        waits = f"FROM pg_stat_activity WHERE datname = '{make_url(urls[old]).database}' AND wait_event = 'SyncRep'"
        return {*ask(cluster.nodes[old].url(), f"SELECT coalesce(string_agg(pid::text, ' '), '') {waits}").split()}

    with QueueDB(several(cluster, urls)) as db, ThreadPoolExecutor() as threads:
        queue = db.queue(name)
        queue.enqueue("old")
        (held,) = queue.claim(lease=600)
        with cluster.cut_off(old):
            call = threads.submit(tried, held.complete)
            wait_for(waiting)
            (session,) = waiting()
            # Its COMMIT has taken effect there, but on no standby, and gets no answer.
            ask(cluster.nodes[old].url(), f"SELECT pg_terminate_backend({session})")
            wait_for(lambda: call.done() or waiting() - {session})
            wait_for(lambda: ask(urls[new], "SHOW transaction_read_only") == "off")
            cluster.kill(old)
        assert call.result() is not Verdict.APPLIED or not queue.stats().by_kind


def test_an_old_primary_that_comes_back_as_a_standby_is_left(cluster: PostgreSQLCluster, urls: list[str], name: str) -> None:
    old = cluster.primary
    with Proxy.before(urls[old]) as proxy, QueueDB(proxy.url(urls[old])) as db:
        queue = db.queue(name)
        queue.enqueue("before")
        cluster.kill(old)
        new = cluster.primary
        cluster.start(old)
        cluster.wait()
        assert queue.stats().available == 1  # a standby can be read
        refused = tried(lambda: queue.enqueue("refused"))
        assert isinstance(refused, TransientStorageError)
        assert (refused.sqlstate, refused.server_away, refused.outcome_unknown) == ("25006", True, False)
        proxy.lead_to(urls[new])
        queue.enqueue("after")
        assert [job.kind for job in queue.claim(10)] == ["before", "after"]
