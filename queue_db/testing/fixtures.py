"""Fixtures for pytest: write ``pytest_plugins = ["queue_db.testing.fixtures"]`` in your ``conftest.py``."""

# No entry point of pytest names them: for one, pytest would rewrite the asserts of the whole package, in every suite that uses it.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_db.db import QueueDB
from queue_db.tasks import Tasks
from queue_db.testing.clock import SettableClock
from queue_db.testing.tasks import InlineTasks, bound_tasks, inline_tasks


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


@pytest.fixture
def bind_tasks(queue_database: QueueDB) -> Iterator[Callable[[Tasks], None]]:
    """``bind_tasks(tasks)``: until the end of the test these tasks enqueue in :func:`queue_database`."""
    with ExitStack() as stack:
        yield lambda tasks: stack.enter_context(bound_tasks(tasks, queue_database))


@pytest.fixture
def run_inline() -> Iterator[Callable[[Tasks], InlineTasks]]:
    """``run_inline(tasks)``: until the end of the test these tasks run where they are enqueued, without a database."""
    with ExitStack() as stack:
        yield lambda tasks: stack.enter_context(inline_tasks(tasks))
