"""Several worker processes under one: started, told the signals, replaced when they die, and their jobs given back at once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from queue_db import arguments
from queue_db.worker.pauses import Pause
from queue_db.worker.signals import STOPS, wanted
from queue_db.worker.tether import NUMBER, VARIABLE, Life, Tether

log = logging.getLogger("queue_db.worker")

#: Seconds until a process that died is replaced: at first, and when it happens again and again. Not longer: a job that ends its
#: process at each attempt takes so many processes, and all other jobs wait meanwhile.
AGAIN = (0.1, 5.0)

#: The same after a process that could not start, although others did.
START_AGAIN = (1.0, 30.0)

#: A process that lives so long, seconds, makes the pause before its replacement short again.
SETTLED = 10.0

#: How long the end waits until the jobs of processes that died are given back, seconds.
GIVE_BACK = 10.0

# Between two looks at the children, seconds. A signal ends the wait.
_LOOK = 0.2

# What the children are told as the parent is.
_FORWARDED = (*STOPS, "SIGTSTP", "SIGCONT", "SIGUSR1")


@dataclass
class _Place:
    """One of the processes, and those that came before it."""

    number: int
    process: subprocess.Popen[bytes]
    tether: Tether
    started: float
    pause: Pause = field(default_factory=lambda: Pause(*AGAIN))
    before_start: Pause = field(default_factory=lambda: Pause(*START_AGAIN))
    start_at: float | None = None
    #: Gives back what the last process had in hand. The next one must find that: it may end when it finds nothing.
    giving_back: threading.Thread | None = None
    #: Its exit status, when nobody takes its place.
    ended: int | None = None


class Processes:
    """Runs ``command`` as ``count`` processes until they end or a signal ends them.

    SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT and SIGUSR1 are handed on. A process that dies after it has begun to claim is
    replaced, whatever its exit status, and ``died`` is called with its worker name; one that ends in good order is not replaced. If
    one fails before it claims and none has ever claimed, all are stopped. When the supervisor itself dies, the processes stop as
    after SIGTERM. Environment variables tell each of them its number and which pipe leads here (:mod:`queue_db.worker.tether`).

    :param environment: the processes'.
    :param died: gives back what the process of that name had in hand.
    """

    def __init__(self, command: Sequence[str], count: int, *, environment: Mapping[str, str], died: Callable[[str], None]) -> None:
        self._command = list(command)
        self._count = arguments.whole("processes", count, 1, 256)
        self._environment = dict(environment)
        self._died = died
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._stopping: int | None = None
        self._failed: int | None = None
        self._any_started = False

    def run(self) -> int:
        """Until all have ended; return the exit status: 0, that of a process that could not start, or -2 after SIGINT."""
        with self._handling_signals():
            places = [self._start(number + 1) for number in range(self._count)]
            while any(place.ended is None for place in places):
                with suppress(Empty):
                    self._hand_on(self._signals.get(timeout=_LOOK), places)
                for place in places:
                    self._look_after(place, places)
        until = time.monotonic() + GIVE_BACK
        for place in places:
            if place.giving_back is not None:
                place.giving_back.join(max(0.0, until - time.monotonic()))
        if self._failed is not None:
            return self._failed
        return -signal.SIGINT if self._stopping == signal.SIGINT else 0

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, lambda number, frame: self._signals.put(number)) for number in wanted(_FORWARDED)}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, signal.SIG_DFL if old is None else old)

    def _start(self, number: int) -> _Place:
        tether = Tether()
        with tether.theirs:
            theirs = tether.theirs.fileno()
            environment = self._environment | {VARIABLE: str(theirs), NUMBER: str(number)}
            # A session of its own: Ctrl-C reaches the parent, which hands it on once.
            process = subprocess.Popen(  # noqa: S603 - ourselves
                self._command, env=environment, start_new_session=True, pass_fds=[theirs]
            )
        log.info("process %d of %d: pid %d", number, self._count, process.pid)
        return _Place(number, process, tether, time.monotonic())

    def _hand_on(self, number: int, places: Sequence[_Place]) -> None:
        if number in wanted(STOPS):
            self._stopping = number
        for place in places:
            if place.ended is None and place.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(place.process.pid, number)

    def _look_after(self, place: _Place, places: Sequence[_Place]) -> None:
        if place.ended is not None:
            return
        if place.start_at is not None:
            self._start_again(place)
            return
        status = place.process.poll()
        life = place.tether.hear()
        self._any_started = self._any_started or life.started
        if status is None:
            return
        place.tether.close()
        if (life.ended and status >= 0) or (status == 0 and not life.started):
            place.ended = status
            return
        if life.name:
            place.giving_back = self._give_back(place.process.pid, life.name)
        if self._stopping is not None:
            place.ended = status
            return
        how = f"was killed by {_name_of(-status)}" if status < 0 else f"ended with status {status}"
        if status < 0 or life.started or self._any_started:
            self._replace(place, life, how)
            return
        log.error("process %d %s before it claimed anything: it cannot start, so all are stopped", place.number, how)
        place.ended = self._failed = status
        self._hand_on(signal.SIGTERM, places)

    def _replace(self, place: _Place, life: Life, how: str) -> None:
        if life.started:
            place.before_start.reset()
        if time.monotonic() - place.started >= SETTLED:
            place.pause.reset()
        wait = (place.pause if life.started else place.before_start).next()
        log.warning("process %d (pid %d) %s; another one takes its place in %.1f s", place.number, place.process.pid, how, wait)
        place.start_at = time.monotonic() + wait

    def _start_again(self, place: _Place) -> None:
        if self._stopping is not None:
            place.ended = 0
        elif time.monotonic() >= (place.start_at or 0.0) and not (place.giving_back and place.giving_back.is_alive()):
            fresh = self._start(place.number)
            place.process, place.tether, place.started, place.start_at = fresh.process, fresh.tether, fresh.started, None

    def _give_back(self, pid: int, name: str) -> threading.Thread:
        def give_back() -> None:
            try:
                self._died(name)
            except Exception as error:  # noqa: BLE001 - their leases run out
                message = "what process %d had in hand could not be given back and comes back when the leases run out: %s"
                log.warning(message, pid, error)

        # The database may be away, and signals must be handed on meanwhile.
        thread = threading.Thread(target=give_back, name=f"queue_db jobs of process {pid}", daemon=True)
        thread.start()
        return thread


def _name_of(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
