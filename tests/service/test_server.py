"""The web server: its connections."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.server import server
from tests.patience import PATIENCE

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
