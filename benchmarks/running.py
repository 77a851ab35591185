"""What every benchmark run has: words on standard error, an end by signal that tidies up, and databases to measure on."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from queue_db.errors import QueueDBError

#: Databases that are measured where none is named.
TITLES = ("PostgreSQL", "MariaDB", "SQLite")


def say(words: str) -> None:
    """A line with the time on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)  # noqa: T201


def leave_politely() -> None:
    """Let SIGTERM be what Ctrl-C is: not the signal's own end, since what was made is removed on the way out."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ended(error: KeyboardInterrupt | QueueDBError) -> int:
    """Tell why a run came to an early end, and return the exit status that says so."""
    if isinstance(error, QueueDBError):
        say(f"error: {error}")
        return 2
    say("stopped; what was made in the databases is gone")
    return 130


@contextmanager
def addresses(urls: Sequence[str] | None, titles: Collection[str] = TITLES) -> Iterator[list[str]]:
    """The given databases, or private ones of ``titles`` as the test suite starts them; one that cannot be started is told."""
    if urls:
        yield list(urls)
        return
    from tests.servers import ServerFailed, ServerMissing, provide

    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for title in TITLES[:-1]:
            if title in titles:
                try:
                    found.append(provide(title.lower()).create_database())
                except (ServerMissing, ServerFailed) as error:
                    say(f"{title}: {str(error).splitlines()[0]}")
        if TITLES[-1] in titles:
            found.append(f"sqlite:///{folder}/queue.db")
        yield found
