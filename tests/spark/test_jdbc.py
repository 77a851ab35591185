"""Spark's own JDBC source writes jobs and reads the table, with the two columns that a job needs and plain types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from queue_db import QueueDB
from queue_db.spark.jdbc import JDBC, jdbc_options
from tests.servers import folders, over_tls
from tools import debian_packages, java

pytestmark = pytest.mark.rest("TestEnqueue has a row that SQL inserted, test_spark_jdbc_options.py the options")

PACKAGES = ["libpostgresql-jdbc-java", "libmariadb-java"]
JOBS = 50

#: The ways that the documentation tells → the kind of server.
WAYS = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mariadb",
    "mariadb, its own scheme": "mariadb",
    "postgresql, awkward": "postgresql",
    "mysql, awkward": "mysql",
    "mariadb, awkward": "mariadb",
}

#: Columns that MySQL and MariaDB compute for indexes.
COMPUTED = {"unique_queue", "grouped_queue", "grouped_at"}

#: What has a meaning in URLs, in SQL, or in no ASCII. The driver for MySQL and MariaDB takes no database with a question mark.
USER = "u s@:/%&?+ü"
PASSWORD = "p w@:/%&?#+ü€"
DATABASE = {"postgresql": "d b@:/%&?#+ü", "mysql": "d b@:/%&#+ü", "mariadb": "d b@:/%&#+ü"}


@pytest.fixture(scope="module")
def jars() -> list[str]:
    """The drivers, from packages unpacked into the cache."""
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"jdbc-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", PACKAGES)
    found = [tree / "usr/share/java" / name for name in ("postgresql.jar", "mariadb-java-client.jar")]
    return [str(jar.resolve(strict=True)) for jar in found]


@pytest.fixture(scope="module")
def queues() -> dict[str, str]:
    return {way: f"q-{uuid.uuid4().hex[:12]}" for way in WAYS}


@pytest.fixture(scope="module")
def homes(shared_urls: Callable[[str], str]) -> Iterator[dict[str, str]]:
    """The database at the end of each way."""
    urls = {way: shared_urls(kind) for way, kind in WAYS.items()}
    awkward = [way for way in WAYS if way.endswith("awkward")]
    for way in awkward:
        kind = WAYS[way]
        if kind == "postgresql":
            rights = (
                f'GRANT ALL ON ALL TABLES IN SCHEMA public TO "{USER}"; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO "{USER}"'
            )
            say(
                urls[way],
                f'CREATE DATABASE "{DATABASE[kind]}" TEMPLATE template0',
                f"CREATE ROLE \"{USER}\" LOGIN PASSWORD '{PASSWORD}'",
            )
        else:
            rights = f"GRANT ALL ON `{DATABASE[kind]}`.* TO '{USER}'@'%'"
            say(urls[way], f"CREATE DATABASE `{DATABASE[kind]}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
            say(urls[way], f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL")
        urls[way] = make_url(urls[way]).set(database=DATABASE[kind]).render_as_string(hide_password=False)
        with QueueDB(urls[way]) as db:
            db.migrate()
        say(urls[way], rights)
    yield urls
    for way in awkward:
        kind = WAYS[way]
        if kind == "postgresql":
            say(shared_urls(kind), f'DROP DATABASE "{DATABASE[kind]}" WITH (FORCE)', f'DROP ROLE "{USER}"')
        else:
            say(shared_urls(kind), f"DROP DATABASE `{DATABASE[kind]}`", f"DROP USER '{USER}'@'%'")


def say(url: str, *statements: str) -> None:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))  # one alone would be the place of a value


def options(way: str, home: str) -> JDBC:
    """What Spark is told: one way by hand, the others from the URL that a Python program would use."""
    if way == "mariadb, its own scheme":
        # For this scheme Spark quotes names in a way that the server takes for texts, unless the server is told to understand it.
        url = make_url(home)
        properties = {"user": str(url.username), "password": str(url.password), "driver": "org.mariadb.jdbc.Driver"}
        place = f"jdbc:mariadb://{url.host}:{url.port}/{url.database}?sessionVariables=sql_mode='ANSI_QUOTES'"
        return JDBC(place, properties["driver"], properties)
    if way.endswith("awkward"):
        url = make_url(over_tls(home)).set(username=USER, password=PASSWORD)
        if WAYS[way] != "postgresql":
            url = url.update_query_dict({"ssl_check_hostname": "false"})  # TLS, with any certificate
        return jdbc_options(url.render_as_string(hide_password=False))
    return jdbc_options(home)


@pytest.fixture(scope="module")
def seen(jars: list[str], queues: dict[str, str], homes: dict[str, str]) -> dict[str, Any]:
    """What one Spark program saw on its way to each database."""
    given = {way: options(way, home) for way, home in homes.items()}
    ways = {
        way: {
            "url": one.url,
            "properties": one.properties,
            "queue": queues[way],
            "jobs": JOBS,
            "schema": "public" if WAYS[way] == "postgresql" else make_url(homes[way]).database,
        }
        for way, one in given.items()
    }
    # A process of its own: drivers must be there when its Java starts.
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("jdbc_program.py"), *jars],
        env=os.environ
        | {"JAVA_HOME": java.find() or java.install(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        input=json.dumps(ways),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", WAYS)
def test_appended_rows_are_jobs(way: str, seen: dict[str, Any], queues: dict[str, str], homes: dict[str, str]) -> None:
    assert seen[way]["rows"] == seen[way]["due"] == JOBS
    with QueueDB(homes[way]) as db:
        jobs = db.queue(queues[way]).claim(JOBS + 1)
        assert sorted(job.payload["n"] for job in jobs) == list(range(JOBS))
        assert {(job.kind, job.payload["text"], job.attempts, job.priority) for job in jobs} == {
            ("default", "\N{GRINNING FACE}", 1, 0)
        }
        assert all(db.queue(queues[way]).complete_many(jobs))


@pytest.mark.parametrize("way", WAYS)
def test_the_table_is_read_with_plain_types(way: str, seen: dict[str, Any], queues: dict[str, str]) -> None:
    types = seen[way]["types"]
    whole = {"id", "available_at", "due_at", "version", "created_at", "callback_id", "unknown_since"}
    assert {name for name, kind in types.items() if kind == "bigint"} - COMPUTED == whole
    assert {name for name, kind in types.items() if kind == "int"} == {"priority", "attempts", "max_attempts", "delete_mark"}
    texts = {name for name, kind in types.items() if kind == "string" or kind.startswith("varchar")}
    assert texts - COMPUTED == {
        "queue",
        "kind",
        "payload",
        "headers",
        "unique_key",
        "claim_token",
        "worker",
        "last_error",
    } | {
        "group_key",
        "progress_note",
        "padding",
    }
    assert {name for name, kind in types.items() if kind == "double"} == {"progress"}
    first = seen[way]["first"]
    assert (first["queue"], first["kind"], first["version"], first["claim_token"]) == (queues[way], "default", 0, None)
    assert json.loads(first["payload"])["text"] == "\N{GRINNING FACE}"


@pytest.mark.parametrize("way", WAYS)
def test_an_append_that_is_run_twice_is_refused_by_unique_keys(
    way: str, seen: dict[str, Any], homes: dict[str, str], queues: dict[str, str]
) -> None:
    assert seen[way]["keyed"] == JOBS
    (refusal,) = seen[way]["refusals"]
    assert "duplicate" in refusal.lower()
    assert '"text"' not in refusal  # payloads have no place in messages
    with QueueDB(homes[way]) as db:
        queue = db.queue(f"{queues[way]}-keyed")
        jobs = queue.claim(JOBS + 1)
        assert sorted(int(job.unique_key or "") for job in jobs) == list(range(JOBS))
        assert all(queue.complete_many(jobs))


@pytest.mark.parametrize("way", WAYS)
def test_the_catalog_of_spark_counts_in_the_database(way: str, seen: dict[str, Any]) -> None:
    assert seen[way]["catalog"]["counts"] == [["default", JOBS]]
    if way != "mariadb, its own scheme":  # Spark takes that database for one that it does not know
        assert seen[way]["catalog"]["pushed"]
