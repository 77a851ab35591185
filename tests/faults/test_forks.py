"""The child of a fork uses sessions of its own: two processes with one session would read each other's replies."""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from collections.abc import Callable

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB
from tests.patience import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def session(db: QueueDB) -> int:
    """The server's number of the session of the next transaction."""
    with db.database.begin(write=False) as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def fork_without_hooks() -> int:
    """Fork as uWSGI does by default: Python's hooks do not run."""
    # PyDLL keeps the interpreter's lock: if another thread had it at the fork, the child would wait for it for ever.
    return int(ctypes.PyDLL(None).fork())


def in_a_child(work: Callable[[], None], fork: Callable[[], int] = os.fork) -> None:
    child = fork()
    if not child:
        status = 1
        try:
            signal.alarm(int(PATIENCE))
            work()
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    assert os.waitpid(child, 0) == (child, 0)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("fork", [os.fork, fork_without_hooks])
@pytest.mark.parametrize("at_fork", ["kept", "in use"])
def test_a_connection_of_the_parent_is_not_used_in_the_child(url: str, name: str, at_fork: str, fork: Callable[[], int]) -> None:
    with QueueDB(url) as db:
        queue: Queue = db.queue(name)
        queue.enqueue("k")
        of_parent = session(db)
        taken = db.database.connections.take() if at_fork == "in use" else None

        def work() -> None:
            if taken is not None:
                db.database.connections.put_back(taken)
            assert session(db) != of_parent
            assert queue.claim()[0].complete()
            db.close()

        in_a_child(work, fork)
        if taken is not None:
            db.database.connections.put_back(taken)
        assert session(db) == of_parent
        assert not queue.claim()
