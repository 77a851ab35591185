"""What came of messages whose publishers and consumers were killed: exact accounts of what is lost, repeated or stuck."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from queue_db import QueueDB
from queue_db.feeds import Feed
from tests.feeds.lives import FEEDS, notes
from tests.patience import PATIENCE


def prepare(db: QueueDB, name: str, ordering: str) -> None:
    """Create the feeds, routes and the shared cursor of a storm."""
    for part in FEEDS:
        db.feeds.set(f"{name}-{part}" if part else name, ordering=ordering, claims=part == "claims")
    for topic, target in ((f"{name}.in", f"{name}-inline"), (f"{name}.routed", f"{name}-routed")):
        db.routes.set(f"{target}-feed", feed=target)
        db.routes.set(f"{target}-jobs", enqueue=target)
        db.routes.set(f"{target}-count", count=target)
        for action in ("feed", "jobs", "count"):
            db.routes.subscribe(topic, f"{target}-{action}", form="exact")
    db.feed(name).shared("mailers", queue=f"{name}-spans", max_attempts=10_000)


def everything(feed: Feed) -> list[tuple[int, str]]:
    """Number and payload of all messages."""
    found, page = [], feed.read(limit=1000)
    while page.messages:
        found += [(message.seq, message.payload) for message in page.messages]
        page = feed.read(page.position, limit=1000)
    return found


def finish(db: QueueDB, name: str) -> float:
    """Do what is left, with one consumer of each sort; return the seconds from the last thing done until all was done.

    The leases of those that were killed are over: a cursor that is still held is an error here.
    """
    feed, claims, began = db.feed(name), db.feed(f"{name}-claims"), time.monotonic()
    limit = began + PATIENCE
    while True:
        done = _consume(db, name)
        waiting = sum(info.waiting for info in db.feeds.list() if info.name.startswith(name))
        if not done and not waiting and not feed.spans("mailers") and not claims.stats().total:
            return time.monotonic() - began
        if time.monotonic() > limit:
            raise AssertionError(f"stuck: {waiting} without a number, {feed.spans('mailers')}, {claims.stats()}")
        if not done:
            # The server may not have noticed yet that a process is gone, and keeps the locks of its transaction.
            db.database.pause(0.02)


def _consume(db: QueueDB, name: str) -> int:
    done, feed = 0, db.feed(name)
    for part in FEEDS:
        done += db.feed(f"{name}-{part}" if part else name).rank()
    with feed.cursor("copier") as cursor:
        for message in cursor.follow(idle=0):
            with db.database.begin() as connection:
                db.feed(f"{name}-copy").publish("n", message.payload, using=connection)
                cursor.ack(message, using=connection).require()
            done += 1
    done += db.routes.relay(name, "router", topic=f"{name}.routed")
    done += feed.forward("forwarder", f"{name}-forwarded")
    shared = feed.shared("mailers", queue=f"{name}-spans", max_attempts=10_000)
    while (span := shared.claim(100)) is not None:
        with db.database.begin() as connection:
            span.complete(using=connection).require()
            db.feed(f"{name}-spans").publish_many([("n", one.payload) for one in span.messages], using=connection)
        done += 1
    while (claimed := db.feed(f"{name}-claims").claim(100)) is not None:
        with db.database.begin() as connection:
            claimed.delete(claimed.messages, using=connection)
            db.feed(f"{name}-claimed").publish_many([("n", one.payload) for one in claimed.messages], using=connection)
        done += 1
    return done


@dataclass
class Account:
    """What came of a storm. ``faults`` is empty if every promise was kept."""

    published: int = 0  #: messages that are there
    unknown: int = 0  #: their publisher was killed before its publish returned
    there: int = 0  #: of the unknown, how many are there
    given: int = 0  #: messages that observers were given
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = "; ".join(self.faults) or "nothing lost, repeated, late or stuck"
        doubt = f"{self.there} of {self.unknown} in doubt are there"
        return f"{self.published} messages ({doubt}), {self.given} given to observers: {found}"

    def check(self, what: str, wrong: Any) -> None:
        """Note a fault, if there is one."""
        if wrong:
            self.faults.append(f"{what}: {str(wrong)[:300]}")

    def once(self, what: str, wanted: list[str], found: list[str]) -> None:
        """Each of the wanted ones is there once, and nothing else."""
        difference = Counter(found)
        difference.subtract(wanted)
        self.check(f"{what}: lost", [text for text, number in difference.items() if number < 0])
        self.check(f"{what}: repeated", [text for text, number in difference.items() if number > 0])


def account(db: QueueDB, name: str, folder: Path) -> Account:
    """Compare what publishers and observers have recorded with what is there."""
    seen = Account()
    tables = {part: everything(db.feed(f"{name}-{part}" if part else name)) for part in FEEDS if part != "claims"}
    for part, found in tables.items():
        seen.check(f"{part or 'feed'}: numbers", [seq for seq, _ in found] != list(range(1, len(found) + 1)))
    texts = {part: [text for _, text in found] for part, found in tables.items()}
    jobs = _jobs(db)
    # Of the feed with claims nothing is left: its messages are those that were claimed.
    for part, found in (("", texts[""]), ("claims", texts["claimed"]), ("inline", texts["inline"])):
        _published(seen, part, found, folder)
    source = texts[""]
    seen.check("copies: another order", texts["copy"] != source)
    seen.once("copies", source, texts["copy"])
    seen.check("routed: another order", texts["routed"] != source)
    seen.once("routed", source, texts["routed"])
    seen.once("routed to jobs", source, jobs(f"{name}-routed"))
    seen.once("forwarded", source, jobs(f"{name}-forwarded"))
    seen.once("spans", source, texts["spans"] + jobs(f"{name}-spans"))
    seen.once("jobs of a topic", texts["inline"], jobs(f"{name}-inline"))
    counted = {info.target: info.messages for info in db.routes.list() if info.action == "count"}
    for part in ("inline", "routed"):
        seen.check(f"{part}: counted", counted[f"{name}-{part}"] != len(texts[part]))
    for path in sorted(folder.glob("observe-*")):
        given = [tuple(one) for what, *values in notes(folder, path.name) if what == "read" for one in values[0]]
        seen.given += len(given)
        seen.check(f"{path.name}: given nothing", bool(source) and not given)
        seen.check(f"{path.name}: late, missing or repeated", given != tables[""][: len(given)])
    return seen


def _published(seen: Account, part: str, found: list[str], folder: Path) -> None:
    """All that publishers know to be committed, all or none of what they do not know, and nothing else."""
    lines = [values for role in ("publish-", "topic-") for values in notes(folder, role) if values[1:2] == [part]]
    done = [text for what, _, texts in lines if what == "done" for text in texts]
    tried = [texts for what, _, texts in lines if what == "try"]
    there, known = set(found), set(done)
    seen.published += len(found)
    seen.check(f"{part or 'feed'}: committed and lost", known - there)
    seen.check(f"{part or 'feed'}: there twice", [text for text, number in Counter(found).items() if number > 1])
    seen.check(f"{part or 'feed'}: never published", there - {text for texts in tried for text in texts})
    for texts in tried:
        if texts[0] not in known:
            seen.unknown += len(texts)
            seen.there += len(there & set(texts))
        seen.check(f"{part or 'feed'}: half of {texts}", len(there & set(texts)) not in {0, len(texts)})


def _jobs(db: QueueDB) -> Callable[[str], list[str]]:
    table = db.store.tables.jobs

    def of(queue: str) -> list[str]:
        with db.database.begin(write=False) as connection:
            return [
                db.core.codec.decode(text)
                for text in connection.execute(select(table.c.payload).where(table.c.queue == queue)).scalars()
            ]

    return of
