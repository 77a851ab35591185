"""What the service refuses, cuts off or loses: one log record, one event and one count for each, as docs/service.md lists them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import socket
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, make_url

from queue_db import LeasedJob, Queue, QueueDB
from queue_db.service import Incident, IncidentType, Settings, service
from queue_db.service.live import incidents
from queue_db.service.live.events import EventStream
from queue_db.service.live.incidents import LINES, Incidents
from queue_db.tokens.tokens import SCOPES
from tests.idle import release
from tests.patience import HOURS, PATIENCE, wait_for
from tests.servers.proxy import Proxy
from tests.service.conftest import serving_app

DOCS = Path(__file__).parents[2] / "docs" / "service.md"

#: Seconds within which a request must have arrived, where a test waits for the end of that.
SHORT = 0.3

_T = IncidentType


class Site:
    """A service on a port, whose incidents are collected, and a client that was connected before anything happened."""

    def __init__(self, stack: ExitStack, url: str, settings: dict[str, Any], options: dict[str, Any]) -> None:
        self.stack = stack
        self.db = stack.enter_context(QueueDB(url))
        self.app = service(self.db, Settings(**settings))
        self.found: list[Incident] = []
        self.app.state.service.incidents.add(self.found.append)
        secret = self.db.tokens.create(f"incidents {uuid.uuid4()}", SCOPES)
        self.reader = self.db.tokens.create(f"reader {uuid.uuid4()}", ["read"])
        _add_routes(self.app)
        self.url = stack.enter_context(serving_app(self.app, **options))
        self.client = self.anybody(Authorization=f"Bearer {secret}")
        wait_for(self._connected)

    def _connected(self) -> bool:
        with suppress(httpx2.TransportError):  # where requests must arrive soon, a new connection may have been too slow
            return self.client.get("/healthz").status_code == 200
        return False

    def anybody(self, **headers: str) -> httpx2.Client:
        return self.stack.enter_context(httpx2.Client(base_url=self.url, timeout=PATIENCE, headers=headers))

    def connect(self, sent: bytes = b"") -> socket.socket:
        parts = urlsplit(self.url)
        assert parts.hostname
        made = self.stack.enter_context(closing(socket.create_connection((parts.hostname, parts.port), PATIENCE)))
        made.sendall(sent)
        return made

    def execute(self, statement: str) -> None:
        """As another program does."""
        with closing(sqlite3.connect(str(make_url(self.db.url).database), PATIENCE, isolation_level=None)) as connection:
            connection.execute(statement)

    def counted(self) -> dict[str, int]:
        """The counts on ``/metrics``."""
        text = self.client.get("/metrics").raise_for_status().text
        (metric,) = [one for one in text_string_to_metric_families(text) if one.name == "queue_db_service_incidents"]
        return {one.labels["incident"]: int(one.value) for one in metric.samples if one.value}


def _add_routes(app: FastAPI) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            await asyncio.sleep(0)

    async def events() -> AsyncGenerator[bytes | None, None]:
        async for part in endless():
            yield part

    async def allowed() -> None:
        pass

    def bug() -> None:
        raise RuntimeError("a bug")

    app.add_api_route("/endless", lambda: StreamingResponse(endless()), response_model=None)
    app.add_api_route("/events", lambda: EventStream(events(), allowed, slowest=0.1), response_model=None)
    app.add_api_route("/bug", bug, response_model=None)


# --- how each is provoked ---------------------------------------------------------------------------------------------

_JOBS = "/api/v1/queues/mail/jobs"
_CLAIMS = "/api/v1/queues/mail/claims"


def send_slowly(site: Site) -> None:
    # A connection on which nothing came in time is closed without an incident.
    while not site.found:
        with suppress(ConnectionError), site.connect() as connection:
            connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            assert connection.recv(1) == b""


def read_nothing(site: Site) -> None:
    def begun() -> bool:
        with suppress(ConnectionError):
            return site.connect(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").recv(12) == b"HTTP/1.1 200"
        return False

    wait_for(begun)


def read_no_events(site: Site) -> None:
    site.connect(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")


def send_no_http(site: Site) -> None:
    site.connect(b"\x00\r\n\r\n")


def send_much(site: Site) -> None:
    assert site.anybody().post("/login", data={"token": "x" * 10_000}).status_code == 413


def send_bodies(site: Site) -> None:
    assert site.client.post(_JOBS, json={"kind": "k"}).status_code == 503


def connect_often(site: Site) -> None:
    site.connect()
    assert site.anybody().get("/login").status_code == 503


def call_another_host(site: Site) -> None:
    assert site.anybody().get("/login", headers={"Host": "evil.example"}).status_code == 421


def post_from_elsewhere(site: Site) -> None:
    assert site.client.post(_JOBS, headers={"Origin": "https://evil.example"}).status_code == 403


def guess_a_token(site: Site) -> None:
    assert site.anybody(Authorization="Bearer qdb_x").get(_JOBS).status_code == 401


def use_the_wrong_scope(site: Site) -> None:
    assert site.anybody(Authorization=f"Bearer {site.reader}").post(_JOBS, json={"kind": "k"}).status_code == 403


def log_in_wrongly(site: Site) -> None:
    assert site.anybody().post("/login", data={"token": "qdb_x"}).status_code == 401


def ask_often(site: Site) -> None:
    assert [site.client.get("/api/v1/queues").status_code for _ in range(2)] == [200, 429]
    site.app.state.pressure._rate = None  # the metrics are read next


def enqueue_much(site: Site) -> None:
    assert site.client.post(_JOBS, json={"kind": "k"}).status_code == 429


def leave_while_claimed_for(site: Site, before_it_is_noticed: Callable[[], None] = lambda: None) -> None:
    claimed, gone = threading.Event(), threading.Event()
    plain = Queue.claim

    def slowly(queue: Queue, *args: Any, **options: Any) -> list[LeasedJob]:
        jobs = plain(queue, *args, **options)
        claimed.set()
        assert gone.wait(PATIENCE)
        return jobs

    site.db.queue("mail").enqueue("k")
    patch = site.stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(Queue, "claim", slowly)
    body = json.dumps({}).encode()
    authorization = site.client.headers["Authorization"].encode()
    head = b"POST " + _CLAIMS.encode() + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + authorization
    connection = site.connect(head + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert claimed.wait(PATIENCE)
    before_it_is_noticed()
    connection.close()
    # An answer comes after the event loop has turned, and the server has noticed what came before.
    for _ in range(3):
        assert site.client.get("/healthz").status_code == 200
    gone.set()


def leave_while_the_table_goes(site: Site) -> None:
    leave_while_claimed_for(site, lambda: site.execute("ALTER TABLE jobs RENAME TO other"))


def nothing(site: Site) -> None:
    """It happens by itself."""


def ask_for_a_lost_table(site: Site) -> None:
    site.execute("ALTER TABLE jobs RENAME TO other")
    assert site.client.get("/api/v1/jobs/1").status_code == 503


def find_a_bug(site: Site) -> None:
    assert site.client.get("/bug").status_code == 500


def lose_the_database(site: Site) -> None:
    proxy: Proxy = site.stack.proxy  # type: ignore[attr-defined]
    proxy.refuse()
    proxy.cut()
    assert site.client.get("/api/v1/queues").status_code == 503
    proxy.forward()
    wait_for(lambda: any(one.type is _T.DATABASE_BACK for one in site.found))


def refuse_changes(site: Site) -> None:
    """Connections take no changes, as those to a file that may only be read; new ones do."""
    engine = site.db.database.engine

    def only_read(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA query_only = ON")

    event.listen(engine, "connect", only_read)
    release(site.db)
    engine.dispose()
    assert site.client.post(_JOBS, json={"kind": "k"}).status_code == 503
    event.remove(engine, "connect", only_read)
    wait_for(lambda: any(one.type is _T.DATABASE_BACK for one in site.found))


#: How each is provoked; the settings of the service, and of its server; other types that this causes, too.
PROVOKED: dict[IncidentType, tuple[Callable[[Site], None], dict[str, Any], dict[str, Any], set[IncidentType]]] = {
    _T.SLOW_REQUEST: (send_slowly, {"arrival": SHORT}, {}, set()),
    _T.SLOW_READER: (read_nothing, {"arrival": SHORT}, {}, set()),
    _T.BAD_REQUEST: (send_no_http, {}, {}, set()),
    _T.TOO_LARGE: (send_much, {}, {}, set()),
    _T.TOO_MANY_BODIES: (send_bodies, {"max_bodies": 5}, {}, set()),
    _T.TOO_MANY_CONNECTIONS: (connect_often, {}, {"most_connections": 2}, set()),
    _T.WRONG_HOST: (call_another_host, {}, {}, set()),
    _T.CROSS_SITE: (post_from_elsewhere, {}, {}, set()),
    _T.UNAUTHORIZED: (guess_a_token, {}, {}, set()),
    _T.FORBIDDEN: (use_the_wrong_scope, {}, {}, set()),
    _T.LOGIN_FAILED: (log_in_wrongly, {}, {}, set()),
    _T.TOO_MANY_REQUESTS: (ask_often, {"max_rate": 0.0001}, {}, set()),
    _T.TOO_MANY_JOBS: (enqueue_much, {"max_depths": {"mail": 0}}, {}, set()),
    _T.CLAIM_RETURNED: (leave_while_claimed_for, {}, {}, set()),
    _T.CLAIM_NOT_RETURNED: (leave_while_the_table_goes, {}, {}, set()),
    _T.STREAM_CUT: (read_no_events, {}, {}, set()),
    _T.SAMPLE_NOT_TAKEN: (nothing, {}, {}, set()),
    _T.REQUEST_FAILED: (ask_for_a_lost_table, {}, {}, set()),
    _T.BUG: (find_a_bug, {}, {}, set()),
    # Without the thread that counts the queues, which would meet the outage, too.
    _T.DATABASE_AWAY: (lose_the_database, {"read_only": True}, {}, {_T.DATABASE_BACK, _T.REQUEST_FAILED}),
    _T.DATABASE_READ_ONLY: (refuse_changes, {}, {}, {_T.DATABASE_BACK, _T.REQUEST_FAILED}),
}


#: Those that are provoked in test_serve_command.py.
ELSEWHERE = {_T.PROCESS_REPLACED}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("incidents") / "queue.db"
    with QueueDB(f"sqlite:///{file}") as db:
        db.migrate()
    return file


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own(migrated: Path, tmp_path: Path) -> str:
    """A file of one's own."""
    return f"sqlite:///{shutil.copy(migrated, tmp_path / 'own.db')}"


def logged(records: list[logging.LogRecord]) -> Counter[str]:
    """Incidents by type, as the log has them."""
    found: Counter[str] = Counter()
    for one in records:
        if hasattr(one, "incident"):
            type_ = IncidentType(one.incident)
            assert (one.name, one.levelno) == ("queue_db.service", LINES[type_].level)
            assert one.getMessage().startswith(f"{LINES[type_].text}: ")
            found[type_.value] += one.count  # type: ignore[attr-defined]
    return found


def agreed(site: Site, caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    """The incidents so far: log, events and counts have the same."""

    def all_three() -> tuple[dict[str, int], ...]:
        events = Counter(one.type.value for one in site.found)
        return tuple({name: n for name, n in one.items() if n} for one in (logged(caplog.records), events, site.counted()))

    # What happens between two of the three readings is in one of them only.
    return wait_for(lambda: (found := all_three()) and found[0] == found[1] == found[2] and (found[0],))[0]


@pytest.mark.parametrize("type_", PROVOKED)
def test_the_log_the_events_and_the_counts_agree(
    type_: IncidentType, stack: ExitStack, own: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "queue_db.service")
    provoke, settings, options, others = PROVOKED[type_]
    if provoke is lose_the_database:
        url = request.getfixturevalue("shared_urls")("postgresql")
        stack.proxy = stack.enter_context(Proxy.before(url))  # type: ignore[attr-defined]
        own = stack.proxy.url(url)  # type: ignore[attr-defined]
    if type_ is _T.SAMPLE_NOT_TAKEN:
        with closing(sqlite3.connect(str(make_url(own).database))) as connection:
            connection.execute("ALTER TABLE jobs RENAME TO other")
    site = Site(stack, own, settings, options)
    provoke(site)
    wait_for(lambda: any(one.type is type_ for one in site.found))
    found = agreed(site, caplog)
    # The thread that counts the queues meets a database without its tables, or none, as well.
    assert found.pop("sample_not_taken", 1) == 1
    expected = {one.value for one in {type_, *others}} - {"sample_not_taken"}
    assert found == dict.fromkeys(expected, 1)


def test_the_table_has_each_type() -> None:
    (table,) = re.findall(r"^\| incident \|.*\n\|[-| ]+\n((?:\|.*\n)+)", DOCS.read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    wanted = [
        [f"`{type_.value}`", logging.getLevelName(line.level), f"`{line.text}`", "each" if line.each else "few"]
        for type_, line in LINES.items()
    ]
    assert [row[:4] for row in rows] == wanted
    provoked = {*PROVOKED, *ELSEWHERE, *(one for *_, others in PROVOKED.values() for one in others)}
    assert LINES.keys() == provoked == set(IncidentType)


def test_a_flood_has_few_records_and_none_is_uncounted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "queue_db.service")
    monkeypatch.setattr(incidents, "_PERIOD", HOURS)
    found = Incidents()
    for number in range(1000):
        found.record(_T.UNAUTHORIZED, f"GET /{number}\nfrom here")
        found.record(_T.CLAIM_NOT_RETURNED, "x" * 1000)
        found.record(_T.BUG, "GET /", trace="Traceback")
    found.close()
    records = [one for one in caplog.records if getattr(one, "incident", None) == "unauthorized"]
    assert len(records) == 11
    assert [one.count for one in records] == [*[1] * 10, 990]  # type: ignore[attr-defined]
    assert all("\n" not in one.getMessage() and len(one.getMessage()) < 400 for one in records)
    assert logged(caplog.records) == {"unauthorized": 1000, "claim_not_returned": 1000, "bug": 1000}
    assert caplog.text.count("Traceback") == 10
    assert {one: count for one, count in found.counts().items() if count} == logged(caplog.records)


def test_what_is_not_logged_yet_is_logged_at_the_end(
    own: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "queue_db.service")
    monkeypatch.setattr(incidents, "_PERIOD", HOURS)
    with ExitStack() as stack:
        site = Site(stack, own, {}, {})
        stranger = site.anybody(Authorization="Bearer qdb_x")
        assert {stranger.get(_JOBS).status_code for _ in range(30)} == {401}
        assert logged(caplog.records) == {"unauthorized": 10}
    assert logged(caplog.records) == {"unauthorized": 30}


def test_a_listener_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    found = Incidents()
    seen: list[Incident] = []

    def fail(incident: Incident) -> None:
        raise ValueError(incident)

    found.add(fail)
    found.add(seen.append)
    found.record(_T.BUG, "GET /", trace="Traceback")
    assert [one.type for one in seen] == [_T.BUG]
    assert "Traceback" in caplog.text
    assert "the listener" in caplog.text
