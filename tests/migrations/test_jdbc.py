"""Spark's own JDBC source writes jobs and reads the table, with the two columns that a job needs and plain types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from queue_db import QueueDB
from tests.servers import folders
from tools import debian_packages, java

PACKAGES = ["libpostgresql-jdbc-java", "libmariadb-java"]
JOBS = 50

#: The ways that the documentation tells: kind of server → JDBC address.
WAYS: dict[str, tuple[str, str]] = {
    "postgresql": ("postgresql", "jdbc:postgresql://{address}"),
    "mysql": ("mysql", "jdbc:mysql://{address}?permitMysqlScheme=true&allowPublicKeyRetrieval=true"),
    "mariadb": ("mariadb", "jdbc:mysql://{address}?permitMysqlScheme=true"),
    # For this scheme Spark quotes names in a way that the server takes for texts, unless the server is told to understand it.
    "mariadb, its own scheme": ("mariadb", "jdbc:mariadb://{address}?sessionVariables=sql_mode='ANSI_QUOTES'"),
}

DRIVERS = {"postgresql": "org.postgresql.Driver", "mysql": "org.mariadb.jdbc.Driver", "mariadb": "org.mariadb.jdbc.Driver"}


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
def seen(jars: list[str], queues: dict[str, str], shared_urls: Callable[[str], str]) -> dict[str, Any]:
    """What one Spark program saw on its way to each database."""
    ways = {}
    for way, (kind, address) in WAYS.items():
        url = make_url(shared_urls(kind))
        ways[way] = {
            "url": address.format(address=f"{url.host}:{url.port}/{url.database}"),
            "properties": properties(kind, url),
            "queue": queues[way],
            "jobs": JOBS,
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


def properties(kind: str, url: URL) -> dict[str, str]:
    return {"user": str(url.username), "password": str(url.password), "driver": DRIVERS[kind]}


@pytest.mark.parametrize("way", WAYS)
def test_appended_rows_are_jobs(way: str, seen: dict[str, Any], queues: dict[str, str], shared_urls: Callable[[str], str]) -> None:
    assert seen[way]["rows"] == seen[way]["due"] == JOBS
    with QueueDB(shared_urls(WAYS[way][0])) as db:
        jobs = db.queue(queues[way]).claim(JOBS + 1)
        assert sorted(job.payload["n"] for job in jobs) == list(range(JOBS))
        assert {(job.kind, job.payload["text"], job.attempts, job.priority) for job in jobs} == {
            ("default", "\N{GRINNING FACE}", 1, 0)
        }
        assert all(db.queue(queues[way]).complete_many(jobs))


@pytest.mark.parametrize("way", WAYS)
def test_the_table_is_read_with_plain_types(way: str, seen: dict[str, Any], queues: dict[str, str]) -> None:
    types = seen[way]["types"]
    assert {name for name, kind in types.items() if kind == "bigint"} == {"id", "available_at", "due_at", "version", "created_at"}
    assert {name for name, kind in types.items() if kind == "int"} == {"priority", "attempts", "max_attempts", "delete_mark"}
    texts = {name for name, kind in types.items() if kind == "string" or kind.startswith("varchar")}
    assert texts == {"queue", "kind", "payload", "headers", "unique_key", "claim_token", "worker", "last_error"}
    first = seen[way]["first"]
    assert (first["queue"], first["kind"], first["version"], first["claim_token"]) == (queues[way], "default", 0, None)
    assert json.loads(first["payload"])["text"] == "\N{GRINNING FACE}"
