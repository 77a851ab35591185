"""Commands that run until Ctrl-C: they wait until a database that is away is back, and go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Self, TypeVar

from queue_db.concurrency.pauses import Pause
from queue_db.errors import QueueDBError, StorageError, TransientStorageError
from queue_db.worker.logs import Activity
from queue_db.worker.signals import available

_T = TypeVar("_T")

# Seconds between two tries while the database is away: first, longest.
RETRY = (0.1, 5.0)

#: Seconds for which a worker or the service waits at its start for a database that is away; whoever started it sees an error then.
START = 60.0


def lasting(what: str, run: Callable[[], Iterator[_T]]) -> Iterator[_T]:
    """What ``run`` yields. When the database is away, this is logged once, and ``run`` is called again until it is back.

    :param what: it does, for the log.
    """
    activity, pause = Activity(), Pause(*RETRY)
    while True:
        try:
            with closing(run()) as found:  # type: ignore[type-var]
                for one in found:
                    activity.worked()
                    pause.reset()
                    yield one
        except StorageError as error:
            if not (error.server_away or isinstance(error, TransientStorageError)):
                raise
            wait = pause.next()
            activity.failed(what, error, wait)
            time.sleep(wait)
        else:
            return


def started(what: str, start: Callable[[], _T], seconds: float = START) -> _T:
    """What ``start`` returns. While the database is away this is logged, and ``start`` is called again.

    :param what: it does, for the log.
    :param seconds: for which it is called again at most.
    :raises QueueDBError: the database is away for longer, or the error is another one.
    """
    activity, pause, until = Activity(), Pause(*RETRY), time.monotonic() + seconds
    while True:
        try:
            found = start()
        except QueueDBError as error:
            # Importing a module that opens the database is an error of the import.
            cause = error if isinstance(error, StorageError) else error.__cause__
            wait = pause.next()
            if not (isinstance(cause, StorageError) and cause.server_away) or time.monotonic() + wait > until:
                raise
            activity.failed(what, cause, wait)
            time.sleep(wait)
        else:
            activity.worked()
            return found


class Interrupts:
    """Within this context Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, so that the command removes what it has made, such as
    a schema of a comparison; a second signal ends the process.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in available(("SIGINT", "SIGTERM", "SIGHUP")):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    self._before[number] = before or signal.SIG_DFL
                    signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_error: object) -> None:
        self._restore()

    def _interrupt(self, number: int, frame: object) -> None:
        self._restore()
        raise KeyboardInterrupt

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
