"""Feeds under load: ``python -m benchmarks.feeds soak|rates|drain --url URL``.

``soak``: publishers pause inside their transactions and roll some back, observers read along; who misses what. ``rates``: messages
per second, time of a post, and time until an observer has the message, of each ordering, in turns. ``drain``: messages per second
that are published, read and trimmed. Feeds named ``bench-…`` are
created in the database and deleted afterwards; the tables must exist (``queue-db migrate``).
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import update

from benchmarks.feed_controls import CONTROLS, BareInsert
from benchmarks.feed_drains import Drained, drain
from queue_db import QueueDB, TransientStorageError
from queue_db.feeds import Feed
from queue_db.feeds.store.orderings import ORDERINGS
from queue_db.feeds.tables import feed_tables


@contextmanager
def new_feed(url: str, ordering: str) -> Iterator[str]:
    """The name of an empty feed, deleted afterwards. One of a control has positions that are never ahead of it."""
    name = f"bench-{secrets.token_hex(4)}"
    ORDERINGS.update(CONTROLS)
    with QueueDB(url) as db:
        db.feeds.set(name, ordering=ordering, keep_for=0)
        if ordering == "naive":
            feeds = feed_tables(db.store.tables).feeds
            with db.database.begin() as connection:
                connection.execute(update(feeds).where(feeds.c.name == name).values(next_seq=2**40))
    try:
        yield name
    finally:
        with QueueDB(url) as db:
            db.feeds.delete(name)


# --- soak -------------------------------------------------------------------------------------------------------------


@dataclass
class Soak:
    """Publishers and observers of one feed in threads, each with connections of its own."""

    url: str
    feed: str
    seconds: float
    pause: float
    rollbacks: float
    committed: set[str] = field(default_factory=set)
    observed: list[list[str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, publishers: int, observers: int) -> None:
        """Run them all; an error of one is raised."""
        self.observed = [[] for _ in range(observers)]
        until = time.monotonic() + self.seconds
        with ThreadPoolExecutor(publishers + observers) as pool:
            watching = [pool.submit(self._observe, seen) for seen in self.observed]
            publishing = [pool.submit(self._publish, number, until) for number in range(publishers)]
            try:
                for one in publishing:
                    one.result()
            finally:
                self._over.set()
            for one in watching:
                one.result()

    def _publish(self, number: int, until: float) -> None:
        rng, turn = random.Random(number), 0
        with QueueDB(self.url) as db:
            feed = db.feed(self.feed)
            while time.monotonic() < until:
                turn += 1
                texts = [f"{number}-{turn}-{part}" for part in range(rng.randint(1, 3))]
                if self._transaction(db, feed, texts, rng.uniform(0, self.pause), commits=rng.random() >= self.rollbacks):
                    with self._lock:
                        self.committed |= set(texts)

    def _transaction(self, db: QueueDB, feed: Feed, texts: Sequence[str], pause: float, *, commits: bool) -> bool:
        """Publish within a transaction that takes a while; whether it was committed."""
        try:
            with db.database.begin() as connection:
                feed.publish_many([("n", text) for text in texts], using=connection)
                time.sleep(pause)
                _roll_back_unless(commits=commits)
        except _RollBackError:
            return False
        except TransientStorageError as error:
            if error.outcome_unknown:
                raise
            return False  # on SQLite, where others have held the one lock for too long
        return True

    def _observe(self, seen: list[str]) -> None:
        with QueueDB(self.url) as db:
            feed = db.feed(self.feed)
            position = feed.start()
            while True:
                last = self._over.is_set() and not self._waiting(db)
                page = feed.read(position)
                seen += [message.payload for message in page.messages]
                position = page.position
                if not page.messages:
                    if last:
                        return
                    time.sleep(0.002)

    def _waiting(self, db: QueueDB) -> int:
        return next(info.waiting for info in db.feeds.list() if info.name == self.feed)

    def verdict(self) -> dict[str, int]:
        """What went wrong, counted."""
        return {
            "committed": len(self.committed),
            "missed": sum(len(self.committed - set(seen)) for seen in self.observed),
            "twice": sum(len(seen) - len(set(seen)) for seen in self.observed),
            "rolled back, but read": sum(len(set(seen) - self.committed) for seen in self.observed),
            "other orders": sum(seen != self.observed[0] for seen in self.observed),
            "out of turn": sum(_out_of_turn(seen) for seen in self.observed),
        }


class _RollBackError(Exception):
    """Ends a transaction."""


def _roll_back_unless(*, commits: bool) -> None:
    if not commits:
        raise _RollBackError


def _out_of_turn(texts: Sequence[str]) -> int:
    """Messages that an observer got before an earlier one of the same publisher."""
    last: dict[str, tuple[int, int]] = {}
    found = 0
    for text in texts:
        publisher, turn, part = text.split("-")
        here = (int(turn), int(part))
        found += last.get(publisher, (-1, 0)) >= here
        last[publisher] = max(here, last.get(publisher, (-1, 0)))
    return found


def held_up(url: str, ordering: str, seconds: float) -> dict[str, float]:
    """One publisher pauses in its transaction: how long another of the same feed, and one of another feed, take to be read."""
    with new_feed(url, ordering) as one, new_feed(url, ordering) as other, QueueDB(url) as slow, QueueDB(url) as quick:
        took: dict[str, float] = {}

        def post(label: str, feed: Feed) -> None:
            began, position = time.monotonic(), feed.start()
            feed.publish("n", label)
            while not any(message.payload == label for message in feed.read(position).messages):
                time.sleep(0.002)
            took[label] = time.monotonic() - began

        for feed in (one, other):
            quick.feed(feed).publish("n", "before")
        with ThreadPoolExecutor(2) as pool:
            with slow.database.begin() as connection:
                slow.feed(one).publish("n", "slow", using=connection)
                posts = [pool.submit(post, "this feed", quick.feed(one)), pool.submit(post, "another feed", quick.feed(other))]
                time.sleep(seconds)
            for submitted in posts:
                submitted.result()
        return took


def soak(options: argparse.Namespace) -> int:
    """Run the soak for each ordering; the exit status is 1 if a promise was broken, or the control kept it."""
    wrong = False
    # One writer at a time: numbers from a sequence miss nothing there.
    soaked = ["counter", "ranked", *([] if options.url.startswith("sqlite") else ["naive"])]
    for ordering in options.orderings or soaked:
        with new_feed(options.url, ordering) as feed:
            run = Soak(options.url, feed, options.seconds, options.pause, options.rollbacks)
            run.run(options.publishers, options.observers)
        found = run.verdict()
        broken = any(number for what, number in found.items() if what != "committed")
        _show(f"{ordering:16} " + ", ".join(f"{what} {number:,}" for what, number in found.items()))
        wrong = wrong or broken is not (ordering == "naive")
        if ordering != "naive" and options.hold and not options.url.startswith("sqlite"):
            took = held_up(options.url, ordering, options.hold)
            waits = ", ".join(f"{feed} {seconds:.3f} s" for feed, seconds in took.items())
            _show(f"{'':16} while a publisher pauses {options.hold:g} s, a post is read after: {waits}")
    return int(wrong)


# --- rates ------------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """What was measured of one ordering with one size of batches."""

    rates: list[float] = field(default_factory=list)
    posts: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)


def _post(url: str, feeds: Sequence[str], batch: int, seconds: float, begin: Any, out: Any) -> None:
    """A process that publishes with a thread for each of ``feeds``."""
    ORDERINGS.update(CONTROLS)
    with QueueDB(url) as db, ThreadPoolExecutor(len(feeds)) as pool:

        def publish(target: Feed) -> list[float]:
            took = []
            target.row()
            begin.wait()
            until = time.monotonic() + seconds
            while (now := time.monotonic()) < until:
                target.publish_many([("n", now)] * batch)
                took.append(time.monotonic() - now)
            return took

        posts = [pool.submit(publish, db.feed(feed)) for feed in feeds]
        out.put(("posts", [took for post in posts for took in post.result()]))


def _watch(url: str, feed: str, begin: Any, out: Any) -> None:
    ORDERINGS.update(CONTROLS)
    with QueueDB(url) as db, db.feed(feed).cursor("observer") as cursor:
        begin.wait()
        late = [time.monotonic() - message.payload for message in cursor.follow(limit=1000, idle=2.0)]
    out.put(("visible", late))


def measure(options: argparse.Namespace, ordering: str, batch: int, cell: Cell) -> None:
    """One turn of one ordering: publishers, and an observer of each feed in a process of its own."""
    context = multiprocessing.get_context("fork")
    with new_feeds(options.url, ordering, options.feeds) as feeds:
        watched = feeds if ordering != BareInsert.name else []
        begin, out = context.Barrier(options.publishers + len(watched)), context.Queue()
        targets = [feeds[number % len(feeds)] for number in range(options.publishers)]
        count = options.processes or options.publishers
        processes = [
            context.Process(target=_post, args=(options.url, targets[number::count], batch, options.seconds, begin, out))
            for number in range(count)
        ] + [context.Process(target=_watch, args=(options.url, feed, begin, out)) for feed in watched]
        for process in processes:
            process.start()
        posted = 0
        for _ in processes:
            what, numbers = out.get(timeout=options.seconds + 120)
            getattr(cell, what).extend(numbers)
            posted += len(numbers) if what == "posts" else 0
        for process in processes:
            process.join()
        cell.rates.append(posted * batch / options.seconds)


@contextmanager
def new_feeds(url: str, ordering: str, count: int) -> Iterator[list[str]]:
    """Some new feeds."""
    if not count:
        yield []
        return
    with new_feed(url, ordering) as first, new_feeds(url, ordering, count - 1) as others:
        yield [first, *others]


def rates(options: argparse.Namespace) -> int:
    """Measure each ordering with each size of batches, in turns, and print a table."""
    orderings = options.orderings or ["counter", "ranked", "compare_and_set", "bare_insert"]
    cells = {(batch, ordering): Cell() for batch in options.batches for ordering in orderings}
    for _ in range(options.repeat):
        for (batch, ordering), cell in cells.items():
            measure(options, ordering, batch, cell)
    _show("| batch | ordering | messages/s | × bare | post: mean | sd | p99 | max | visible: p50 | p99 |")
    _show("|---|---|---|---|---|---|---|---|---|---|")
    for (batch, ordering), cell in cells.items():
        bare = cells.get((batch, BareInsert.name))
        rate = statistics.median(cell.rates)
        ratio = f"{rate / statistics.median(bare.rates):.2f}" if bare else ""
        times = [statistics.fmean(cell.posts), statistics.pstdev(cell.posts), _at(cell.posts, 0.99), max(cell.posts)]
        seen = [_at(cell.visible, 0.5), _at(cell.visible, 0.99)] if cell.visible else []
        shown = [f"{1000 * seconds:,.1f}" for seconds in times + seen] + [""] * (2 - len(seen))
        _show(f"| {batch} | {ordering} | {rate:,.0f} | {ratio} | {' | '.join(shown)} |")
    _show("Times in ms.")
    return 0


def drains(options: argparse.Namespace) -> int:
    """Publish, read and trim with each ordering and size of batches, in turns, and print a table."""
    orderings = options.orderings or ["counter", "ranked"]
    turns: dict[tuple[int, str], list[Drained]] = {(batch, ordering): [] for batch in options.batches for ordering in orderings}
    for _ in range(options.repeat):
        for (batch, ordering), done in turns.items():
            with new_feed(options.url, ordering) as feed:
                how = {"messages": options.messages, "batch": batch, "publishers": min(options.publishers, 4)}
                done.append(drain(options.url, feed, **how, orderings=CONTROLS))
    _show("| batch | ordering | messages/s | trim: s | log: bytes/message |")
    _show("|---|---|---|---|---|")
    for (batch, ordering), done in turns.items():
        rate = options.messages / statistics.median(one.seconds for one in done)
        logs = [one.log for one in done if one.log is not None]
        log = f"{statistics.median(logs):,.0f}" if logs else ""
        _show(f"| {batch} | {ordering} | {rate:,.0f} | {statistics.median(one.trim for one in done):.2f} | {log} |")
    return 0


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _at(numbers: Sequence[float], share: float) -> float:
    return sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feeds", description=__doc__)
    parser.add_argument("what", choices=("soak", "rates", "drain"))
    parser.add_argument("--url", required=True, help="a migrated database that nobody else uses")
    parser.add_argument("--orderings", nargs="*", help="default: all, with the controls")
    parser.add_argument("--seconds", type=float, default=None, help="of each ordering: 60 for soak, 5 for each turn of rates")
    parser.add_argument("--publishers", type=int, default=20)
    parser.add_argument(
        "--processes", type=int, help="rates: processes that share the publishers, as threads; default: one for each"
    )
    parser.add_argument("--observers", type=int, default=5, help="soak: readers of all messages")
    parser.add_argument("--pause", type=float, default=0.05, help="soak: longest pause in a transaction, seconds")
    parser.add_argument("--rollbacks", type=float, default=0.05, help="soak: share of transactions rolled back")
    parser.add_argument("--hold", type=float, default=10.0, help="soak: pause of the slow publisher, seconds; 0: none")
    parser.add_argument("--feeds", type=int, default=4, help="rates: number of feeds")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 10, 100], help="rates: messages of one publish")
    parser.add_argument("--messages", type=int, default=20_000, help="drain: messages of each turn")
    parser.add_argument("--repeat", type=int, default=3, help="rates: turns of each ordering")
    options = parser.parse_args(arguments)
    if options.seconds is None:
        options.seconds = 60.0 if options.what == "soak" else 5.0
    return {"soak": soak, "rates": rates, "drain": drains}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
