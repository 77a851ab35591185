"""Commands that run until Ctrl-C: they wait until a database that is away is back, and go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from queue_db.errors import StorageError, TransientStorageError
from queue_db.feeds import Feed
from queue_db.pauses import Pause
from queue_db.worker.outages import Activity
from queue_db.worker.signals import available

_T = TypeVar("_T")

# Seconds between two tries while the database is away: first, longest.
RETRY = (0.1, 5.0)


def lasting(what: str, run: Callable[[bool], Iterator[_T]], *, retry: bool = True) -> Iterator[_T]:
    """What ``run`` yields. When the database is away, this is logged once, and ``run`` is called again with True until it is back.

    :param what: it does, for the log.
    :param retry: False: such an error is raised.
    """
    activity, pause = Activity(), Pause(*RETRY)
    again = False
    while True:
        try:
            with closing(run(again)) as found:  # type: ignore[type-var]
                for one in found:
                    activity.worked()
                    pause.reset()
                    yield one
        except StorageError as error:
            if not retry or not (error.server_away or isinstance(error, TransientStorageError)):
                raise
            wait = pause.next()
            activity.failed(what, error, wait)
            time.sleep(wait)
            again = True
        else:
            return


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised where Ctrl-C would be."""


@contextmanager
def terminable() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise :class:`Terminated`, so that the command ends its hold of a cursor; a second one
    ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: object) -> None:
        restore()
        raise Terminated

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in available(("SIGTERM", "SIGHUP"))}
    for number in list(before):
        signal.signal(number, terminate)
    try:
        yield
    finally:
        restore()


def held_here(feed: Feed, cursor: str) -> bool:
    """Whether this process holds the cursor: its last hold could not be ended because the database was away."""
    return any(info.name == cursor and info.holder == feed.core.worker for info in feed.cursors())
