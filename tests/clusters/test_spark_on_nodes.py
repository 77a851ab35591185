"""Spark on a standalone cluster with two workers, and a node of the database is killed: the same program goes on, and each job has
its effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from queue_db import QueueDB
from queue_db.database.addresses import Address, parsed, placed
from queue_db.spark.target import target_of
from tests.patience import wait_for
from tests.servers.cluster import Cluster
from tests.servers.galera import Galera
from tests.servers.postgresql_ha import PostgreSQLCluster
from tests.spark.cluster import set_java_home
from tests.spark.kills import faults
from tests.spark.kills.faults import Fault, Round
from tests.spark.kills.programs import PROGRAMS, Count, StreamRead
from tests.spark.kills.rounds import Outcome, play
from tests.spark.kills.world import World

GALERA, POSTGRESQL = "galera", "postgresql-ha"
CLUSTERS: dict[str, Callable[[], Any]] = {GALERA: Galera, POSTGRESQL: PostgreSQLCluster}

#: Program → where the first node dies: before a COMMIT, when the first effects are there.
MOMENTS = {
    "write": Fault(faults.DATABASE, "staging.publish", "inside"),
    "stream-write": Fault(faults.DATABASE, "staging.publish", "inside", 2),
    "stream-feed": Fault(faults.DATABASE, "feeds.publish", "inside", 2),
    "drain": Fault(faults.DATABASE, "complete", "inside", 2),
}


def several(urls: list[str]) -> str:
    """One URL with the addresses of all nodes."""
    found = [make_url(url) for url in urls]
    addresses = [Address(str(url.host), str(url.port)) for url in found]
    return placed(parsed(urls[0])._replace(host=None, port=None), addresses).render_as_string(hide_password=False)


class _Nodes:
    """A cluster in the place of the server of a round."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.urls: list[str] = []

    def create_database(self) -> str:
        self.urls = self._cluster.create_database()
        return several(self.urls)

    def kill(self) -> None:
        """Kill the node that the programs are connected to."""
        self._cluster.kill(self._cluster.writers()[0])

    def start(self) -> None:
        """It is away until the end of the round."""

    def restore(self) -> None:
        """Let it come back."""
        for number in range(len(self._cluster.nodes)):
            self._cluster.start(number)
        self._cluster.wait()

    def remove(self) -> None:
        self._cluster.remove()


class _World(World):
    """The world of the rounds, where a database is a cluster."""

    def server(self, kind: str) -> Any:
        if kind not in self._servers:
            self._servers[kind] = _Nodes(CLUSTERS[kind]())  # type: ignore[assignment]
        return self._servers[kind]


class _Effects(StreamRead):
    """From a queue into a table, row by row; exactly once: by the key of the job."""

    def __init__(self, world: World, one: Round, folder: Path, url: str) -> None:
        super().__init__(world, one, folder, url)
        self._table = f"effects_{one.number}"
        key, self._insert = {"exactly_once": ("PRIMARY KEY", "INSERT IGNORE"), "at_least_once": ("", "INSERT")}[one.guarantee]
        self._do(f"CREATE TABLE {self._table} (job BIGINT {key})")

    def order(self) -> dict[str, Any]:
        nodes = self.world.server(self.round.database).urls
        return {
            "program": "effects",
            "insert": f"{self._insert} INTO {self._table} VALUES (:job)",
            "nodes": nodes,
            **self._reading(),
        }

    def found(self, answer: dict[str, Any]) -> list[int]:
        return [row.job for row in self._do(f"SELECT job FROM {self._table}")]

    def _do(self, statement: str) -> list[Any]:
        def answer(connection: Connection) -> list[Any]:
            result = connection.execute(text(statement))
            return list(result.all()) if result.returns_rows else []

        return self.db.database.run(answer, name="effects")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_World]:
    set_java_home()
    with _World(tmp_path_factory.mktemp("nodes")) as made:
        yield made


@pytest.fixture
def kill(world: _World) -> Callable[[Round], Outcome]:
    """Play a round on a cluster that is whole, and see that its node was killed."""

    def play_it(one: Round) -> Outcome:
        world.server(one.database).restore()
        outcome = play(world, one)
        assert len(outcome.happened) == 1, str(outcome)
        print(outcome)
        return outcome

    return play_it


@pytest.mark.parametrize("program", MOMENTS)
@pytest.mark.parametrize("database", CLUSTERS)
def test_a_program_goes_on_when_its_node_is_killed(kill: Callable[[Round], Outcome], database: str, program: str) -> None:
    # By its number a round on PostgreSQL stages no rows of streams: see below.
    number = 6 * list(MOMENTS).index(program) + {GALERA: 2, POSTGRESQL: 0}[database]
    outcome = kill(Round(number, program, database, (MOMENTS[program],)))
    assert outcome.good, str(outcome)
    assert outcome.count == Count(outcome.count.jobs, lost=0, repeated=0)
    if (program, database) == ("write", POSTGRESQL):
        # Staged rows are not on the standby.
        assert outcome.drivers == 2
        assert "StagingError" in outcome.errors[0], str(outcome)
    else:
        assert (outcome.drivers, outcome.errors) == (1, []), str(outcome)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_effects_by_key_are_there_once_and_others_again(
    kill: Callable[[Round], Outcome], monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """The second one shows that these tests can fail: Spark runs a task again that has had a part of its effects."""
    monkeypatch.setitem(PROGRAMS, "effects", _Effects)
    number = {"exactly_once": 30, "at_least_once": 36}[guarantee]
    killed = Fault(faults.DATABASE, "effect", "after", 50)
    outcome = kill(Round(number, "effects", GALERA, (killed,), guarantee=guarantee))
    assert (outcome.drivers, outcome.errors) == (1, []), str(outcome)
    assert outcome.count
    assert outcome.count.lost == 0
    assert bool(outcome.count.repeated) == (guarantee == "at_least_once"), str(outcome)


def test_a_task_that_begins_during_a_failover_waits_for_its_end(world: _World, name: str) -> None:
    nodes = world.server(POSTGRESQL)
    nodes.restore()
    task = target_of(world.url(POSTGRESQL))
    nodes.kill()
    with task.open() as db:
        assert db.queue(name).enqueue("job")


@pytest.mark.parametrize("cluster", [GALERA], indirect=True, scope="session")
def test_a_task_sees_what_another_node_has_committed_before(cluster: Cluster, urls: list[str], name: str) -> None:
    """The tasks of one query may be connected to other nodes than its driver: here to the first, which is behind."""
    engine = create_engine(urls[0], isolation_level="AUTOCOMMIT")
    waiting = text("SELECT count(*) FROM information_schema.processlist WHERE command = 'Query' AND time_ms > 500")

    def available() -> int:
        with target_of(several(urls)).open() as db:
            return db.queue(name).stats().available

    with engine.connect() as connection, ThreadPoolExecutor() as threads, QueueDB(urls[1]) as db:
        connection.exec_driver_sql("FLUSH TABLES WITH READ LOCK")
        try:
            db.queue(name).enqueue("job")
            task = threads.submit(available)
            wait_for(lambda: task.done() or connection.execute(waiting).scalar_one())
        finally:
            connection.exec_driver_sql("UNLOCK TABLES")
        assert task.result() == 1
    engine.dispose()
