"""Publishers, rankers and consumers are killed at random points: nothing is lost, nothing is there twice, no number is missing."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queue_db import LeasedJob, QueueDB
from queue_db.worker import Worker
from tests.feeds.accounts import everything
from tests.patience import PATIENCE

#: Processes of each sort that are started and killed, one after the other.
LIVES = 2


def live_and_die(work: str, url: str, feed: str, who: str, steps: int) -> list[str]:
    """Run a process until it has done ``steps`` steps, kill it, and return the steps that it reported."""
    command = [sys.executable, "-m", "tests.feeds.program", work, url, feed, who]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        done = [process.stdout.readline().strip() for _ in range(steps)]
        process.kill()
        # What it had written before the kill took effect.
        done += process.stdout.read().splitlines()
    return [step for step in done if step]


@pytest.mark.rest("test_feed_deaths.py kills at each point of a publish and of an effect")
def test_what_was_published_stays_and_takes_effect_once(url: str, name: str, open_db: Callable[..., QueueDB]) -> None:
    db, rng = open_db(), random.Random(name)

    def publishers(who: int) -> list[str]:
        return [step for life in range(LIVES) for step in live_and_die("publish", url, name, f"{who}.{life}", rng.randint(1, 20))]

    def consumers() -> list[str]:
        return [step for _ in range(LIVES) for step in live_and_die("consume", url, name, "copier", rng.randint(1, 15))]

    with ThreadPoolExecutor(3) as pool:
        publishing = [pool.submit(publishers, who) for who in range(2)]
        consuming = pool.submit(consumers)
        reported = [step for each in publishing for step in each.result()]
        # The consumers wait for messages: publish until the last of them is gone.
        while not consuming.done():
            db.feed(name).publish("n", f"parent-{len(reported)}")
            reported.append(f"parent-{len(reported)}")
    consuming.result()

    feed = db.feed(name)
    published = everything(feed)
    assert [seq for seq, _ in published] == list(range(1, len(published) + 1)), "a number is missing"
    texts = [text for _, text in published]
    assert len(set(texts)) == len(texts), "a message is there twice"
    assert set(reported) <= set(texts), "a message whose publish returned is lost"

    with feed.cursor("copier", take_over=True) as cursor, db.database.begin() as connection:
        for message in cursor.follow(idle=0):
            db.feed(f"{name}-copy").publish("n", message.payload, using=connection)
    copied = [text for _, text in everything(db.feed(f"{name}-copy"))]
    assert copied == texts, "a message took effect twice, not at all, or out of turn"


def test_the_span_of_a_killed_worker_is_done_at_once(url: str, name: str, open_db: Callable[..., QueueDB]) -> None:
    """Another worker of this machine releases it: its lease would end after an hour."""
    db, done = open_db(), threading.Event()
    feed = db.feed(name)
    feed.publish_many([("n", "first"), ("n", "second")])
    assert live_and_die("hang", url, name, "", 1) == ["first"]
    (span,) = feed.spans("consumers")
    worker, attempts = Worker(db, feeds={f"{name}:consumers": 1}), []

    @worker.handles("n")
    def handle(job: LeasedJob) -> None:
        attempts.append((job.payload, job.attempts))
        if job.payload == "second":
            done.set()

    with worker:
        assert done.wait(PATIENCE)
    assert span.worker is not None
    assert attempts == [("first", 2), ("second", 2)]


def test_a_rescue_releases_the_spans_of_one_worker(name: str, open_db: Callable[..., QueueDB]) -> None:
    dead, alive = open_db(worker="dead"), open_db(worker="alive")
    feed = dead.feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    ours, theirs = feed.shared("consumers").claim(1), alive.feed(name).shared("consumers").claim(1)
    assert ours is not None
    assert theirs is not None
    assert alive.rescue("dead") == 1
    assert not ours.complete()
    assert theirs.complete()
    again = alive.feed(name).shared("consumers").claim(1)
    assert again is not None
    assert ([message.seq for message in again.messages], again.attempts) == ([1], 2)
