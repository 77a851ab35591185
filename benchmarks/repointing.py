"""A route is pointed back and forth while others publish at a rate: ``python -m benchmarks repointing --url URL``.

Processes publish numbered messages to one topic, each on time or as soon as it can. Meanwhile the topic's route is pointed at two
definitions in turns, without a pause or with one (``--every``). Afterwards each message must be in exactly one of the two feeds,
once. Routes and feeds named ``bench-…`` are created in the database and deleted; the tables must exist (``queue-db migrate``).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.routes import prefix, show
from queue_db import QueueDB


def _publish(url: str, topic: str, numbers: range, rate: float, begin: float) -> list[float]:
    """Publish the numbers, ``rate`` a second from ``begin`` on; milliseconds of each publish."""
    took = []
    with QueueDB(url) as db:
        published = db.topic(topic)
        for at, number in enumerate(numbers):
            wait = begin + at / rate - time.time()
            if wait > 0:
                time.sleep(wait)
            began = time.perf_counter()
            if published.publish("n", number) != 1:
                raise AssertionError(f"message {number} was not treated by one definition")
            took.append((time.perf_counter() - began) * 1000)
    return took


def _numbers(db: QueueDB, feed: str) -> list[int]:
    """The payloads of a feed."""
    found: list[int] = []
    page = db.feed(feed).read(limit=1000)
    while page.messages:
        found += [message.payload for message in page.messages]
        page = db.feed(feed).read(page.position, limit=1000)
    return found


def _run(db: QueueDB, url: str, name: str, options: argparse.Namespace) -> bool:
    sides = [db.routes.define(feed=f"{name}-{side}") for side in ("old", "new")]
    db.routes.set(name, feed=f"{name}-old")
    db.routes.subscribe(name, name, form="exact")
    each = round(options.rate * options.seconds / options.processes)
    pointed: list[float] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        begin = time.time() + 2.0  # the processes start meanwhile
        running = [
            pool.submit(_publish, url, name, range(who * each, (who + 1) * each), options.rate / options.processes, begin)
            for who in range(options.processes)
        ]
        while not all(one.done() for one in running):
            began = time.perf_counter()
            db.routes.assign(name, sides[len(pointed) % 2])
            pointed.append((time.perf_counter() - began) * 1000)
            time.sleep(options.every)
        took = sorted(milliseconds for one in running for milliseconds in one.result())
        seconds = time.time() - begin
    parts = [Counter(_numbers(db, f"{name}-{side}")) for side in ("old", "new")]
    there = parts[0] + parts[1]
    wanted = each * options.processes
    lost, repeated = sum(number not in there for number in range(wanted)), there.total() - len(there)
    published = f"{wanted:,} in {seconds:.1f} s: {wanted / seconds:,.0f}/s"
    split = f"{parts[0].total():,} + {parts[1].total():,}"
    publish = f"{statistics.median(took):.1f}; {took[int(0.99 * len(took))]:.1f}"
    show(f"| {published} | {len(pointed):,} | {split} | {lost} | {repeated} | {publish} | {statistics.median(pointed):.1f} |")
    return not lost and not repeated


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 if a message was lost or treated twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks repointing", description=__doc__)
    parser.add_argument("--url", required=True, help="a migrated database for tests")
    parser.add_argument("--rate", type=float, default=1000.0, help="publishes a second, over all processes (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for how long (10)")
    parser.add_argument("--processes", type=int, default=4, help="that publish (4)")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between two changes of the route (0)")
    options = parser.parse_args(arguments)
    show("| published | pointed | to each definition | lost | repeated | publish ms: median; p99 | point ms: median |")
    show("|---|---|---|---|---|---|---|")
    with QueueDB(options.url) as db, prefix(db) as name:
        return 0 if _run(db, options.url, name, options) else 1


if __name__ == "__main__":
    sys.exit(main())
