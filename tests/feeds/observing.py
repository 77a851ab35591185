"""Publishers that take their time, and observers that read along: who misses what."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep

from queue_db import QueueDB


@dataclass
class Seen:
    """What the publishers committed, and what each observer read."""

    committed: set[str] = field(default_factory=set)
    observed: list[list[str]] = field(default_factory=list)

    def missed(self) -> int:
        """Messages that an observer never got, over all observers."""
        return sum(len(self.committed - set(seen)) for seen in self.observed)

    def repeated(self) -> int:
        """Messages that an observer got twice."""
        return sum(len(seen) - len(set(seen)) for seen in self.observed)

    def in_one_order(self) -> bool:
        """Whether all observers saw the same order."""
        return all(seen == self.observed[0] for seen in self.observed)


@dataclass
class Observation:
    """Publishers write transactions of one to three messages; observers read along until all is published and read.

    :param pause: longest pause inside a transaction, seconds. Pauses only make races more probable: what is checked does not depend
        on them.
    :param rollbacks: the share of transactions that are rolled back.
    """

    open_db: Callable[[], QueueDB]
    name: str
    transactions: int
    pause: float = 0.0
    rollbacks: float = 0.05
    seed: int = 1
    seen: Seen = field(default_factory=Seen)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, publishers: int, observers: int) -> Seen:
        """Run them all; an error of one is raised."""
        self.seen.observed = [[] for _ in range(observers)]
        with ThreadPoolExecutor(publishers + observers) as pool:
            watching = [pool.submit(self._follow, texts) for texts in self.seen.observed]
            publishing = [pool.submit(self._publish, number) for number in range(publishers)]
            try:
                for one in publishing:
                    one.result()
            finally:
                self._over.set()
            for one in watching:
                one.result()
        return self.seen

    def _publish(self, number: int) -> None:
        rng, db = random.Random(self.seed * 1000 + number), self.open_db()
        feed = db.feed(self.name)
        for turn in range(self.transactions):
            texts = [f"{number}-{turn}-{part}" for part in range(rng.randint(1, 3))]
            committed = rng.random() >= self.rollbacks
            with suppress(_RollBackError), db.database.begin() as connection:
                feed.publish_many([("n", text) for text in texts], using=connection)
                if self.pause:
                    sleep(rng.uniform(0, self.pause))
                if not committed:
                    raise _RollBackError
            if committed:
                with self._lock:
                    self.seen.committed |= set(texts)

    def _follow(self, texts: list[str]) -> None:
        db = self.open_db()
        feed = db.feed(self.name)
        position = feed.start()
        while True:
            # Another reader may be numbering messages at this moment: they are not lost, and not there yet.
            last = self._over.is_set() and not self._waiting(db)
            page = feed.read(position, limit=50)
            texts += [message.payload for message in page.messages]
            position = page.position
            if last and not page.messages:
                return

    def _waiting(self, db: QueueDB) -> int:
        return next(info.waiting for info in db.feeds.list() if info.name == self.name)


class _RollBackError(Exception):
    """Ends a transaction."""
