"""The orderings of feeds side by side: threads publish to some feeds, and a reader of each takes note of what it gets."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from queue_db import QueueDB, QueueDBError, StorageError
from queue_db.compare.contestant import Target
from queue_db.compare.feed_controls import CONTROLS, BareInsert, registered
from queue_db.compare.measures import Post
from queue_db.compare.results import FeedRow, FeedTurn
from queue_db.database.database import COUNTED
from queue_db.database.masking import mask, secrets_in
from queue_db.feeds import Feed
from queue_db.feeds.settings import FeedOrdering
from queue_db.feeds.store.orderings import ORDERINGS

#: As in the article: 20 requests at a time, 4 queues, one small message each.
PUBLISHERS, FEEDS = 20, 4

# Seconds that a reader waits for another message before it looks whether the publishers have ended; then it reads what is left.
_IDLE = 0.2

#: What an ordering does, for people.
WORDS = {
    "counter": "each publish takes the next number; those of one process go together",
    "ranked": "inserts into an inbox; readers number what they read",
    "compare_and_set": "reads the number and sets the next one if no other publisher has; otherwise again",
    "bare_insert": "inserts without a number: the upper limit; it cannot be read",
}


@dataclass
class _Turn:
    """One ordering for some seconds."""

    db: QueueDB
    feeds: Sequence[str]
    publishers: int
    seconds: float
    readable: bool
    posts: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    got: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> FeedTurn:
        """Publish and read."""
        readers = self.feeds if self.readable else ()
        begin = threading.Barrier(self.publishers + len(readers))
        before = replace(self.db.counters)
        with ThreadPoolExecutor(self.publishers + len(readers)) as pool:
            reading = [pool.submit(self._read, self.db.feed(feed), begin) for feed in readers]
            targets = [self.db.feed(self.feeds[number % len(self.feeds)]) for number in range(self.publishers)]
            publishing = [pool.submit(self._publish, number, target, begin) for number, target in enumerate(targets)]
            wait(publishing)
            self._over.set()
            problems = [one.exception() for one in publishing + reading]
        # Of several errors the first one; the others were broken off by it.
        for problem in sorted(filter(None, problems), key=lambda one: isinstance(one, threading.BrokenBarrierError)):
            raise problem
        for fault, name in COUNTED.items():
            self.errors[fault.value] += getattr(self.db.counters, name) - getattr(before, name)
        return FeedTurn(
            messages=len(self.sent),
            seconds=self.seconds,
            post=Post.of(sorted(self.posts)),
            visible=Post.of(sorted(self.late)),
            errors={kind: count for kind, count in sorted(self.errors.items()) if count},
            gaps=len(self.sent - set(self.got)) if self.readable else None,
            duplicates=sum(count - 1 for count in self.got.values()) if self.readable else None,
        )

    def _publish(self, number: int, feed: Feed, begin: threading.Barrier) -> None:
        posts: list[float] = []
        with _aborting(begin):
            feed.publish("warm-up", None)
        begin.wait()
        until, turn = time.monotonic() + self.seconds, 0
        sent: list[int] = []
        while (now := time.monotonic()) < until:
            turn += self.publishers
            try:
                feed.publish("n", [turn + number, now])
            except StorageError as error:
                if error.outcome_unknown:
                    with self._lock:
                        self.errors["outcome unknown"] += 1
                continue  # counted by the database
            posts.append(time.monotonic() - now)
            sent.append(turn + number)
        with self._lock:
            self.posts += posts
            self.sent.update(sent)

    def _read(self, feed: Feed, begin: threading.Barrier) -> None:
        late: list[float] = []
        got: list[int] = []
        with _aborting(begin):
            opened = feed.cursor("reader")
        with opened as cursor:
            begin.wait()
            while True:
                last = self._over.is_set()
                for page in cursor.pages(1000, 0.0 if last else _IDLE):
                    now = time.monotonic()
                    for message in page:
                        if message.kind == "n":
                            number, posted = message.payload
                            late.append(now - posted)
                            got.append(number)
                if last:
                    break
        with self._lock:
            self.late += late
            self.got.update(got)


@contextmanager
def _aborting(begin: threading.Barrier) -> Iterator[None]:
    """An error before the start stops the others too."""
    try:
        yield
    except BaseException:
        begin.abort()
        raise


def race(target: Target, ordering: str, *, turns: int, seconds: float, publishers: int = PUBLISHERS, feeds: int = FEEDS) -> FeedRow:
    """Measure one ordering in the schema of ``target``, whose tables exist."""
    row = FeedRow(name=ordering, words=WORDS.get(ordering, ""), publishers=publishers, feeds=feeds)
    with registered(), QueueDB(target.url, schema=target.schema, pool_size=publishers + feeds) as db:
        names = [f"feed-{number}" for number in range(feeds)]
        for turn in range(turns):
            failed = f"turn {turn + 1}: "
            try:
                for name in names:
                    db.feeds.set(name, ordering=cast("FeedOrdering", ordering))
            except QueueDBError as error:
                return replace(row, failed=mask(f"{failed}{error}", secrets_in(target.url)))
            try:
                row.turns.append(_Turn(db, names, publishers, seconds, ordering != BareInsert.name).run())
            except QueueDBError as error:
                return replace(row, failed=mask(f"{failed}{error}", secrets_in(target.url)))
            finally:
                for name in names:
                    db.feeds.delete(name)
    return row


def orderings() -> list[str]:
    """The orderings to measure, with those to compare with at the end."""
    return list(ORDERINGS | CONTROLS)
