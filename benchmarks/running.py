"""Shared by all benchmark programs: messages on standard error, an orderly end after signals, and the databases."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from queue_db import QueueDB
from queue_db.errors import QueueDBError

#: Default databases.
TITLES = ("PostgreSQL", "MariaDB", "SQLite")


def say(words: str) -> None:
    """Print a line with the time to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)  # noqa: T201


def sql_of(schema: str) -> Callable[[str], Path]:
    """A type of argparse: a readable file with the SQL of the functions in ``schema``."""

    def file(name: str) -> Path:
        path = Path(name)
        try:
            content = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(
                f"cannot read {name}: {getattr(error, 'strerror', None) or 'it is not text'}"
            ) from None
        if f"{schema}." not in content:
            raise argparse.ArgumentTypeError(f"{name} is not the SQL of {schema}: see python -m benchmarks spans --help")
        return path

    return file


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


def run(measure: Callable[[str, argparse.Namespace], None], asked: argparse.Namespace) -> int:
    """Measure each database of ``asked.url``; return the exit status."""
    exit_on_sigterm()
    try:
        with addresses(asked.url) as urls:
            for url in urls:
                measure(url, asked)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    return 0


@contextmanager
def own_tables(url: str, table: str) -> Iterator[QueueDB]:
    """Yield a database with tables of this name, which are dropped at the end."""
    with QueueDB(url, table=table) as db:
        db.migrate()
        try:
            yield db
        finally:
            db.migrate(revision="base")
            with suppress(Exception), db.database.begin("leave") as connection:
                connection.exec_driver_sql(f"DROP TABLE {db.store.tables.version}")


def add_options(parser: argparse.ArgumentParser, repeat: int) -> None:
    """Options of all programs that measure on tables of their own."""
    parser.add_argument("--url", action="append", metavar="URL", help="database; more than once for several. Without: private ones")
    parser.add_argument("--repeat", type=int, default=repeat, metavar="N", help=f"runs of each row (default {repeat})")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="multiply all sizes (default 1)")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None, sections: Sequence[str]) -> argparse.Namespace:
    """The options, with ``only`` as a list of ``sections``; a usage error ends the program."""
    parser.add_argument("--only", metavar="NAME,…", default=",".join(sections), help="measure these sections only")
    asked = parser.parse_args(arguments)
    asked.only = asked.only.split(",")
    if unknown := set(asked.only) - set(sections):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sections)}")
    if asked.repeat < 1 or not asked.scale > 0:
        parser.error("--repeat must be 1 or more, --scale above 0")
    return asked
