"""What a publish to a topic costs: ``python -m benchmarks routes --url URL``.

Statements (without BEGIN and COMMIT) and milliseconds of one publish in a transaction of its own: with patterns that do not match
beside one that does, and with 1000 routes that all act. Routes, feeds and queues named ``bench-…`` are created in the database and
deleted afterwards; the tables must exist (``queue-db migrate``), and nobody else may publish to topics.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import delete, insert

from queue_db import QueueDB
from queue_db.routes.patterns import pattern
from queue_db.routes.tables import route_tables
from queue_db.testing.statements import counted_statements

_MANY = 1000


@contextmanager
def prefix(db: QueueDB) -> Iterator[str]:
    """A prefix for all names; what has it is deleted afterwards."""
    name = f"bench-{secrets.token_hex(4)}"
    try:
        yield name
    finally:
        tables = route_tables(db.store.tables)
        for feed in db.feeds.list():
            if feed.name.startswith(name):
                db.feeds.delete(feed.name)
        with db.database.begin() as connection:
            for column in (
                *(
                    db.store.tables.jobs.c.queue,
                    tables.subscriptions.c.route,
                    tables.routes.c.name,
                    tables.counts.c.name,
                ),
                tables.definitions.c.target,
            ):
                connection.execute(delete(column.table).where(column.like(f"{name}%")))


def _fill(db: QueueDB, route: str, form: str, texts: Sequence[str]) -> None:
    """Subscribe one route to many patterns."""
    rows = [
        {"form": form, "pattern": one.text, "topic": one.topic, "like_pattern": one.like, "route": route}
        for one in (pattern(text, form) for text in texts)
    ]
    with db.database.begin() as connection:
        for first in range(0, len(rows), _MANY):
            connection.execute(insert(route_tables(db.store.tables).subscriptions), rows[first : first + _MANY])


def _measure(db: QueueDB, topic: str, repeat: int, acting: int) -> tuple[int, float, float]:
    """Statements of a publish, and its median and longest milliseconds."""
    published = db.topic(topic)
    for _ in range(3):  # connects, compiles and prepares
        acted = published.publish("n", {"number": 7})
        if acted != acting:
            raise AssertionError(f"{topic}: {acted} routes acted, not {acting}")
    with counted_statements(db.database.engine) as sent:
        published.publish("n", {"number": 7})
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        published.publish("n", {"number": 7})
        took.append((time.perf_counter() - began) * 1000)
    return len(sent), statistics.median(took), max(took)


def _others(db: QueueDB, repeat: int) -> Iterator[tuple[str, tuple[int, float, float]]]:
    """One route that acts, beside patterns that do not match."""
    forms: dict[str, Callable[[str, int], str]] = {
        "exact": lambda name, number: f"{name}.other.{number}",
        "glob": lambda name, number: f"{name}.other.{number}.*",
        "amqp": lambda name, number: f"{name}.*.other.{number}",
    }
    for form, text in forms.items():
        for count in (0, 10, 100, 10_000) if form == "exact" else (10, 100, 10_000):
            with prefix(db) as name:
                db.routes.set(name, feed=name)
                db.routes.subscribe(f"{name}.topic", name, form="exact")
                db.routes.set(f"{name}-other", drop=True)
                _fill(db, f"{name}-other", form, [text(name, number) for number in range(count)])
                yield f"1 feed, {count:,} {form} that do not match", _measure(db, f"{name}.topic", repeat, 1)


def _all(db: QueueDB, repeat: int) -> Iterator[tuple[str, tuple[int, float, float]]]:
    """A thousand routes that act."""
    for what in ("enqueue", "feed", "count"):
        with prefix(db) as name:
            for number in range(_MANY):
                target = f"{name}-{number}"
                if what == "enqueue":
                    db.routes.set(target, enqueue=target)
                elif what == "feed":
                    db.routes.set(target, feed=target)
                else:
                    db.routes.set(target, count=target)
                db.routes.subscribe(f"{name}.topic", target)
            yield f"{_MANY:,} routes, each {what}", _measure(db, f"{name}.topic", max(3, repeat // 10), _MANY)


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks routes", description=__doc__)
    parser.add_argument("--url", required=True, help="a migrated database that nobody else uses")
    parser.add_argument("--repeat", type=int, default=100, help="publishes of each case")
    options = parser.parse_args(arguments)
    show("| case | statements | median ms | longest ms |\n|---|---|---|---|")
    with QueueDB(options.url) as db:
        for cases in (_others, _all):
            for case, (sent, median, longest) in cases(db, options.repeat):
                show(f"| {case} | {sent} | {median:.2f} | {longest:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
