"""What a run of a worker is told, by its program, by signals, and by its own threads."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue


@dataclass(frozen=True, slots=True)
class Stop:
    """Claim no more, and end within ``grace`` seconds; None: the worker's own."""

    grace: float | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Quiet:
    """Claim no more, or claim again."""

    on: bool


@dataclass(frozen=True, slots=True)
class Show:
    """Show the stacks."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The claimer of a run has ended, or a handler has after it."""

    run: object


Mail = SimpleQueue[Stop | Quiet | Show | Ended]
"""The thread in ``Worker.run()`` reads it; a signal handler may put into it at any moment, which no lock or event allows."""


#: What stops a worker.
STOPS = ("SIGTERM", "SIGINT", "SIGHUP")


def wanted(names: Iterable[str]) -> list[int]:
    """The numbers of those of these signals that there are; not SIGHUP if it is ignored, as ``nohup`` asks for."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if not (is_hangup(number) and signal.getsignal(number) is signal.SIG_IGN)]


def is_hangup(number: int) -> bool:
    """Whether this is SIGHUP: a terminal that closes sends it twice, so the second one does not mean a hurry."""
    return number == getattr(signal, "SIGHUP", None)


@contextmanager
def handled(mail: Mail) -> Iterator[None]:
    """Let signals be put into ``mail``, if this is the main thread; what was there before is restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(number: int, frame: object) -> None:
        mail.put(Stop(signal=number))

    def hush(number: int, frame: object) -> None:
        mail.put(Quiet(on=number != getattr(signal, "SIGCONT", None)))

    def show(number: int, frame: object) -> None:
        mail.put(Show())

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(wanted(STOPS), tell)
    handlers |= dict.fromkeys(wanted(("SIGTSTP", "SIGCONT")), hush)
    handlers |= dict.fromkeys(wanted(("SIGUSR1",)), show)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


def stacks() -> str:
    """What every thread does."""
    # Not faulthandler: in Python 3.11 it crashed a process whose threads were running.
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way
    )
