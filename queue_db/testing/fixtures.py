"""Fixtures for pytest: write ``pytest_plugins = ["queue_db.testing.fixtures"]`` in your ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_db.db import QueueDB
from queue_db.testing.clock import SettableClock


@pytest.fixture
def queue_clock() -> SettableClock:
    """The clock of :func:`queue_database`: it moves only by ``queue_clock.advance(seconds)``."""
    return SettableClock()


@pytest.fixture
def queue_database(tmp_path: Path, queue_clock: SettableClock) -> Iterator[QueueDB]:
    """A new, migrated SQLite database that runs on ``queue_clock``."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db", clock=queue_clock) as db:
        db.migrate()
        yield db
