"""The web server: its connections."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import closing

import pytest

from queue_db import QueueDB
from queue_db.notifications.wakeup import Wakeup
from queue_db.service import Settings, service
from queue_db.service.http.server import server
from tests.patience import PATIENCE

# Beyond what select takes.
_HIGH = 1100

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@here
def test_no_part_of_an_answer_waits_for_an_acknowledgement(db: QueueDB) -> None:
    """On a socket that ``queue-db serve`` has opened: asyncio itself does this only for its own."""
    running = server(service(db, Settings(closed=False)))
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with socket.create_connection(listening.getsockname(), PATIENCE) as client:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                (protocol,) = running.server_state.connections
                theirs = protocol.transport.get_extra_info("socket")
                assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            running.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()


@here
def test_after_a_normal_end_nothing_is_ended_by_force(db: QueueDB) -> None:
    running = server(service(db, Settings(closed=False)))
    running.ends_process = True
    began = threading.Event()
    running.on_start = began.set
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        assert began.wait(PATIENCE)
        running.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert running._forced is not None
    assert running._forced.finished.is_set()


def test_a_process_with_many_connections_waits_for_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sockets have high numbers then, which ``select`` refuses: the wait would end at once, each time."""
    resource = pytest.importorskip("resource")
    fcntl = pytest.importorskip("fcntl")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= _HIGH:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pair = socket.socketpair

    def high() -> tuple[socket.socket, socket.socket]:
        reader, writer = pair()
        with reader:
            return socket.socket(fileno=fcntl.fcntl(reader.fileno(), fcntl.F_DUPFD, _HIGH)), writer

    monkeypatch.setattr(socket, "socketpair", high)
    wakeup = Wakeup(lambda: None, (1.0, 1.0))
    try:
        wakeup.set("mail")
        assert wakeup.wait(PATIENCE) == {"mail"}
        assert wakeup._reader.fileno() >= _HIGH
        assert not wakeup._is_set
    finally:
        wakeup.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_free_descriptors_waits() -> None:
    """A wait that needs one would end at once, each time, and the worker would query the database as fast as it can."""
    resource = pytest.importorskip("resource")
    source, other = socket.socketpair()

    class Source:
        """The wait has got as far as to ask which descriptor it is to watch: now there is news."""

        def fileno(self) -> int:
            wakeup.set("mail")
            return source.fileno()

        def received(self) -> set[str]:
            return set()

        def close(self) -> None:
            pass

    listener = Source()
    wakeup = Wakeup(lambda: listener, (1.0, 1.0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert wakeup.wait(PATIENCE) == set(), "it listens from now on"
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(source.fileno())
        waits = [wakeup.wait(PATIENCE) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wakeup.close()
        source.close()
        other.close()
    assert waits == [{"mail"}] * 3
