"""A process of the kill tests; it prints a line for each step.

``python -m tests.feeds.program publish|consume|share|work|hang URL FEED NAME``

publish: publishes ``NAME-0``, ``NAME-1`` … without end, alternately by itself and within a transaction of its own.
share: claims spans of the shared cursor ``consumers`` and copies each message likewise, in the transaction that completes it.
work: a worker with two slots for this cursor; it copies each message in the transaction that completes it.
hang: a worker with a slot for this cursor, whose handler does not return.
consume: reads along with the cursor ``NAME`` and copies each message to ``FEED-copy``, in the transaction that acknowledges it.
"""

from __future__ import annotations

import sys
import threading
from itertools import count

from queue_db import LeasedJob, QueueDB
from queue_db.worker import Worker


def publish(db: QueueDB, name: str, who: str) -> None:
    feed = db.feed(name)
    for number in count():
        text = f"{who}-{number}"
        if number % 2:
            with db.database.begin() as connection:
                feed.publish("n", text, using=connection)
        else:
            feed.publish("n", text)
        print(text, flush=True)


def consume(db: QueueDB, name: str, who: str) -> None:
    copy = db.feed(f"{name}-copy")
    with db.feed(name).cursor(who, take_over=True) as cursor:
        for message in cursor.follow(limit=5):
            with db.database.begin() as connection:
                copy.publish("n", message.payload, using=connection)
                cursor.ack(message, using=connection).require()
            print(message.payload, flush=True)


def share(db: QueueDB, name: str, who: str) -> None:
    shared, copy = db.feed(name).shared("consumers", max_attempts=1000), db.feed(f"{name}-copy")
    while True:
        span = shared.claim(5, lease=0.5)
        for message in [] if span is None else span.messages:
            assert span is not None
            with db.database.begin() as connection:
                span.complete(message, using=connection).require()
                copy.publish("n", message.payload, using=connection)
            print(message.payload, flush=True)


def work(db: QueueDB, name: str, who: str) -> None:
    copy, worker = db.feed(f"{name}-copy"), Worker(db, feeds={f"{name}:consumers": 2}, span=5, lease=0.5)

    @worker.handles("n")
    def handle(job: LeasedJob) -> None:
        with job.transaction() as connection:
            copy.publish("n", job.payload, using=connection)
        print(job.payload, flush=True)

    worker.run()


def hang(db: QueueDB, name: str, who: str) -> None:
    worker = Worker(db, feeds={f"{name}:consumers": 1}, lease=3600)

    @worker.handles("n")
    def handle(job: LeasedJob) -> None:
        print(job.payload, flush=True)
        threading.Event().wait()

    worker.run()


if __name__ == "__main__":
    work, url, feed, who = sys.argv[1:]
    with QueueDB(url) as opened:
        {"publish": publish, "consume": consume, "share": share, "work": work, "hang": hang}[work](opened, feed, who)
