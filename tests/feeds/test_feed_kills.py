"""Publishers, rankers and consumers are killed at random points: nothing is lost, nothing is there twice, no number is missing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from queue_db import QueueDB
from tests.feeds.accounts import everything

#: Processes of each sort that are started and killed, one after the other.
LIVES = 3


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
