"""Connections of Kombu to the databases of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest

from queue_db.contrib.kombu import close_all

Connect = Callable[..., kombu.Connection]


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """Open a connection of its own to the shared database: ``connect(visibility_timeout=1)``; closed after the test."""
    opened: list[kombu.Connection] = []

    def open_it(**options: Any) -> kombu.Connection:
        opened.append(kombu.Connection(f"queuedb+{url}", transport_options=options))
        opened[-1].connect()
        return opened[-1]

    yield open_it
    for connection in opened:
        connection.release()
    close_all()
