"""The grants of the guide: what each role does works with them, and without any one of them something fails that names it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError

from queue_db import ConfigurationError, PermanentStorageError, QueueDB, SchemaOutOfDateError, State
from queue_db.service import Settings
from queue_db.worker import Worker
from tests.cli.harness import Ask
from tests.guide.page import statements
from tests.patience import PATIENCE
from tests.servers import over_tls
from tests.service.conftest import serving

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")

ROLES = ("queue_migrator", "queue_worker", "queue_reader")
REFUSED = (PermanentStorageError, ConfigurationError, SchemaOutOfDateError)


@dataclass(frozen=True)
class Roles:
    """A database whose roles are those of the guide, under names of their own."""

    kind: str
    url: str
    schema: str | None
    suffix: str

    def name(self, role: str) -> str:
        return role.removeprefix("queue_") + self.suffix

    def of(self, role: str) -> str:
        """The URL of a role."""
        url = make_url(over_tls(self.url)).set(username=self.name(role), password="Role-7x")
        return url.render_as_string(hide_password=False)

    def open(self, role: str) -> QueueDB:
        return QueueDB(self.of(role), schema=self.schema)

    def administrate(self, *commands: str) -> None:
        """Execute statements of the guide as an administrator."""
        for command in commands:
            _execute(self.url, self.translated(command))

    def translated(self, command: str) -> str:
        for role in ROLES:
            command = re.sub(rf"\b{role}\b", self.name(role), command)
        if self.kind != "postgresql":
            command = re.sub(r"\bqueue\.", f"{make_url(self.url).database}.", command)
        return re.sub(r"\bLOGIN\b", "LOGIN PASSWORD 'Role-7x'", command).replace("'…'", "'Role-7x'")


def _execute(url: str, *commands: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for command in commands:
                connection.exec_driver_sql(command.replace("%", "%%"))
    finally:
        engine.dispose()


@pytest.fixture
def roles(kind: str, fresh_url: str) -> Iterator[Roles]:
    """The roles before the first migration."""
    postgresql = kind == "postgresql"
    made = Roles(kind, fresh_url, "queue" if postgresql else None, f"_{uuid.uuid4().hex[:8]}")
    every = statements("-- PostgreSQL: before" if postgresql else "-- MySQL, MariaDB:")
    made.administrate(*(one for one in every if not one.startswith("CREATE DATABASE")))  # the test has one
    yield made
    for role in ROLES:
        owned = [f"DROP OWNED BY {role} CASCADE"] if postgresql else []
        made.administrate(*owned, f"DROP USER {role}")


@pytest.fixture
def migrated(roles: Roles) -> Roles:
    with roles.open("queue_migrator") as db:
        db.migrate()
    if roles.kind == "postgresql":
        roles.administrate(*statements("-- PostgreSQL: after"))
    return roles


def works(roles: Roles) -> None:
    """What workers, programs and the service do."""
    with roles.open("queue_worker") as db:
        name = f"q-{uuid.uuid4().hex[:8]}"
        queue = db.queue(name)
        queue.enqueue("done", unique_key="u", unique_for=60)
        queue.enqueue_many([("done", number, {"group": "g"}) for number in range(2)])
        queue.enqueue_batch([("done", 1), ("done", 2)], then=("done", None))
        dead = queue.enqueue("fails", max_attempts=1)
        (job,) = queue.claim()
        assert job.complete()
        db.schedules.set(name, name, "done", every=3600)
        db.schedules.run_now(name)
        worker = Worker(db, name, result_ttl=60)
        worker.handles("done")(lambda job: job.progress(0.5) and None)

        @worker.handles("fails")
        def fails(job: object) -> None:
            raise ValueError("no")

        assert worker.run(until_empty=True).completed == 6
        assert db.counters.unregistered == 0
        assert db.get(dead).state is State.DEAD
        assert db.dead.redrive(dead) == [dead]
        assert queue.cancel(dead)
        feed = db.feed(name)
        feed.publish_many([("n", number) for number in range(3)])
        with feed.cursor("reader") as cursor:
            for message in cursor.follow(idle=0):
                assert cursor.ack(message)
        db.prune()
        with serving(db, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as client:
            assert client.post(f"/api/v1/queues/{name}/jobs", json={"kind": "done"}).is_success
            assert client.get("/").is_success
        db.queue(name).purge()
        db.schedules.remove(name)


def reads(roles: Roles) -> None:
    """What a dashboard in another program, KEDA or a person reads."""
    with roles.open("queue_reader") as db:
        db.check()
        db.queue("mail").stats()
        for listed in (db.queues, db.workers, db.failures, db.finished_jobs, db.schedules.list, db.feeds.list, db.dead.list):
            listed()


def refused(act: Callable[[], object], what: str = "it") -> str:
    """What refuses it."""
    try:
        act()
    except (*REFUSED, DBAPIError) as error:
        return str(error)
    pytest.fail(f"{what} was not refused")


def test_each_role_does_its_work(migrated: Roles, ask_at: Ask) -> None:
    works(migrated)
    reads(migrated)
    place = ("--schema", migrated.schema) if migrated.schema else ()
    assert ask_at(migrated.of("queue_worker"), "doctor", "--json", *place).record["problems"] == []
    assert ask_at(migrated.of("queue_worker"), "prune", *place)
    assert ask_at(migrated.of("queue_reader"), "queues", "list", *place)
    with migrated.open("queue_migrator") as db:
        db.migrate(revision="base")


def test_a_worker_changes_no_tables_and_a_reader_changes_nothing(migrated: Roles) -> None:
    place = f"{migrated.schema}." if migrated.schema else ""
    changes = ["CREATE TABLE {}more (id INTEGER)", "ALTER TABLE {}jobs ADD more INTEGER", "DROP TABLE {}jobs_dead"]
    changes += ["CREATE INDEX more ON {}jobs (kind)", "TRUNCATE TABLE {}jobs"]
    for role in ("queue_worker", "queue_reader"):
        for change in changes:
            refused(lambda role=role, change=change: _execute(migrated.of(role), change.format(place)))
        with migrated.open(role) as db:
            refused(lambda db=db: db.migrate(revision="base"))
    if migrated.kind == "postgresql":  # the others grant on a whole database
        version = f"UPDATE {place}jobs_schema_version SET version_num = '0001'"
        assert "permission denied" in refused(lambda: _execute(migrated.of("queue_worker"), version))
    with migrated.open("queue_worker") as db:
        db.queue("mail").enqueue("k")
        tables = list(db.store.tables.metadata.tables)
    with migrated.open("queue_reader") as db:
        refused(lambda: db.queue("mail").enqueue("k"))
        refused(lambda: db.queue("mail").claim())
    for table in tables:
        refused(lambda table=table: _execute(migrated.of("queue_reader"), f"DELETE FROM {table}"))


#: Role → what it needs. A grant that could be taken away without a failure would be one too many.
NEEDED = {
    "postgresql": {
        "queue_worker": [
            *(f"{verb} ON ALL TABLES IN SCHEMA queue" for verb in ("SELECT", "INSERT", "UPDATE", "DELETE")),
            "USAGE ON ALL SEQUENCES IN SCHEMA queue",
            "USAGE ON SCHEMA queue",
        ],
        "queue_reader": ["SELECT ON ALL TABLES IN SCHEMA queue", "USAGE ON SCHEMA queue"],
    },
    "mysql": {
        "queue_worker": [f"{verb} ON queue.*" for verb in ("SELECT", "INSERT", "UPDATE", "DELETE")],
        "queue_reader": ["SELECT ON queue.*"],
    },
}


def test_without_any_one_grant_something_fails_that_names_it(migrated: Roles) -> None:
    needed = NEEDED.get(migrated.kind, NEEDED["mysql"])
    for role, acts in (("queue_worker", works), ("queue_reader", reads)):
        granted = {word for one in needed[role] for word in re.findall(r"^[A-Z]+", one)}
        page = " ".join(one for one in statements(_BLOCKS[migrated.kind]) if one.endswith(f"TO {role}"))
        assert granted == set(re.findall(r"\b(?:SELECT|INSERT|UPDATE|DELETE|USAGE|CREATE|ALTER|INDEX|DROP)\b", _given(page)))
        for grant in needed[role]:
            migrated.administrate(f"REVOKE {grant} FROM {role}")
            said = refused(lambda acts=acts: acts(migrated))
            assert re.search(r"denied|tables .* missing|no tables|queue-db migrate", said), (role, grant, said)
            migrated.administrate(f"GRANT {grant} TO {role}")
        if migrated.kind == "postgresql" and role == "queue_worker":
            migrated.administrate(*statements("-- PostgreSQL: after"))
        acts(migrated)


_BLOCKS = {"postgresql": "-- PostgreSQL: before", "mysql": "-- MySQL, MariaDB:", "mariadb": "-- MySQL, MariaDB:"}


def _given(page: str) -> str:
    """The words of grants, without those of ALTER DEFAULT PRIVILEGES."""
    return re.sub(r"ALTER DEFAULT PRIVILEGES", "", page)


def test_a_migration_needs_each_of_its_grants(roles: Roles) -> None:
    """Of MySQL and MariaDB; on PostgreSQL the schema and its tables belong to the role."""
    if roles.kind == "postgresql":
        roles.administrate("ALTER SCHEMA queue OWNER TO CURRENT_USER")
        with roles.open("queue_migrator") as db:
            assert "permission denied" in refused(db.migrate)
        roles.administrate("ALTER SCHEMA queue OWNER TO queue_migrator")
    else:
        (grant,) = [one for one in statements(_BLOCKS[roles.kind]) if one.endswith("TO queue_migrator")]
        verbs = grant.removeprefix("GRANT ").partition(" ON ")[0].split(", ")
        for verb in sorted(verbs, key=lambda verb: (verb == "DELETE", "VIEW" not in verb)):  # the last leaves most behind
            roles.administrate(f"REVOKE {verb} ON queue.* FROM queue_migrator")
            with roles.open("queue_migrator") as db:
                said = refused(lambda db=db: (db.migrate(), db.migrate(revision="base")), f"without {verb}")
                assert f"{verb} command denied" in said, (verb, said)
            roles.administrate(f"GRANT {verb} ON queue.* TO queue_migrator")
            if "VIEW" in verb:  # the next begins with nothing
                with roles.open("queue_migrator") as db:
                    db.migrate()
                    db.migrate(revision="base")
    with roles.open("queue_migrator") as db:
        db.migrate()
        db.check()
