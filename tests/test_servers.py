"""The ground under the suite: private servers and the breaking proxy do what the other tests rely on."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from tests.conftest import server_of
from tests.patience import PATIENCE
from tests.servers import NotPrivate, Server, ServerFailed, ServerMissing, folders, over_tls, processes, provide
from tests.servers.lookup import PROGRAMS
from tests.servers.proxy import Proxy

KINDS = tuple(PROGRAMS)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    started = provide(request.param)
    yield started
    started.remove()


@pytest.fixture
def postgresql() -> Iterator[Server]:
    started = provide("postgresql")
    yield started
    started.remove()


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    url = server.create_database()
    yield url
    server.drop_database(url)


def ask(url: str, *statements: str, **connect_args: Any) -> Any:
    """Run statements in one transaction on a new connection; return the first value of the last answer."""
    engine = create_engine(url, poolclass=NullPool, connect_args=connect_args)
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
        return result.scalar() if result.returns_rows else None


def test_it_answers_and_says_what_it_is(server: Server, database: str) -> None:
    assert ask(database, "SELECT 1") == 1
    assert server.describe().startswith(f"{server.kind} {server.version} from ")
    assert server.version[0].isdigit()


def test_a_wrong_password_is_refused(database: str) -> None:
    wrong = make_url(over_tls(database)).set(password="wrong").render_as_string(hide_password=False)
    with pytest.raises(OperationalError, match=r"(?i)password|denied"):
        ask(wrong, "SELECT 1")


def test_names_keep_their_case_and_any_character(server: Server, database: str) -> None:
    ask(
        database,
        "CREATE TABLE t (name VARCHAR(20) PRIMARY KEY)",
        "INSERT INTO t VALUES ('a'), ('A'), ('\N{GRINNING FACE}')",
    )
    assert ask(database, "SELECT count(*) FROM t WHERE name = '\N{GRINNING FACE}'") == 1


def test_a_killed_server_keeps_what_was_committed(server: Server, database: str) -> None:
    ask(database, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    before = server.pid
    server.kill()
    with pytest.raises(OperationalError):
        ask(database, "SELECT 1")
    server.start()
    assert server.pid != before
    assert ask(database, "SELECT count(*) FROM t") == 3


def test_a_stopped_server_comes_back(server: Server, database: str) -> None:
    server.stop()
    with pytest.raises(ServerFailed):
        print(server.pid)
    server.start()
    assert ask(database, "SELECT 1") == 1


def test_two_servers_side_by_side() -> None:
    plain, picky = provide("mariadb"), provide("mariadb", options=["--innodb-lock-wait-timeout=7"])
    try:
        assert ask(picky.url(), "SELECT @@innodb_lock_wait_timeout") == 7
        assert ask(plain.url(), "SELECT @@innodb_lock_wait_timeout") != 7
    finally:
        plain.remove()
        picky.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_only_on_request_a_server_does_not_wait_for_its_disk(kind: str) -> None:
    setting = "SHOW fsync" if kind == "postgresql" else "SELECT @@innodb_flush_log_at_trx_commit"
    for durable, expected in ((None, {"on", "1"}), (False, {"off", "0"})):
        server = provide(kind) if durable is None else provide(kind, durable=durable)
        try:
            assert str(ask(server.create_database(), setting)) in expected
        finally:
            server.remove()


def test_a_server_that_cannot_start_shows_its_log() -> None:
    # A release or a folder that the environment names is the only source; otherwise all sources have failed.
    with pytest.raises((ServerMissing, ServerFailed), match="no_such_setting"):
        provide("postgresql", options=["-c", "no_such_setting=1"])


def test_a_server_that_cannot_start_is_not_started_again_for_each_test() -> None:
    raised = []
    for _ in range(2):
        with pytest.raises((ServerMissing, ServerFailed)) as failed:
            server_of("postgresql", "-c", "no_such_setting=1")
        raised.append(failed.value)
    assert raised[0] is raised[1]


def test_a_removed_postgresql_gives_its_shared_memory_back() -> None:
    """The machine has 4096 segments, and a killed server leaves its own."""

    def segments(pid: int) -> list[str]:
        listed = subprocess.run(["ipcs", "-m", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
        return [line for line in listed.splitlines() if str(pid) in line.split()]

    server = provide("postgresql", durable=False)
    pid = server.pid
    try:
        assert len(segments(pid)) == 1
    finally:
        server.remove()
    assert segments(pid) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_server_names_the_fix(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"QUEUE_DB_TEST_{'POSTGRES' if kind == 'postgresql' else kind.upper()}"
    monkeypatch.delenv(f"{name}_URL", raising=False)
    monkeypatch.setenv(f"{name}_BIN", "/nowhere")
    with pytest.raises(ServerMissing) as missing:
        provide(kind)
    message = str(missing.value)
    assert "/nowhere" in message
    assert "apt-get install" in message
    assert f"{name}_URL" in message


def test_a_running_server_is_used_but_never_ended(postgresql: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_TEST_POSTGRES_URL", postgresql.url())
    other = provide("postgresql")
    url = other.create_database()
    assert ask(url, "SELECT 1") == 1
    for forbidden in (other.kill, other.stop, other.start, lambda: other.pid):
        with pytest.raises(NotPrivate):
            forbidden()
    other.remove()
    with pytest.raises(OperationalError, match="does not exist"):
        ask(url, "SELECT 1")
    postgresql.stop()
    with pytest.raises(ServerFailed, match="does not answer"):
        provide("postgresql")


def test_the_command_line_ends_its_servers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.servers", "start", "postgresql"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=without_fixed_servers()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        assert ask(url, "SELECT 1") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    with pytest.raises(OperationalError):
        ask(url, "SELECT 1")


def test_a_command_has_the_server_that_its_processes_share() -> None:
    program = "import os; from tests.servers import provide; print(provide('postgresql').source)"
    command = [sys.executable, "-m", "tests.servers", "share", "postgresql", "--"]
    done = subprocess.run([*command, sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["QUEUE_DB_TEST_POSTGRES_URL"]
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 2


@pytest.mark.parametrize(
    ("end", "value", "status", "says"),
    [("URL", "postgresql+psycopg2://u@127.0.0.1:1/x", 1, "does not answer"), ("BIN", "/nowhere", 0, "Not tested on postgresql ")],
)
def test_an_oldest_release_that_fails_is_red_and_one_that_cannot_be_had_is_said(
    end: str, value: str, status: int, says: str
) -> None:
    command = [sys.executable, "-m", "tests.servers", "oldest", "postgresql", "--", sys.executable, "-c", "print('ran')"]
    environment = without_fixed_servers() | {f"QUEUE_DB_TEST_POSTGRES_{end}": value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert says in done.stderr


def test_a_killed_owner_leaves_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    # Folders of a name of their own: another process of the suite may sweep at any time.
    monkeypatch.setattr(folders, "PREFIX", f"{folders.PREFIX}-{os.getpid()}")
    program = (
        "from tests.servers import folders; from tests.servers.__main__ import main\n"
        f"folders.PREFIX = {folders.PREFIX!r}; main(['start', 'postgresql'])"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=without_fixed_servers()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        process.kill()
        process.wait(PATIENCE)
    try:
        assert ask(url, "SELECT 1") == 1  # its server lives on, an orphan …
    finally:
        folders.sweep()  # … until the next run begins
    with pytest.raises(OperationalError):
        ask(url, "SELECT 1")


def without_fixed_servers() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("QUEUE_DB_TEST_")}


def test_this_process_is_known_by_its_start() -> None:
    assert processes.start_time(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert processes.start_time(ended.pid) == ""


# The proxy.


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    with Proxy.before(database) as between:
        yield between


@pytest.fixture
def connect(server: Server, database: str, proxy: Proxy) -> Callable[..., Any]:
    """Return what opens a connection through the proxy, readable for it: ``connect(seconds)``."""
    ask(database, "SELECT 1")  # MySQL lets a password in without TLS only once it has seen it with TLS

    def run(seconds: float = PATIENCE) -> Any:
        own = {} if server.kind == "postgresql" else {"ssl_disabled": True, "read_timeout": seconds}
        arguments = {"connect_timeout": int(seconds), **own}
        return create_engine(proxy.url(database), poolclass=NullPool, connect_args=arguments).connect()

    return run


def test_the_proxy_forwards_cuts_and_refuses(proxy: Proxy, connect: Callable[..., Any]) -> None:
    with connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
        assert len(connection.execute(text("SELECT repeat('x', 3000000)")).scalar()) == 3_000_000
        assert proxy.cut() == 1
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT 1"))
    proxy.refuse()
    with pytest.raises(OperationalError):
        connect()
    proxy.forward()
    with connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_the_proxy_is_a_black_hole(server: Server, proxy: Proxy, connect: Callable[..., Any]) -> None:
    proxy.silence()
    with pytest.raises(OperationalError):
        connect(2)
    proxy.forward()
    with connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_a_commit_whose_answer_is_lost_is_done_all_the_same(database: str, proxy: Proxy, connect: Callable[..., Any]) -> None:
    ask(database, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with connect() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        proxy.swallow("COMMIT")
        with pytest.raises(DBAPIError):
            connection.commit()
    assert proxy.wait_swallowed()
    assert ask(database, "SELECT count(*) FROM t") == 1
    with connect() as connection:  # it was for one commit only
        connection.execute(text("INSERT INTO t VALUES (2)"))
        connection.commit()
    assert ask(database, "SELECT count(*) FROM t") == 2


def test_a_commit_that_does_not_arrive_is_rolled_back(database: str, proxy: Proxy, connect: Callable[..., Any]) -> None:
    ask(database, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with connect() as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        proxy.drop("COMMIT")
        with pytest.raises(DBAPIError):
            connection.commit()
    with connect() as connection:  # it was for one commit only
        connection.execute(text("INSERT INTO t VALUES (2)"))
        connection.commit()
    assert ask(database, "SELECT id FROM t") == 2
