"""Webhooks: what is sent and signed, what counts as done, and which addresses are never reached."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from standardwebhooks import Webhook, WebhookVerificationError

from queue_db import QueueDB
from queue_db.backoff import constant
from queue_db.errors import ConfigurationError, UnsupportedError
from queue_db.outcomes import Dead, Retry
from queue_db.routes import store as routes
from queue_db.routes.tables import route_tables
from queue_db.service import cloud_events, webhooks
from queue_db.service.webhooks import RefusedAddressError, Sender, deliver, is_public, key_of
from queue_db.worker import Worker
from tests.patience import HOURS, PATIENCE

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

SECRET = "whsec_" + base64.b64encode(b"a secret of some length").decode()


class Receiver(ThreadingHTTPServer):
    """A server that keeps what it gets, and answers as the path says: ``/200``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status = int(self.path.strip("/").partition("?")[0])
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/200")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.1")
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def db(own_url: str) -> Iterator[QueueDB]:
    """A database of its own: all webhooks of a database share one queue."""
    with QueueDB(own_url) as own:
        yield own


@pytest.fixture
def routed_to(db: QueueDB, name: str) -> Callable[[str], Any]:
    """``routed_to(url)`` publishes a message to a webhook; the job."""

    def run(url: str) -> Any:
        db.routes.set(name, webhook=url)
        db.routes.subscribe(name, name, form="exact")
        assert db.topic(name).publish("paid", {"order": 7}, key="order-7", headers={"shop": "north"}) == 1
        (job,) = db.queue("webhooks").claim(1)
        return job

    return run


@on_sqlite
def test_a_message_arrives_signed(receiver: Receiver, routed_to: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_SECRET", SECRET)
    job = routed_to(f"{receiver.url}/200?of=orders")
    assert deliver(job) is None
    ((path, headers, body),) = receiver.got
    assert path == "/200?of=orders"
    content = json.loads(body)
    assert (content["payload"], content["kind"], content["key"], content["topic"]) == ({"order": 7}, "paid", "order-7", name)
    assert content["headers"]["shop"] == "north"
    assert "webhook" not in content["headers"]
    assert headers["webhook-id"] == content["id"] == f"webhooks-{job.id}"
    assert Webhook(SECRET).verify(body, headers) == content
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.replace(b"7", b"8"), headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(b"another secret").verify(body, headers)
    assert abs(int(headers["webhook-timestamp"]) - job.created_at.timestamp()) < 300
    job.complete()


@on_sqlite
def test_a_message_arrives_as_a_cloud_event(receiver: Receiver, routed_to: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_FORMAT", "cloudevents")
    job = routed_to(f"{receiver.url}/200")
    assert deliver(job) is None
    ((_, headers, body),) = receiver.got
    Webhook(SECRET).verify(body, headers)
    assert headers["content-type"] == "application/cloudevents+json"
    event = from_http_event(HTTPMessage(headers, body))
    assert (event.get_id(), event.get_source(), event.get_type()) == (headers["webhook-id"], f"/topics/{name}", "paid")
    assert (event.get_subject(), event.get_time(), event.get_data()) == ("order-7", job.created_at, {"order": 7})
    assert event.get_extension("shop") == "north"
    job.complete()


@given(
    headers=st.dictionaries(
        st.text() | st.sampled_from(["id", "headers", "data", "traceparent", "shop", "a_b"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    ),
    kind=st.text(min_size=1),
    key=st.none() | st.text(),
    payload=st.none() | st.integers() | st.dictionaries(st.text(), st.text()),
)
def test_no_header_is_lost_in_a_cloud_event(headers: dict[str, Any], kind: str, key: str | None, payload: Any) -> None:
    at = datetime(2026, 11, 23, 8, tzinfo=UTC)
    made = cloud_events.event("1", "/topics/t", kind, key=key, at=at, payload=payload, headers=headers)
    body = json.dumps(made).encode()
    event = from_http_event(HTTPMessage({"content-type": cloud_events.CONTENT_TYPE}, body))
    assert (event.get_type(), event.get_subject(), event.get_data()) == (kind, key or None, payload)
    attributes = event.get_attributes()
    core = {"id", "source", "type", "specversion", "datacontenttype", "time", "subject"}
    extensions = {name: value for name, value in attributes.items() if name not in core}
    assert json.loads(extensions.pop("headers", "{}")) | extensions == headers
    assert all(type(value) in {str, int, bool} for value in extensions.values())


@on_sqlite
@pytest.mark.parametrize(("status", "outcome"), [(204, type(None)), (302, Retry), (404, Retry), (500, Retry), (410, Dead)])
def test_the_status_decides(receiver: Receiver, routed_to: Any, status: int, outcome: type) -> None:
    job = routed_to(f"{receiver.url}/{status}")
    assert type(deliver(job)) is outcome
    assert len(receiver.got) == 1, "a redirect was followed"
    job.complete()


@on_sqlite
def test_what_is_not_public_is_not_reached(receiver: Receiver, routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUE_DB_WEBHOOK_ALLOW")
    job = routed_to(f"http://localhost:{receiver.server_port}/200")
    outcome = deliver(job)
    assert isinstance(outcome, Dead)
    assert "not a public address" in outcome.reason
    assert receiver.got == []
    job.complete()


def test_the_address_that_was_checked_is_the_one_that_is_reached(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def rebinding(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert Sender().checked("rebinding.example", 80, time.monotonic() + PATIENCE) == [(socket.AF_INET, ("93.184.216.34", 80))]
    with pytest.raises(RefusedAddressError):
        Sender().send(f"http://rebinding.example:{receiver.server_port}/200", "1", b"{}", datetime.now(UTC))
    assert asked == ["rebinding.example"] * 2, "a name is asked for once for each message"
    assert receiver.got == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("ff02::1", False),
        ("fec0::1", False),
        ("::ffff:0:7f00:1", False),
        ("::7f00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("5f00::1", False),
        ("fd00:ec2::254", False),
        ("168.63.129.16", False),
        ("100.100.100.200", False),
        ("::ffff:168.63.129.16", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


# The special-purpose registries of IANA for IPv4 and IPv6 (RFC 6890), blocks by whether they are globally reachable. Multicast has
# a registry of its own.
NOT_REACHABLE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.0.0/29",
    "192.0.0.8/32",
    "192.0.0.170/32",
    "192.0.0.171/32",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.88.99.2/32",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
]
REACHABLE = ["192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", "2620:4f:8000::/48"]
# Reachable, and no webhook is there: anycast to a machine of one's own network, identifiers, tunnels.
REFUSED_ALL_THE_SAME = [
    "192.0.0.9/32",
    "192.0.0.10/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:20::/28",
    "2001:30::/28",
]


def ends(block: str) -> list[IPv4Address | IPv6Address]:
    """The first address of a block, one in the middle, and the last."""
    network = ip_network(block)
    return [network[0], network[network.num_addresses // 2], network[-1]]


def within(one: IPv4Address) -> dict[str, IPv6Address]:
    """Addresses of IPv6 that lead to one of IPv4."""
    number = int(one)
    return {
        "mapped": IPv6Address(0xFFFF << 32 | number),
        "NAT64": IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        "local NAT64": IPv6Address(int(IPv6Address("64:ff9b:1::")) | number),
        "6to4": IPv6Address(0x2002 << 112 | number << 80),
        "Teredo": IPv6Address(0x20010000 << 96 | (number ^ 0xFFFFFFFF)),
    }


def test_no_block_for_a_special_purpose_is_public() -> None:
    found = [one for block in [*NOT_REACHABLE, *REFUSED_ALL_THE_SAME] for one in ends(block)]
    found += [inner for one in found if isinstance(one, IPv4Address) for inner in within(one).values()]
    assert [one for one in found if is_public(one)] == []


def test_what_is_beside_them_is_public() -> None:
    beside = ["1.0.0.0", "9.255.255.255", "100.128.0.0", "192.0.1.0", "192.88.98.255", "192.88.100.0", "223.255.255.255"]
    beside += ["2001:200::", "2003::", "2400::1", "3ffe:ffff::1", "64:ff9b::808:808", "::ffff:8.8.8.8"]
    found = [*map(ip_address, beside), *(one for block in REACHABLE for one in ends(block))]
    assert [one for one in found if not is_public(one)] == []
    inner = within(IPv4Address("8.8.8.8"))
    assert {name for name, one in inner.items() if is_public(one)} == {"mapped", "NAT64"}, "tunnels lead somewhere else"


@on_sqlite
def test_code_older_than_webhooks_makes_the_job(
    receiver: Receiver, routed_to: Any, db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "meaning", routes.Meaning)  # such code takes them as they are stored
    db.routes.define(webhook=f"{receiver.url}/200")
    assert [one.action for one in db.routes.definitions()] == ["enqueue"]
    job = routed_to(f"{receiver.url}/200")
    monkeypatch.undo()
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.1")
    (route,) = db.routes.list()
    assert (route.action, route.target, route.kind, route.group) == ("webhook", f"{receiver.url}/200", None, False)
    assert deliver(job) is None
    ((_, _, body),) = receiver.got
    assert json.loads(body)["payload"] == {"order": 7}


@on_sqlite
def test_an_action_of_a_later_version_is_not_skipped(db: QueueDB, name: str) -> None:
    db.routes.set(name, count=name)
    db.routes.subscribe(name, name, form="exact")
    with db.database.begin() as connection:
        connection.execute(update(route_tables(db.core.store.tables).definitions).values(action="later"))
    with pytest.raises(UnsupportedError, match="later"):
        db.topic(name).publish("n")


@on_sqlite
def test_an_answer_that_does_not_end_is_cut(routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_TIMEOUT", "0.2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = routed_to(f"http://127.0.0.1:{silent.getsockname()[1]}/200")
        assert isinstance(deliver(job), Retry)
        job.complete()


def patient(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step of sending whose time ends much later."""
    return lambda *given: step(*given[:-1], given[-1] + PATIENCE)


@on_sqlite
@pytest.mark.parametrize("closes", [True, False], ids=["closes", "silent"])
@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", b"HTTP/1.1 200 OK\r\nX: 1"]
)
def test_a_part_of_an_answer_is_no_delivery(routed_to: Any, monkeypatch: pytest.MonkeyPatch, part: bytes, closes: bool) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_TIMEOUT", str(PATIENCE) if closes else "0.5")
    # Only the answer may come too late, and not what is before it.
    for step in ("_resolved", "_connected"):
        monkeypatch.setattr(webhooks, step, patient(getattr(webhooks, step)))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):  # a reset, where the time is over before the part is sent
                connection.sendall(part)
                if closes:
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    """Until the other side closes."""

        thread = threading.Thread(target=answer)
        thread.start()
        job = routed_to(f"http://127.0.0.1:{server.getsockname()[1]}/200")
        outcome = deliver(job)
        thread.join(PATIENCE)
    assert isinstance(outcome, Retry)
    assert closes or "in time" in str(outcome.reason)
    job.complete()


@on_sqlite
def test_informational_answers_come_before_the_answer(routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.0/8")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                lines = [b"HTTP/1.1 %d x\r\nLink: x\r\n\r\n" % status for status in (100, 102, 103, 103, 200)]
                connection.sendall(b"".join(lines))
                while connection.recv(65536):
                    """Until the other side closes."""

        thread = threading.Thread(target=answer)
        thread.start()
        job = routed_to(f"http://127.0.0.1:{server.getsockname()[1]}/200")
        assert deliver(job) is None
        thread.join(PATIENCE)
    job.complete()


@on_sqlite
def test_dns_that_does_not_answer_ends_the_attempt(routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_TIMEOUT", "0.2")
    goes_on, ended = threading.Event(), threading.Event()

    def silent(*_: Any, **__: Any) -> list[Any]:
        assert goes_on.wait(PATIENCE)
        ended.set()
        return []

    job = routed_to("http://silent.example/200")
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", silent)
        try:
            outcome = deliver(job)
        finally:
            goes_on.set()
            assert ended.wait(PATIENCE)
    assert isinstance(outcome, Retry)
    assert "DNS has not answered" in str(outcome.reason)
    job.complete()


@on_sqlite
def test_a_handshake_that_does_not_end_is_cut(routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_TIMEOUT", "0.2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = routed_to(f"https://127.0.0.1:{silent.getsockname()[1]}/200")
        assert isinstance(deliver(job), Retry)
        job.complete()


@on_sqlite
@pytest.mark.parametrize(
    "line", [b"", b"HTTP/1.1 secret-of-inside\r\n\r\n", b"HTTP/1.1 410 Gone\r\n\r\n", b"HTTP/1.1 500 Error\r\n\r\n"]
)
def test_no_error_has_the_address_or_what_was_answered(routed_to: Any, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setenv("QUEUE_DB_WEBHOOK_ALLOW", "127.0.0.0/8")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(65536)
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    """Until the other side closes."""

        thread = threading.Thread(target=answer)
        thread.start()
        job = routed_to(f"http://127.0.0.1:{server.getsockname()[1]}/hooks/secret-path?key=secret-key")
        outcome = deliver(job)
        thread.join(PATIENCE)
    assert isinstance(outcome, Retry | Dead)
    assert "127.0.0.1" in str(outcome.reason)
    assert "secret" not in str(outcome.reason)
    job.complete()


@on_sqlite
def test_no_proxy_of_the_environment_is_asked(receiver: Receiver, routed_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    job = routed_to(f"{receiver.url}/200")
    assert deliver(job) is None
    job.complete()


def test_what_cannot_be_a_name_is_refused() -> None:
    for host in ("a..b", "x" * 64 + ".example"):
        with pytest.raises(RefusedAddressError):
            Sender().send(f"https://{host}/", "1", b"{}", datetime.now(UTC))


@on_sqlite
def test_a_worker_sends_until_it_is_taken(receiver: Receiver, routed_to: Any, db: QueueDB) -> None:
    routed_to(f"{receiver.url}/500").release()
    worker = Worker(db, ["webhooks"])
    worker.handles("webhook", backoff=constant(HOURS))(deliver)
    summary = worker.run(until_empty=True)
    assert summary.failed == len(receiver.got) == 1
    (waiting,) = db.queue("webhooks").jobs("scheduled").jobs
    assert "answered 500" in str(waiting.last_error)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALLOW", "10.0.0.1/8"),
        ("ALLOW", "x"),
        ("TIMEOUT", "x"),
        ("TIMEOUT", "0"),
        ("TIMEOUT", "nan"),
        ("SECRET", "whsec_?"),
        ("SECRET", "whsec_"),
        ("FORMAT", "xml"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"QUEUE_DB_WEBHOOK_{variable}", value)
    with pytest.raises(ConfigurationError, match=variable):
        Sender.from_environment()


def test_a_secret_is_a_text_or_base64() -> None:
    assert key_of("plain") == b"plain"
    assert key_of(SECRET) == b"a secret of some length"
    assert "webhook-signature" not in Sender().headers("1", b"", datetime.now(UTC))
