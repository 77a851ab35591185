"""The commands that a run of a worker receives: from its program, from signals, and from its own threads."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop claiming, and end within ``grace`` seconds; None: within the worker's own grace time."""

    grace: float | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Quiet:
    """Stop claiming if ``on``; otherwise claim again."""

    on: bool


@dataclass(frozen=True, slots=True)
class LogStacks:
    """Log the stack of every thread."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The fetcher of a run has ended, or the last handler has ended after a stop."""

    run: object


Commands = SimpleQueue[Stop | Quiet | LogStacks | Ended]
"""Read by the thread in ``Worker.run()``. Signal handlers may call ``put``, which is reentrant; locks and events are not."""


#: The signals that stop a worker.
STOPS = ("SIGTERM", "SIGINT", "SIGHUP")


def available(names: Iterable[str]) -> list[int]:
    """The numbers of these signals, if the system has them. SIGHUP is left out if it is ignored, as under ``nohup``."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if not (is_hangup(number) and signal.getsignal(number) is signal.SIG_IGN)]


def is_hangup(number: int) -> bool:
    """Whether this is SIGHUP. A closing terminal sends it twice, so it is no second signal, which would end the grace time."""
    return number == getattr(signal, "SIGHUP", None)


@contextmanager
def signals_queued(commands: Commands) -> Iterator[None]:
    """Put signals into ``commands``, if this is the main thread; the previous signal handlers are restored at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        commands.put(Stop(signal=number))

    def quiet(number: int, frame: object) -> None:
        commands.put(Quiet(on=number != getattr(signal, "SIGCONT", None)))

    def log_stacks(number: int, frame: object) -> None:
        commands.put(LogStacks())

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(available(STOPS), stop)
    handlers |= dict.fromkeys(available(("SIGTSTP", "SIGCONT")), quiet)
    handlers |= dict.fromkeys(available(("SIGUSR1",)), log_stacks)
    with handled(handlers):
        yield


@contextmanager
def handled(handlers: Mapping[int, Callable[[int, object], None]]) -> Iterator[None]:
    """Handle signals in the main thread; the previous signal handlers are restored at the end."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


def stacks() -> str:
    """The stack of every thread, as text."""
    # Not faulthandler: in Python 3.11 it crashed a process whose threads were running.
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the only way
    )
