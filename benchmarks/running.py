"""Shared by all benchmark programs: messages on standard error, an orderly end after signals, and the databases."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from queue_db.errors import QueueDBError

#: Default databases.
TITLES = ("PostgreSQL", "MariaDB", "SQLite")


def say(words: str) -> None:
    """Print a line with the time to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)  # noqa: T201


def exit_on_sigterm() -> None:
    """Handle SIGTERM like Ctrl-C, so that schemas and servers are removed."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ended(error: KeyboardInterrupt | QueueDBError) -> int:
    """Print why a run ended early, and return its exit status."""
    if isinstance(error, QueueDBError):
        say(f"error: {error}")
        return 2
    say("stopped; what was made in the databases is gone")
    return 130


@contextmanager
def addresses(urls: Sequence[str] | None, titles: Collection[str] = TITLES) -> Iterator[list[str]]:
    """Yield the given databases, or private ones of ``titles`` like those of the test suite; report those that do not start."""
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
