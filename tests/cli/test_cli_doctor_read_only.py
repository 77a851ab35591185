"""``queue-db doctor`` on a database that takes no changes: one sentence with what to do, in place of a GRANT for each table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from queue_db import QueueDB
from tests.cli.harness import Ask
from tests.servers import Server, over_tls, provide

REFUSES = "the database refuses to change anything: "


def problems(ask_at: Ask, url: str) -> list[str]:
    found: list[str] = ask_at(url, "doctor", "--json", status=1).record["problems"]
    return found


def run(server: Server, *statements: str) -> str:
    """Run the statements as the administrator, and return the first value of the last one."""
    engine = create_engine(over_tls(server.url()), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        results = [connection.exec_driver_sql(statement) for statement in statements]
        found = str(results[-1].scalar()) if results[-1].returns_rows else ""
    engine.dispose()
    return found


@pytest.fixture
def own_server(kind: str) -> Iterator[Server]:
    server = provide(kind)
    try:
        yield server
    finally:
        server.remove()


@pytest.mark.parametrize("kind", ["postgresql"])
def test_of_a_standby(ask_at: Ask, own_server: Server) -> None:
    url = own_server.create_database()
    ask_at(url, "migrate")
    folder = run(own_server, "SHOW data_directory")
    own_server.stop()
    (Path(folder) / "standby.signal").touch()
    own_server.start()
    assert run(own_server, "SELECT pg_is_in_recovery()") == "True"
    (problem,) = problems(ask_at, url)
    assert problem.startswith(f"{REFUSES}cannot execute UPDATE in a read-only transaction; connect to the primary (")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_of_a_read_only_server(ask_at: Ask, own_server: Server) -> None:
    url = own_server.create_database()
    ask_at(url, "migrate")
    # read_only does not bind an administrator.
    run(own_server, "CREATE USER worker IDENTIFIED BY 'Worker-7x'", f"GRANT ALL ON {make_url(url).database}.* TO worker")
    run(own_server, "SET GLOBAL read_only = 1")
    account = make_url(over_tls(url)).set(username="worker", password="Worker-7x")
    (problem,) = problems(ask_at, account.render_as_string(hide_password=False))
    assert problem.startswith(REFUSES)
    assert "read-only" in problem
    assert problem.endswith("; connect to the primary, or switch read_only off")


def test_of_a_read_only_file(ask_at: Ask, tmp_path: Path) -> None:
    with QueueDB(f"sqlite:///{tmp_path}/q.db") as db:
        db.migrate()
    (problem,) = problems(ask_at, f"sqlite:///file:{tmp_path}/q.db?mode=ro&uri=true")
    assert problem.startswith(f"{REFUSES}attempt to write a readonly database; let this user write to the file and to its folder")


@pytest.mark.parametrize("kind", ["postgresql"])
def test_of_a_primary_whose_commits_wait_for_a_standby_or_for_nothing(ask_at: Ask, own_server: Server) -> None:
    url = own_server.create_database()
    ask_at(url, "migrate")
    run(own_server, "ALTER SYSTEM SET synchronous_standby_names = 'other'", "SELECT pg_reload_conf()")
    (problem,) = problems(ask_at, url)
    assert problem == "no standby of synchronous_standby_names='other' is connected: a COMMIT waits until one is"
    run(own_server, "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
    (warning,) = [one for one in ask_at(url, "doctor", "--json").record["warnings"] if "synchronous_commit" in one]
    assert warning.startswith("synchronous_commit=off: a crash of the server loses the last commits")
