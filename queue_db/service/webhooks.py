"""Webhooks: the handler that sends a message to the address of a route, signed as `Standard Webhooks <https://www.standardwebhooks.com>`_.

``queue-db work webhooks --handler queue_db.service.webhooks:deliver`` runs it. The environment has its settings:
``QUEUE_DB_WEBHOOK_SECRET`` signs what is sent, ``QUEUE_DB_WEBHOOK_ALLOW`` lists private networks that may be reached
(``10.1.0.0/16 127.0.0.1``), ``QUEUE_DB_WEBHOOK_TIMEOUT`` is in seconds (10), ``QUEUE_DB_WEBHOOK_FORMAT`` is that of the body:

- ``queue-db`` (the default): a JSON object with ``id``, ``topic``, ``kind``, ``key``, ``payload``, ``headers``, ``published_at``.
- ``cloudevents``: `CloudEvents 1.0 <https://cloudevents.io>`_, structured (``application/cloudevents+json``). ``type`` is the kind,
  ``source`` is ``/topics/`` and the topic, ``subject`` the key, ``data`` the payload; headers are extension attributes, see
  :func:`queue_db.service.cloud_events.event`.

Both are signed in the same way: a receiver verifies the body with any library of Standard Webhooks.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import io
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote, urlsplit

from standardwebhooks import Webhook

from queue_db import __version__
from queue_db.errors import ArgumentError, ConfigurationError, QueueDBError
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Dead, Retry
from queue_db.routes.definition import address
from queue_db.service import cloud_events
from queue_db.service.http.times import rfc3339

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

#: The forms of the body.
FORMATS = ("queue-db", "cloudevents")

#: Begins a secret whose rest is base64, as in Standard Webhooks.
_PREFIX = "whsec_"

# Statuses of responses that are not the last: 102, 103, and those to come. 101 ends HTTP on the connection, and nobody asks for it.
_INFORMATIONAL = range(102, 200)

# Networks whose addresses are not public: those of IANA's special-purpose registries (RFC 6890), and multicast. Python's own table
# depends on its version. Beyond the registries: all of 192.0.0.0/24 and 2001::/23, where only protocols of networks are, the
# tunnels 6to4 and Teredo, and the machine's own agent and metadata in Azure.
_NOT_PUBLIC_V4 = tuple(
    IPv4Network(one)
    for one in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_NOT_PUBLIC_V6 = tuple(map(IPv6Network, ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"]))

# All other IPv6 addresses are of a site, of a machine, or not in use.
_GLOBAL_UNICAST = IPv6Network("2000::/3")

# IPv6 addresses that lead to an IPv4 address: NAT64.
_NAT64 = IPv6Network("64:ff9b::/96")


# Questions to DNS at a time: those whose answers never come must not become ever more threads.
_resolving = threading.BoundedSemaphore(32)


class RefusedAddressError(QueueDBError):
    """A webhook must not reach this address."""


@dataclass(frozen=True, slots=True)
class Sender:
    """How webhooks are sent.

    :param secret: signs what is sent; empty: nothing is signed.
    :param allowed: networks that are not public and may be reached all the same.
    :param timeout: seconds for the whole exchange.
    :param form: of the body: ``queue-db`` or ``cloudevents``.
    """

    secret: bytes = field(default=b"", repr=False)
    allowed: tuple[_Network, ...] = ()
    timeout: float = 10.0
    form: str = "queue-db"

    @classmethod
    def from_environment(cls) -> Sender:
        """The sender that the environment describes; :class:`ConfigurationError` if a variable cannot be read."""
        try:
            allowed = tuple(ip_network(one) for one in os.environ.get("QUEUE_DB_WEBHOOK_ALLOW", "").replace(",", " ").split())
        except ValueError as error:
            raise ConfigurationError(f"QUEUE_DB_WEBHOOK_ALLOW: {error}") from None
        try:
            timeout = float(os.environ.get("QUEUE_DB_WEBHOOK_TIMEOUT", "10"))
        except ValueError:
            timeout = 0.0
        if not 0 < timeout < 3600:
            raise ConfigurationError("QUEUE_DB_WEBHOOK_TIMEOUT must be a number of seconds")
        form = os.environ.get("QUEUE_DB_WEBHOOK_FORMAT") or FORMATS[0]
        if form not in FORMATS:
            raise ConfigurationError(f"QUEUE_DB_WEBHOOK_FORMAT must be {' or '.join(FORMATS)}, not {form}")
        return cls(key_of(os.environ.get("QUEUE_DB_WEBHOOK_SECRET", "")), allowed, timeout, form)

    def send(self, url: str, message_id: str, body: bytes, at: datetime) -> int:
        """POST the body to the address; return the status of the response. Redirects are not followed.

        :param at: when it is sent, for the signature.
        :raises RefusedAddressError: the name leads to an address that is not public.
        :raises OSError: nothing answers there, or not in time.
        :raises http.client.HTTPException: what answers does not speak HTTP.
        """
        until = time.monotonic() + self.timeout
        parts = urlsplit(address(url))
        host, secure = parts.hostname or "", parts.scheme == "https"
        reached = self.checked(host, parts.port or (443 if secure else 80), until)
        used: Any = _connected(reached, until)
        if secure:
            used = ssl.create_default_context().wrap_socket(used, server_hostname=host, do_handshake_on_connect=False)
        # Each read has a time of its own: this ends an exchange whose bytes come one by one.
        ending = threading.Timer(max(0.0, until - time.monotonic()), _shut, (used,))
        ending.daemon = True
        ending.start()
        try:
            if secure:
                used.do_handshake()
            connection = http.client.HTTPConnection(host, parts.port or (443 if secure else 80))
            connection.response_class = _WholeResponse
            connection.sock = used
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            port = f":{parts.port}" if parts.port else ""
            name = f"[{host}]" if ":" in host else host
            connection.request("POST", path, body, self.headers(message_id, body, at) | {"Host": name + port})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            if time.monotonic() < until:
                raise
            raise TimeoutError("no answer in time") from None
        finally:
            ending.cancel()
            used.close()

    def checked(self, host: str, port: int, until: float) -> Sequence[tuple[int, Any]]:
        """Families and addresses of a host; the connection is made to these, so that a later answer of DNS changes nothing.

        :param until: when DNS must have answered, by the monotonic clock.
        :raises RefusedAddressError: one of them is not public, and not allowed.
        """
        found = _resolved(host, port, until)
        for *_, place in found:
            one = ip_address(str(place[0]).partition("%")[0])
            if not (is_public(one) or any(one in network for network in self.allowed)):
                raise RefusedAddressError(
                    f"{host} leads to {one}, which is not a public address (QUEUE_DB_WEBHOOK_ALLOW allows it)"
                )
        return [(int(family), place) for family, _, _, _, place in found]

    def headers(self, message_id: str, body: bytes, at: datetime) -> dict[str, str]:
        """The headers of a message, with its signature."""
        sent = {
            "Content-Type": cloud_events.CONTENT_TYPE if self.form == "cloudevents" else "application/json",
            "User-Agent": f"queue-db/{__version__}",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(at.timestamp())),
        }
        if self.secret:
            sent["webhook-signature"] = Webhook(self.secret).sign(message_id, at.astimezone(UTC), body.decode())
        return sent


class _WholeResponse(http.client.HTTPResponse):
    """The final response, whose status line and headers are all there: the end of a connection within them is an error."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = _Lines(sock.makefile("rb", 0))

    def begin(self) -> None:
        """Read the head, after those of informational responses. ``http.client`` knows one of these, 100."""
        super().begin()
        while self.status in _INFORMATIONAL:
            self.headers = None  # type: ignore[assignment] # nothing has begun
            super().begin()


class _Lines(io.BufferedReader):
    def readline(self, size: int | None = -1) -> bytes:
        """A line with its end: ``http.client`` takes the end of what was read for one."""
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            raise http.client.IncompleteRead(line)
        return line


def deliver(job: LeasedJob) -> Dead | Retry | None:
    """The handler of jobs of the kind ``webhook``: any status of 200 to 299 is success, 410 ends it, others are tried again."""
    sent = job.headers.get("webhook")
    if job.group is not None and job.group.startswith(("https://", "http://")):
        # A process of a version without webhooks has made the job of the route.
        sent = {"url": job.group}
    if not isinstance(sent, dict) or not isinstance(sent.get("url"), str):
        return Dead("the job has no header webhook with an address: a route with the action webhook makes such jobs")
    message_id = f"{quote(job.queue, safe='')}-{job.id}"
    sender = Sender.from_environment()
    body = json.dumps(_content(job, sent, message_id, sender.form)).encode()
    try:
        status = sender.send(sent["url"], message_id, body, _claimed_at(job))
    except RefusedAddressError as error:
        return Dead(str(error))
    except ArgumentError:
        return Dead("the address in the job's header webhook cannot be used")
    except (OSError, http.client.HTTPException) as error:
        return Retry(f"{_host(sent['url'])} did not answer: {_reason(error)}")
    return _outcome(_host(sent["url"]), status)


def _content(job: LeasedJob, sent: Mapping[str, Any], message_id: str, form: str) -> dict[str, Any]:
    """What the body says of a message."""
    rest = {name: sent.get(name) for name in ("topic", "kind", "key")}
    headers = {name: value for name, value in job.headers.items() if name != "webhook"}
    if form == FORMATS[0]:
        return {"id": message_id, **rest, "payload": job.payload, "headers": headers, "published_at": rfc3339(job.created_at)}
    topic = rest["topic"]
    source = f"/queues/{quote(job.queue, safe='')}" if topic is None else f"/topics/{quote(topic, safe='')}"
    kind, key = rest["kind"] or job.kind, rest["key"]
    return cloud_events.event(message_id, source, kind, key=key, at=job.created_at, payload=job.payload, headers=headers)


def _outcome(host: str, status: int) -> Dead | Retry | None:
    if 200 <= status <= 299:
        return None
    if status == 410:
        return Dead(f"{host} answered 410: it does not want this any more")
    return Retry(f"{host} answered {status}" + (", a redirect, which is not followed" if 300 <= status <= 399 else ""))


def _host(url: str) -> str:
    """The host of an address. The rest is often a secret, and more people read errors than routes."""
    return urlsplit(url).hostname or ""


def _reason(error: Exception) -> str:
    """What went wrong, without what the other side has sent."""
    said = str(error) if isinstance(error, TimeoutError) else error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _claimed_at(job: LeasedJob) -> datetime:
    """When the job was claimed, by the database's clock."""
    if job.due_at is None or job.waited is None:
        return job.lease_expires
    return job.due_at + timedelta(seconds=job.waited)


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: ``whsec_`` and base64, or any text.

    :raises ConfigurationError: what follows ``whsec_`` is not base64, or nothing.
    """
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ConfigurationError("QUEUE_DB_WEBHOOK_SECRET: what follows whsec_ must be base64") from None
    if not key:
        raise ConfigurationError("QUEUE_DB_WEBHOOK_SECRET: nothing follows whsec_, so nothing would be signed")
    return key


def is_public(one: _Address) -> bool:
    """Whether an address is on the public internet, and not of this machine, a private network or a cloud's metadata."""
    if isinstance(one, IPv4Address):
        return not any(one in network for network in _NOT_PUBLIC_V4)
    inner = IPv4Address(int(one) & 0xFFFFFFFF) if one in _NAT64 else one.ipv4_mapped
    if inner is not None:
        return is_public(inner)
    return one in _GLOBAL_UNICAST and not any(one in network for network in _NOT_PUBLIC_V6)


def _resolved(host: str, port: int, until: float) -> list[Any]:
    """The addresses of a host, from the resolver of the system, which has no time limit: it runs in a thread of its own."""
    found: SimpleQueue[Any] = SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.put(error)
        finally:
            _resolving.release()

    if not _resolving.acquire(timeout=max(0.0, until - time.monotonic())):
        raise TimeoutError("too many names wait for DNS")
    threading.Thread(target=ask, name="queue_db-dns", daemon=True).start()
    try:
        answer = found.get(timeout=max(0.001, until - time.monotonic()))
    except Empty:
        raise TimeoutError("DNS has not answered") from None
    if isinstance(answer, UnicodeError):
        raise RefusedAddressError(f"{host} is no name of a host")
    if isinstance(answer, OSError):
        raise answer
    return list(answer)


def _connected(reached: Sequence[tuple[int, Any]], until: float) -> socket.socket:
    failed: OSError = TimeoutError("no address")
    for family, place in reached:
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            one.settimeout(max(0.001, until - time.monotonic()))
            one.connect(place)
        except OSError as error:
            one.close()
            failed = error
        else:
            return one
    raise failed


def _shut(one: socket.socket) -> None:
    try:
        # Not that of an SSLSocket, which would take the encryption away from the thread that reads.
        socket.socket.shutdown(one, socket.SHUT_RDWR)
    except OSError:
        return  # it is closed
