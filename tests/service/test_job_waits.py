"""The page of a job says why it waits, in the words of the page of its queue."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.store import Transaction, worker_registry
from tests.patience import PATIENCE

LONG_AGO = 1_000_000_000_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("waits") / "queue.db"


@pytest.fixture(scope="module")
def old(path: Path) -> Iterator[QueueDB]:
    """The database in the year 2001: its jobs have been due for long."""
    with QueueDB(f"sqlite:///{path}", clock=lambda: LONG_AGO) as old:
        old.migrate()
        yield old


@pytest.fixture(scope="module")
def db(old: QueueDB, path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{path}") as db:
        yield db


def serves(db: QueueDB, queue: str, in_hand: int = 0, state: str = "working", *others: str) -> None:
    """A worker that has just sent a heartbeat."""
    values = {"host": "h", "pid": 1, "queues": json.dumps(dict.fromkeys((queue, *others), 4)), "counters": "{}", "stuck": 0}
    db.core.write(
        "worker_registry.heartbeat", worker_registry.heartbeat, f"{queue}#1", values | {"state": state, "in_hand": in_hand}
    )


def reasons(client: httpx2.Client, path: str) -> list[str]:
    """What stands under "why it waits": the words and their label."""
    part = client.get(path).text.partition('id="wrong"')[2].partition("</div>")[0]
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", one)).split()) for one in re.findall(r"<li.*?</li>", part)]


def test_each_reason(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue, found = db.queue(name), []
    page = f"/jobs/{queue.enqueue('send')}"
    found += reasons(client, page)
    for in_hand, state in ((0, "quiet"), (4, "working"), (0, "working")):
        serves(db, name, in_hand, state)
        found += reasons(client, page)
    queue.limit(concurrency=3, rate=10, per=60)
    serves(db, name, 3)
    found += reasons(client, page)
    queue.pause()
    found += reasons(client, page)
    assert found == [
        f"waits queue {name!r}: no registered worker serves it (clients over HTTP and loops of claim() do not register)",
        f"waits queue {name!r}: all its workers are quiet or stopping",
        f"waits queue {name!r}: its 1 worker has no free slot: more processes, more concurrency, or shorter jobs",
        # A worker with a free slot is about to claim it: no reason.
        f"waits queue {name!r}: its 1 worker is held to 3 at once (queue-db queues limit {name} --none removes that)",
        f"waits queue {name!r}: it is paused (queue-db queues resume {name})",
    ]


def test_a_limit_that_is_not_reached_is_no_reason(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    page = f"/jobs/{queue.enqueue('send')}"
    queue.limit(concurrency=3, rate=10, per=60)
    for in_hand, others in ((0, ()), (2, ()), (3, ("other",))):
        serves(db, name, in_hand, "working", *others)
        assert reasons(client, page) == []


def test_a_job_that_has_been_due_for_long(db: QueueDB, old: QueueDB, name: str, client: httpx2.Client) -> None:
    late, stuck = old.queue(name).enqueue("send"), old.queue(f"{name}-stuck").enqueue("send")
    serves(db, name)
    assert reasons(client, f"/jobs/{late}") == [f"waits queue {name!r}: its 1 worker does not keep up"]
    db.queue(name).limit(concurrency=3, rate=10, per=60)
    assert f"waits queue {name!r}: its 1 worker is held to 3 at once and 10 in 60 s" in reasons(client, f"/jobs/{late}")[0]
    assert reasons(client, f"/jobs/{stuck}")[0].startswith(f"stuck queue '{name}-stuck': no registered worker")


def test_the_words_of_the_queue(old: QueueDB, name: str, client: httpx2.Client) -> None:
    job = old.queue(name).enqueue("send")
    (why,) = reasons(client, f"/jobs/{job}")
    label, _, words = why.partition(f" queue {name!r}: ")
    (of_queue,) = awaited(client, f"/queues/{name}")
    assert of_queue.startswith(label)
    assert of_queue.endswith(words)


def test_a_blocked_job_names_the_one_before_it(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue = db.queue(name)
    queue.pause()
    head, _, last = queue.enqueue_many([("send", n, {"group": "ann"}) for n in range(3)])
    page = f"/jobs/{last}"
    assert re.search(rf'first for <a href="/jobs/{head}">job {head}</a>, which is due', client.get(page).text)
    assert "it is paused" in reasons(client, page)[0]
    queue.resume()
    queue.claim()
    assert "which is running" in client.get(page).text
    assert reasons(client, page) == reasons(client, f"/jobs/{head}") == []


def test_no_handler(db: QueueDB, name: str, client: httpx2.Client) -> None:
    parked, other = db.queue(name).enqueue_many([("unknown", None, {"delay": 60}), ("send", None, {"delay": 60})])
    jobs = db.store.tables.jobs
    db.core.write("test", _execute, update(jobs).where(jobs.c.id == parked).values(unknown_since=jobs.c.created_at))
    (why,) = awaited(client, f"/jobs/{parked}")
    assert "1 job of kind 'unknown' has no handler" in why
    assert reasons(client, f"/jobs/{other}") == []


def awaited(client: httpx2.Client, path: str) -> list[str]:
    """The reasons, once the service has looked for stuck queues."""
    for _ in range(int(PATIENCE / 0.05)):
        if found := reasons(client, path):
            return found
        threading.Event().wait(0.05)
    pytest.fail(f"{path} never had a reason")


def _execute(tx: Transaction, statement: Any) -> None:
    tx.connection.execute(statement)
