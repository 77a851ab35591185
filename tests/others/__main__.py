"""Run test suites of other projects on private servers.

python -m tests.others NAME [NAME …] [--on KIND …] [--newest]
    Run suites, such as kombu, on their databases or on these; keep the results and write docs/integrations/suites.md.
    With --newest on the newest Python of Debian, and so with the newest packages, such as Django 6.
python -m tests.others --page
    Only write the page.

A suite is a module of this folder with a ``SUITE``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from tests.others import newest, page
from tests.others.suite import Outcome, Suite, SuiteFailed, run, versions_of_newest
from tests.servers import ServerFailed, ServerMissing, provide

NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in {"__init__", "__main__", "suite", "page", "newest"} and not path.stem.startswith("test_")
)


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.others", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME")
    parser.add_argument("--on", nargs="+", metavar="KIND")
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(1))  # an exit that ends the suite and its server
    wrong = 0
    for name in options.names:
        suite: Suite = importlib.import_module(f"tests.others.{name}").SUITE
        for kind in options.on or suite.kinds:
            wrong += not _run(suite, kind, on_newest=options.newest)
    page.write()
    return 1 if wrong else 0


def _run(suite: Suite, kind: str, *, on_newest: bool) -> bool:
    """Run a suite on one database, and say what happened; whether it went as expected."""
    began = time.monotonic()
    try:
        beside = versions_of_newest(suite) if on_newest else ""
        outcome, database = _on_a_server(suite, kind, on_newest=on_newest)
    except (SuiteFailed, ServerFailed, ServerMissing) as error:
        print(f"{suite.name} on {kind}: {error}", file=sys.stderr)
        return False
    expected = suite.expected(kind)
    surprises = outcome.surprises(expected)
    counts = f"{len(outcome.passed)} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped"
    where = ", ".join(filter(None, (database, beside)))
    print(f"{suite.name} {suite.version} on {where}: {counts} in {time.monotonic() - began:.0f} s")
    for surprise in surprises:
        print(f"  {surprise}")
    if not surprises:
        page.store(
            {
                "suite": suite.name,
                "version": suite.version,
                "kind": kind,
                "database": database,
                "beside": beside,
                "adapted": suite.adapted,
                "date": dt.datetime.now(dt.UTC).date().isoformat(),
                "passed": len(outcome.passed),
                "failed": len(outcome.failed),
                "skipped": len(outcome.skipped),
                "left_out": dict(suite.left_out),
                "differences": {test: expected[test] for test in sorted(outcome.failed)},
            }
        )
    return not surprises


def _on_a_server(suite: Suite, kind: str, *, on_newest: bool) -> tuple[Outcome, str]:
    """Run a suite on a new database; also return the database's name and version."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="queue-db-others-") as folder:
            url = f"sqlite:///{folder}/queue.db"
            version = newest.sqlite_version() if on_newest else sqlite3.sqlite_version
            return run(suite, kind, url, on_newest=on_newest), f"SQLite {version}"
    server = provide(kind, durable=False)
    try:
        names = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
        return run(suite, kind, server.create_database(), on_newest=on_newest), f"{names[kind]} {server.version}"
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
