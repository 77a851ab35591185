"""Several worker processes under one: started, told the signals, replaced when they die, and their jobs given back at once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from queue_db import arguments
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")

#: Seconds until a process that died is replaced: at first, and when it happens again and again.
AGAIN = (0.1, 30.0)

#: A process that lives so long, seconds, has started well.
SETTLED = 10.0

# Between two looks at the children, seconds. A signal ends the wait.
_LOOK = 0.2

# What the children are told as the parent is.
_FORWARDED = ("SIGTERM", "SIGINT", "SIGTSTP", "SIGCONT", "SIGUSR1")


@dataclass
class _Place:
    """One of the processes, and those that came before it."""

    number: int
    process: subprocess.Popen[bytes]
    started: float
    pause: Pause = field(default_factory=lambda: Pause(*AGAIN))
    start_at: float | None = None
    #: Its exit status, when nobody takes its place.
    ended: int | None = None


class Processes:
    """Runs ``command`` as ``count`` processes until they end or a signal ends them.

    SIGTERM, SIGINT, SIGTSTP, SIGCONT and SIGUSR1 are handed on. A process that is killed is replaced, and ``died`` is called with
    its process id before; one that ends by itself is not replaced, and one that fails before it has settled ends them all.

    :param environment: the processes'.
    :param died: gives back what that process had in hand.
    """

    def __init__(self, command: Sequence[str], count: int, *, environment: Mapping[str, str], died: Callable[[int], None]) -> None:
        self._command = list(command)
        self._count = arguments.whole("processes", count, 1, 256)
        self._environment = dict(environment)
        self._died = died
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._stopping: int | None = None
        self._failed: int | None = None

    def run(self) -> int:
        """Until all have ended; return the exit status: 0, that of a process that could not start, or -2 after SIGINT."""
        with self._handling_signals():
            places = [self._start(number + 1) for number in range(self._count)]
            while any(place.ended is None for place in places):
                with suppress(Empty):
                    self._hand_on(self._signals.get(timeout=_LOOK), places)
                for place in places:
                    self._look_after(place, places)
        if self._failed is not None:
            return self._failed
        return -signal.SIGINT if self._stopping == signal.SIGINT else 0

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
        before = {number: signal.signal(number, lambda number, frame: self._signals.put(number)) for number in numbers}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, signal.SIG_DFL if old is None else old)

    def _start(self, number: int) -> _Place:
        # A session of its own: Ctrl-C reaches the parent, which hands it on once.
        process = subprocess.Popen(self._command, env=self._environment, start_new_session=True)  # noqa: S603 - ourselves
        log.info("process %d of %d: pid %d", number, self._count, process.pid)
        return _Place(number, process, time.monotonic())

    def _hand_on(self, number: int, places: Sequence[_Place]) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stopping = number
        for place in places:
            if place.ended is None and place.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(place.process.pid, number)

    def _look_after(self, place: _Place, places: Sequence[_Place]) -> None:
        if place.ended is not None:
            return
        if place.start_at is not None:
            if self._stopping is not None:
                place.ended = 0
            elif time.monotonic() >= place.start_at:
                fresh = self._start(place.number)
                place.process, place.started, place.start_at = fresh.process, fresh.started, None
            return
        status = place.process.poll()
        if status is None:
            return
        lived = time.monotonic() - place.started
        if status < 0:
            self._give_back(place.process.pid)
        if self._stopping is not None or status == 0:
            place.ended = status
            return
        if status > 0 and lived < SETTLED:
            log.error(
                "process %d ended with status %d after %.1f s: it cannot start, so all are stopped", place.number, status, lived
            )
            place.ended = self._failed = status
            self._hand_on(signal.SIGTERM, places)
            return
        if lived >= SETTLED:
            place.pause.reset()
        wait = place.pause.next()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        log.warning("process %d (pid %d) %s; another one takes its place in %.1f s", place.number, place.process.pid, how, wait)
        place.start_at = time.monotonic() + wait

    def _give_back(self, pid: int) -> None:
        try:
            self._died(pid)
        except Exception as error:  # noqa: BLE001 - their leases run out
            log.warning(
                "what process %d had in hand could not be given back and comes back when the leases run out: %s", pid, error
            )
