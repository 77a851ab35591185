"""Processes that use feeds and are killed: what each role does, what it records before and after, and how they are started.

``python -m tests.feeds.lives`` reads orders, one JSON object a line, and prints the exit status of each life: the processes are
forked from one that has imported everything, so that a life begins in a few milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event

from queue_db import ClaimError, CursorHeldError, LeaseLostError, QueueDB, TransientStorageError
from queue_db.feeds import Feed
from tests.feeds import wrong
from tests.prepared_text import text_of

#: The feeds of a storm, after its name: two that are published to, and what becomes of their messages.
FEEDS = ("", "claims", "copy", "spans", "claimed", "routed", "inline")

#: Where a process is killed, as seen from a statement.
AFTER, BEFORE_COMMIT, AFTER_COMMIT = "after", "before COMMIT", "after COMMIT"

#: How many routes a topic of a storm has.
ROUTES = 3

#: The share of the messages that consumers let fail, or give back.
FAILING, RELEASED = 0.1, 0.05


class Point(NamedTuple):
    """Where a process is killed: after the ``nth`` statement that begins so, or before or after the COMMIT that follows it."""

    begins: str
    when: str = AFTER
    nth: int = 1


@dataclass
class Order:
    """One life: a role, and where it ends."""

    url: str
    name: str
    role: str
    who: str
    folder: str
    seed: int = 0
    point: Point | None = None
    #: It is killed at this statement event; 0: not by itself.
    events: int = 0
    lease: float = 60.0
    #: How many steps it makes; None: it never ends by itself.
    steps: int | None = None
    wrong: str = ""
    pause: float = 0.0


@dataclass
class Life:
    """A process while it works."""

    order: Order
    db: QueueDB
    rng: random.Random
    done: int = 0  #: steps
    arrived: int = 0  #: statement events
    record: int = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.order.folder) / f"{self.order.role}-{self.order.who}"
        self.record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @property
    def name(self) -> str:
        return self.order.name

    def note(self, what: str, *values: Any) -> None:
        """One write: it stays, whatever happens to the process, and lines do not mix."""
        os.write(self.record, f"{json.dumps([what, *values])}\n".encode())

    def steps(self) -> Iterator[int]:
        """The numbers of the steps that are left; pauses in between keep the load bounded."""
        while self.order.steps is None or self.done < self.order.steps:
            self.done += 1
            yield self.done
            if self.order.pause:
                time.sleep(self.rng.uniform(0, 2 * self.order.pause))

    @property
    def following(self) -> dict[str, Any]:
        """How cursors are read: until nothing is left, or without end."""
        return {"limit": 5, "idle": None if self.order.steps is None else 0.0}

    def feed(self, part: str = "") -> Feed:
        """The feed of the storm, or one of those that belong to it."""
        return self.db.feed(f"{self.name}-{part}" if part else self.name)


def notes(folder: Path, role: str) -> list[list[Any]]:
    """What the processes whose role and name begin so have recorded."""
    return [json.loads(line) for path in sorted(folder.glob(f"{role}*")) for line in path.read_text().splitlines()]


# --- roles ----------------------------------------------------------------------------------------------------------


def publish(life: Life) -> None:
    """To the feed and the one with claims: one message, several, or within a transaction."""
    for number in life.steps():
        part = ("", "claims")[number % 2]
        feed, few = life.feed(part), 3 if number % 3 == 2 else 1
        texts = [f"{life.order.who}-{life.order.seed}-{number}.{at}" for at in range(few)]
        messages = [("n", text) for text in texts]
        life.note("try", part, texts)
        if number % 3:
            feed.publish_many(messages)
        else:
            with life.db.database.begin() as connection:
                feed.publish_many(messages, using=connection)
        life.note("done", part, texts)


def topic(life: Life) -> None:
    """To a topic whose routes are a feed, a queue and a counter."""
    inlet = life.db.topic(f"{life.name}.in")
    for number in life.steps():
        text = f"{life.order.who}-{life.order.seed}-{number}"
        life.note("try", "inline", [text])
        if number % 2:
            assert inlet.publish("n", text) == ROUTES
        else:
            with life.db.database.begin() as connection:
                assert inlet.publish("n", text, using=connection) == ROUTES
        life.note("done", "inline", [text])


def rank(life: Life) -> None:
    """Numbers what waits, in all feeds."""
    for _ in life.steps():
        for part in FEEDS:
            life.feed(part).rank()


def observe(life: Life) -> None:
    """Reads along from the last position that it has recorded."""
    feed, position = life.feed(), None
    for what, *values in notes(Path(life.order.folder), f"observe-{life.order.who}"):
        if what == "read":
            position = values[1]
    for _ in life.steps():
        page = feed.read(position, limit=20)
        position = page.position
        life.note("read", [[message.seq, message.payload] for message in page.messages], position)


def copy(life: Life) -> None:
    """Copies each message in the transaction that acknowledges it."""
    target, source = life.feed("copy"), life.feed()
    with source.cursor("copier", lease=life.order.lease) as cursor:
        for message in cursor.follow(**life.following):
            with life.db.database.begin() as connection:
                target.publish("n", message.payload, using=connection)
                cursor.ack(message, using=connection).require()


def share(life: Life) -> None:
    """Completes the messages of spans, each with its copy; some fail and become jobs, some are left for others."""
    target, shared = life.feed("spans"), life.feed().shared("mailers", queue=f"{life.name}-spans", max_attempts=10_000)
    for _ in life.steps():
        span = shared.claim(5, lease=life.order.lease)
        for message in [] if span is None else span.messages:
            assert span is not None
            fate = life.rng.random()
            if fate < FAILING:
                span.fail(message, "no", retry_in=0)
                continue
            if fate < FAILING + RELEASED:
                span.release()
                break
            with life.db.database.begin() as connection:
                if span.complete(message, using=connection):
                    target.publish("n", message.payload, using=connection)


def claim(life: Life) -> None:
    """Deletes the messages of claims, each with its copy; some are released."""
    source, target = life.feed("claims"), life.feed("claimed")
    for _ in life.steps():
        claimed = source.claim(5, lease=life.order.lease)
        for message in [] if claimed is None else claimed.messages:
            assert claimed is not None
            if life.rng.random() < RELEASED:
                claimed.release()
                break
            with life.db.database.begin() as connection:
                claimed.delete(message, using=connection)
                target.publish("n", message.payload, using=connection)


def route(life: Life) -> None:
    """A router."""
    life.db.routes.relay(life.name, "router", topic=f"{life.name}.routed", lease=life.order.lease, **life.following)


def forward(life: Life) -> None:
    """Makes jobs of the messages."""
    life.feed().forward("forwarder", f"{life.name}-forwarded", lease=life.order.lease, **life.following)


ROLES: dict[str, Callable[[Life], None]] = {
    one.__name__: one for one in (publish, topic, rank, observe, copy, share, claim, route, forward)
}


# --- a life ---------------------------------------------------------------------------------------------------------


def live(order: Order) -> None:
    """Work until the steps are done, or until it is killed."""
    with wrong.doing(order.wrong), QueueDB(order.url) as db:
        life = Life(order, db, random.Random(order.seed))
        if order.point is not None or order.events:
            _arm(life)
        while True:
            try:
                ROLES[order.role](life)
            except CursorHeldError:
                # By one that was killed: until the lease ends.
                time.sleep(0.05)
                life.arrived = 0
            except (TransientStorageError, ClaimError, LeaseLostError) as error:
                life.note("error", type(error).__name__, str(error)[:200])
            else:
                return


def _arm(life: Life) -> None:
    """Kill this process at its point."""
    point = life.order.point
    reached = 0

    def arrive(when: str, cursor: Any, statement: str) -> None:
        nonlocal reached
        statement = text_of(cursor, statement)
        life.arrived += 1
        here = life.arrived == life.order.events
        if point is not None:
            begins = when == AFTER and statement.startswith(point.begins)
            reached += begins
            commits = statement == "COMMIT" and point.when == f"{when} COMMIT"
            here = reached == point.nth and (begins if point.when == AFTER else commits)
        if here:
            life.note("dies", when, " ".join(statement.split())[:60])
            os.kill(os.getpid(), signal.SIGKILL)

    engine = life.db.database.engine
    event.listen(engine, "before_cursor_execute", lambda _, cursor, statement, *__: arrive("before", cursor, statement))
    event.listen(engine, "after_cursor_execute", lambda _, cursor, statement, *__: arrive(AFTER, cursor, statement))


def begin(order: Order) -> int:
    """Fork a life; return its process id. This process must have no threads and no open database."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        live(order)
        status = 0
    finally:
        if status:
            with (Path(order.folder) / "errors").open("a") as errors:
                errors.write(f"{order}\n{traceback.format_exc()}\n")
        os._exit(status)


# --- lives on order -------------------------------------------------------------------------------------------------


class Nursery:
    """A process that forks lives, one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.feeds.lives"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)

    def run(self, order: Order) -> int:
        """Let it live; return its exit status, negative: the signal that killed it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asdict(order))}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    """Fork a life for each line."""
    for line in sys.stdin:
        order = Order(**json.loads(line))
        order.point = None if order.point is None else Point(*order.point)
        _, status = os.waitpid(begin(order), 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
