"""``queue-db serve``, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg2
import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from queue_db import QueueDB, __version__
from queue_db.cli.app import app
from queue_db.cli.lasting import started
from queue_db.service import Settings
from queue_db.service.cli import _note_access
from queue_db.service.http.requests import Service
from queue_db.tokens.tokens import SCOPES, Tokens
from tests.patience import PATIENCE, wait_for
from tests.servers.proxy import Proxy
from tests.service.reverse_proxy import proxying


class Served:
    """A running service: what it has printed first, and how it ends."""

    def __init__(self, url: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "queue_db", "serve", "--port", "0", "--json", *options],
            env={**os.environ, "QUEUE_DB_URL": url, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.end(signal.SIGTERM)
        self.printed = json.loads(line)
        self.url: str = self.printed["url"]
        self.pid = self._process.pid

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and standard error."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            _, err = self._process.communicate(timeout=PATIENCE)
        finally:
            self._process.kill()
        return self._process.returncode, err


@pytest.fixture
def start() -> Iterator[Callable[..., Served]]:
    with ExitStack() as stack:

        def served(url: str, *options: str) -> Served:
            found = Served(url, *options)
            stack.callback(found.end)
            return found

        yield served


def get(url: str, path: str, secret: str | None = None, **options: Any) -> httpx2.Response:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return httpx2.get(url + path, headers=headers, timeout=PATIENCE, **options)


def test_an_empty_file_is_enough(start: Callable[..., Served], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    first = start(url)
    # It says who it is before it is asked, and serves at once.
    page = get(first.url, "", follow_redirects=True)
    assert page.url.path == "/login"
    assert page.status_code == 200
    assert get(first.url, "api/v1/queues").status_code == 401
    status, err = first.end()
    assert (status, "Traceback" in err) == (0, False)
    (secret,) = re.findall(r"qdb_\S+", err)
    assert "a new file" in err

    second = start(url)
    assert get(second.url, "api/v1/queues", secret).json()["queues"] == []
    status, err = second.end(signal.SIGINT)
    assert status == 130
    assert "qdb_" not in err
    assert "Traceback" not in err
    with QueueDB(url) as db:
        (token,) = db.tokens.list()
    assert set(token.scopes) == set(SCOPES)


@pytest.mark.rest("tests/service/test_service_security.py has both")
def test_open_and_read_only(start: Callable[..., Served], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
    served = start(url, "--open", "--read-only")
    assert (served.printed["open"], served.printed["read_only"]) == (True, True)
    assert get(served.url, "api/v1/queues").status_code == 200
    assert get(served.url, "api/v1/queues", follow_redirects=True).status_code == 200
    _, err = served.end()
    assert "the service is open" in err
    assert "qdb_" not in err


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_says_how_it_started_and_why_it_ended(start: Callable[..., Served], tmp_path: Path, log_format: str) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
    served = start(url, "--open", "--log-format", log_format)
    assert get(served.url, "api/v1/queues").status_code == 200
    _, err = served.end()
    lines = [line for line in err.splitlines() if "the service is open" not in line]
    if log_format == "text":
        assert f" INFO {served.pid} MainThread: serving {url} at {served.url}: open, strategy adaptive, queue_db " in lines[0]
        assert lines[-1].endswith(" s (SIGTERM): 1 requests")
    else:
        first, last = json.loads(lines[0]), json.loads(lines[-1])
        told = {"database": url, "url": served.url, "version": __version__, "strategy": "adaptive", "pid": served.pid}
        assert (told | {"open": True, "read_only": False}).items() <= first.items()
        assert {"why": "SIGTERM", "requests": 1}.items() <= last.items()
        assert last["uptime"] > 0


def test_it_ends_while_the_database_does_not_answer(start: Callable[..., Served], shared_urls: Callable[[str], str]) -> None:
    url = shared_urls("postgresql")
    with Proxy.before(url) as network:
        served = start(network.url(url), "--open")
        place = make_url(served.url)
        with socket.create_connection((place.host, place.port), PATIENCE) as client:
            network.silence()
            client.sendall(b"POST /api/v1/queues/mail/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            client.sendall(b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"{}")
            status, err = served.end()
            answer = b""
            while part := client.recv(1 << 16):
                answer += part
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in answer.lower()
    assert b"application/problem+json" in answer
    assert status == 1
    assert "the process ends now" in err
    assert "Traceback" not in err


@pytest.mark.rest("tests/service/test_replicas.py has several")
def test_several_processes_behind_one_proxy(start: Callable[..., Served], tmp_path: Path) -> None:
    """Each request may go to another process than the one before: a form is of one, and what it does is done by the other."""
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
        db.queue("mail").enqueue("welcome")
        served = [start(url, "--open", "--root-path", "/queue", "--forwarded-allow-ips", "127.0.0.1") for _ in range(2)]
        assert all(one.url.endswith("/queue/") for one in served)
        proxy = proxying(*(one.url for one in served), cut="/queue", X_Forwarded_Proto="http")
        with proxy as address, httpx2.Client(base_url=address, timeout=PATIENCE) as person:
            for action in ("pause", "resume"):
                page = person.get("/queue/queues/mail")
                (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
                done = person.post(f"/queue/queues/mail/{action}", data={"csrf": csrf})
                assert done.status_code == 303, done.text
                assert db.queue("mail").controls().paused is (action == "pause")
            person.cookies.clear()
            assert person.post("/queue/queues/mail/pause", data={"csrf": csrf}).status_code == 403


def two_free_ports() -> int:
    """The first of two ports that follow each other, and that nobody has."""
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as one, suppress(OSError, OverflowError):
            first: int = one.getsockname()[1]
            socket.create_server(("127.0.0.1", first + 1)).close()
            return first


@pytest.mark.rest("tests/service/test_replicas.py has several")
def test_several_processes_answer_on_one_port(start: Callable[..., Served], tmp_path: Path) -> None:
    """One that dies is replaced; at the end a claim that waits is answered."""
    url = f"sqlite:///{tmp_path}/queue.db"
    first = two_free_ports()
    served = start(url, "--open", "--processes", "2", "--metrics-port", str(first))

    def replaced(number: int) -> str:
        """How often the process with this number was replaced; empty: it does not answer."""
        with suppress(httpx2.TransportError):
            text = get(f"http://127.0.0.1:{first + number}/", "metrics").text
            return text.partition('queue_db_service_incidents_total{incident="process_replaced"} ')[2].partition("\n")[0]
        return ""

    wait_for(lambda: [replaced(0), replaced(1)] == ["0.0", "0.0"])
    children = psutil.Process(served.pid).children()
    assert len(children) == 2
    children[0].kill()
    wait_for(lambda: sorted([replaced(0), replaced(1)]) == ["0.0", "1.0"])
    assert get(served.url, "api/v1/queues").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(httpx2.post, f"{served.url}api/v1/queues/mail/claims", json={"wait": 50}, timeout=PATIENCE)
        # Who has no connection of a client ends first.
        wait_for(lambda: any(len(child.net_connections()) > 2 for child in psutil.Process(served.pid).children()))
        status, err = served.end()
        assert claim.result().json() == {"jobs": []}
    assert status == 0, err
    assert "Traceback" not in err
    assert "died (killed by SIGKILL)" in err
    assert "a process that died is replaced" in err
    assert "(SIGTERM): 1 were replaced" in err


def test_two_first_starts_make_one_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        _note_access(Service(db, Settings()), "127.0.0.1")
        assert "qdb_" in capsys.readouterr().err
        # The other process has looked before.
        with monkeypatch.context() as patched:
            patched.setattr(Tokens, "list", lambda _: [])
            _note_access(Service(db, Settings()), "127.0.0.1")
        assert "qdb_" not in capsys.readouterr().err
        assert [one.name for one in db.tokens.list()] == ["first"]


@pytest.mark.rest("tests/service/test_service_security.py refuses them")
def test_too_many_jobs_and_requests_are_refused(start: Callable[..., Served], tmp_path: Path) -> None:
    limits = ("--max-rate", "0.001", "--max-depth", "mail-*=0", "--max-depth", "*=5")
    served = start(f"sqlite:///{tmp_path}/queue.db", "--open", *limits)
    url = f"{served.url}api/v1/queues/mail-1/jobs"
    answers = [httpx2.post(url, json={"kind": "mail"}, timeout=PATIENCE) for _ in range(2)]
    titles = [(one.status_code, one.json()["title"]) for one in answers]
    assert titles == [(429, "Too many jobs are waiting"), (429, "Too many requests")]


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.rest("tests/faults/test_failover.py has one")
def test_a_database_that_takes_no_changes(start: Callable[..., Served], fresh_url: str) -> None:
    """As a standby server: people can still log in and look."""
    with QueueDB(fresh_url) as db:
        db.migrate()
        secret = db.tokens.create("ops", SCOPES)
        served = start(f"{fresh_url}?options=-c%20default_transaction_read_only=on")
        assert served.printed["read_only"] is True
        assert get(served.url, "api/v1/queues", secret).status_code == 200
        with httpx2.Client(base_url=served.url, timeout=PATIENCE) as person:
            assert person.post("/login", data={"token": secret}).status_code == 303
            page = person.get("/")
            assert page.status_code == 200
            # The browser has a key of this session and nothing else.
            cookies = dict(person.cookies)
            assert len(cookies) == 1
            assert secret not in str(cookies)
            (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
            assert csrf not in cookies.values()
            assert person.post("/logout", data={"csrf": csrf}).status_code == 303
            person.cookies.update(cookies)
            assert person.get("/").status_code == 303, "a copy of the cookie outlives the logout"
            assert person.post("/login", data={"token": secret}).status_code == 303
            assert person.get("/").status_code == 200
            db.tokens.revoke("ops")
            assert person.get("/").status_code == 303
        _, err = served.end()
    assert err.count("the database takes no changes, the service is read-only: ") == 1
    assert "the database is back" not in err
    assert secret not in err


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.rest("tests/faults/test_failover.py follows a promotion")
def test_a_service_that_starts_read_only_notices_that_it_is_over(start: Callable[..., Served], fresh_url: str) -> None:
    """Also one that has connections with the old setting, which a session keeps."""
    database = make_url(fresh_url).database

    def refuses(value: str) -> None:
        with closing(psycopg2.connect(make_url(fresh_url).set(drivername="postgresql").render_as_string(False))) as connection:
            connection.autocommit = True
            connection.cursor().execute("SET default_transaction_read_only = off")
            connection.cursor().execute(f"ALTER DATABASE {database} SET default_transaction_read_only = {value}")

    with QueueDB(fresh_url) as db:
        db.migrate()
    refuses("on")
    served, forbids = start(fresh_url, "--open"), start(fresh_url, "--open", "--read-only")
    assert served.printed["read_only"] is forbids.printed["read_only"] is True

    def enqueue(to: Served) -> int:
        return httpx2.post(f"{to.url}api/v1/queues/mail/jobs", json={"kind": "mail"}, timeout=PATIENCE).status_code

    assert (enqueue(served), enqueue(forbids)) == (503, 403)
    assert "/queues/mail/pause" not in get(served.url, "queues/mail").text
    refuses("off")
    wait_for(lambda: enqueue(served) == 201)
    # The change has taken effect before the service has asked again, or after it.
    wait_for(lambda: "/queues/mail/pause" in get(served.url, "queues/mail").text)
    assert enqueue(forbids) == 403
    assert "/queues/mail/pause" not in get(forbids.url, "queues/mail").text
    _, err = served.end()
    assert err.count("the database takes no changes, the service is read-only: ") == 1
    assert err.count("the database is back: requests are answered again") == 1
    _, err = forbids.end()
    assert "the database" not in err


@pytest.mark.parametrize(
    ("options", "says", "status"),
    [
        (("--host", "0.0.0.0"), "--allow-host", 2),  # noqa: S104 - it is refused
        (("--host", "::"), "--allow-host", 2),
        (("--host", "192.0.2.1", "--open"), "--open lets everyone in", 2),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1", 2),
        (("--root-path", "/jobs"), "--root-path /jobs", 2),
        (("--forwarded-allow-ips", "*"), "--forwarded-allow-ips *", 2),
        (("--max-rate", "0"), "--max-rate 0", 2),
        (("--max-rate", "nan"), "--max-rate nan", 2),
        (("--max-depth", "mail"), "--max-depth mail", 2),
        (("--max-depth", "mail=-1"), "--max-depth mail=-1", 2),
    ],
)
def test_what_would_be_dangerous_or_cannot_work_is_refused(
    tmp_path: Path, options: tuple[str, ...], says: str, status: int
) -> None:
    assert says in refused(f"sqlite:///{tmp_path}/queue.db", *options, status=status)


def test_read_only_creates_no_file(tmp_path: Path) -> None:
    assert "does not exist" in refused(f"sqlite:///{tmp_path}/queue.db", "--read-only", status=2)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in refused(f"sqlite:///{tmp_path}/queue.db", "--port", str(port), status=2)


def test_a_port_in_use_is_named_before_the_first_process_starts(tmp_path: Path) -> None:
    host = "127.0.0.2"  # where no other test has the port before it
    with closing(socket.create_server((host, 0))) as taken:
        port = taken.getsockname()[1]
        options = ("--host", host, "--port", "0", "--processes", "2", "--metrics-port")
        err = refused(f"sqlite:///{tmp_path}/queue.db", *options, str(port - 1), status=2)
        assert f"port {port}: " in err
        assert "choose another --metrics-port" in err
    assert "port 65536: " in refused(f"sqlite:///{tmp_path}/queue.db", *options, "65535", status=2)


def test_a_database_that_is_away_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "__defaults__", (0.0,))  # serve waits for a minute
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))  # and it does not listen
        port = silent.getsockname()[1]
        err = refused(f"postgresql://user:hunter2@127.0.0.1:{port}/name", status=3)
    assert f"user:***@127.0.0.1:{port}" in err
    assert "hunter2" not in err


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_tables_of_a_server_are_made_by_hand(fresh_url: str) -> None:
    assert "queue-db migrate" in refused(fresh_url, status=2)


def refused(url: str, *options: str, status: int) -> str:
    """Standard error of a service that does not start."""
    done = CliRunner().invoke(app, ["serve", *options], env={"QUEUE_DB_URL": url, "COLUMNS": "200"})
    assert done.exit_code == status, done.output
    assert "Traceback" not in done.stderr
    return done.stderr
