"""Every public verb has its namesake for asyncio, with the same arguments and words: one cannot change without the other."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_db import ConfigurationError, LeasedJob, Queue, QueueDB
from queue_db.aio import (
    AsyncActions,
    AsyncCursor,
    AsyncDeadJobs,
    AsyncFeed,
    AsyncFeeds,
    AsyncLeasedJob,
    AsyncMessageClaim,
    AsyncMetrics,
    AsyncQueue,
    AsyncQueueDB,
    AsyncRoutes,
    AsyncSchedules,
    AsyncSharedCursor,
    AsyncSpan,
    AsyncStreams,
    AsyncTokens,
    AsyncTopic,
)
from queue_db.dead import DeadJobs
from queue_db.feeds import Cursor, Feed, Feeds, MessageClaim, SharedCursor, Span
from queue_db.monitoring.actions import Actions
from queue_db.monitoring.metrics import Metrics
from queue_db.routes import Routes, Topic
from queue_db.schedules import Schedules
from queue_db.streams import Streams
from queue_db.tokens import Tokens

PAIRS: dict[type, type] = {
    QueueDB: AsyncQueueDB,
    Queue: AsyncQueue,
    LeasedJob: AsyncLeasedJob,
    DeadJobs: AsyncDeadJobs,
    Schedules: AsyncSchedules,
    Actions: AsyncActions,
    Metrics: AsyncMetrics,
    Streams: AsyncStreams,
    Tokens: AsyncTokens,
    Feed: AsyncFeed,
    Feeds: AsyncFeeds,
    Routes: AsyncRoutes,
    Topic: AsyncTopic,
    Cursor: AsyncCursor,
    SharedCursor: AsyncSharedCursor,
    Span: AsyncSpan,
    MessageClaim: AsyncMessageClaim,
}

#: How the section of each begins in docs/reference.md.
SECTIONS: dict[type, str] = {
    QueueDB: "QueueDB(",
    Queue: "Queue`",
    LeasedJob: "LeasedJob`",
    DeadJobs: "db.dead`",
    Schedules: "db.schedules`",
    Actions: "db.actions`",
    Metrics: "db.metrics`",
    Streams: "db.streams`",
    Tokens: "db.tokens`",
    Feed: "db.feed(name)`",
    Feeds: "db.feeds`",
    Routes: "db.routes`",
    Topic: "db.topic(name)`",
    Cursor: "feed.cursor(name)`",
    SharedCursor: "feed.shared(name)`",
    Span: "Span`",
    MessageClaim: "MessageClaim`",
}

#: What has no namesake, and why.
WITHOUT = {
    "QueueDB.ready": "for the package's own use",
    "QueueDB.store": "for the package's own use",
    "Queue.claim_unless": "for the worker, which is synchronous",
    "Queue.transaction_on_loop": "for the worker, which is synchronous",
    "Queue.progress_of": "for the package's own use",
    "Queue.extend_unlocked": "for the worker, which is synchronous",
    "Queue.recount": "for the worker, which is synchronous",
    "Feed.row": "for the package's own use",
    "Feed.forget": "for the package's own use",
    "Feed.message": "for the package's own use",
    "Feed.rank_once": "for the package's own use",
    "Feed.existing": "for the package's own use",
    "Feed.known": "for the package's own use",
    "SharedCursor.job": "for the package's own use",
    "SharedCursor.feed_id": "for the package's own use",
    "Span.extend_unlocked": "for the worker, which is synchronous",
    "Span.settle": "for the package's own use",
    "Feed.after_publish": "for the package's own use",
    "Cursor.pages": "for the package's own use",
    "Cursor.transfer": "for the package's own use",
    "LeasedJob.report_progress_to": "for the worker, which is synchronous",
    "LeasedJob.leased_for": "for the worker, which is synchronous",
    "LeasedJob.limit_attempts": "for the worker, which is synchronous",
    "LeasedJob.limited": "for the worker, which is synchronous",
    "LeasedJob.understood": "for the worker, which is synchronous",
    "LeasedJob.lost": "set by the worker, which is synchronous",
    "LeasedJob.waited": "known to the worker, which is synchronous",
    "LeasedJob.snapshot_row": "for the package's own use",
}

#: What is there for asyncio alone, or is an attribute of the other.
MORE = {
    "AsyncQueueDB.open": "the other one is opened when it is made",
    "AsyncQueueDB.actions": "an attribute",
    "AsyncQueueDB.metrics": "an attribute",
    "AsyncQueueDB.dead": "an attribute",
    "AsyncQueueDB.schedules": "an attribute",
    "AsyncQueueDB.streams": "an attribute",
    "AsyncQueueDB.tokens": "an attribute",
    "AsyncQueueDB.feeds": "an attribute",
    "AsyncQueueDB.routes": "an attribute",
    "AsyncQueueDB.schemas": "an attribute",
    "AsyncQueueDB.notifications": "an attribute",
    "AsyncLeasedJob.version": "an attribute",
    "AsyncMessageClaim.expires_at": "an attribute",
    "AsyncCursor.skipped": "an attribute",
    "AsyncSharedCursor.skipped": "an attribute",
}

#: What waits for nothing.
NOT_AWAITED = {
    "QueueDB.queue",
    "QueueDB.feed",
    "QueueDB.topic",
    "QueueDB.migration_sql",
    "Queue.transaction",
    "LeasedJob.transaction",
    "Cursor.follow",
}

WORDS = [
    (r"\bConnection \| Session \| AsyncConnection \| AsyncSession\b", "Connection | Session"),
    (r"-> 'Verdict \| Awaitable\[Verdict\]'", "-> 'Verdict'"),
    (r"-> 'JobTransaction'", "-> 'Iterator[Connection]'"),
    (r"\ba Connection or Session\b", "an AsyncConnection or AsyncSession"),
    (r"\bIterator\b", "AsyncIterator"),
    (r"\bConnection\b(?! or)", "AsyncConnection"),
    (r"\bSession\b", "AsyncSession"),
    (r"\bEngine\b", "AsyncEngine"),
    (r"(?<![`.])\bLeasedJob\b", "AsyncLeasedJob"),
    (r"-> 'Queue'", "-> 'AsyncQueue'"),
    (r"-> 'Feed'", "-> 'AsyncFeed'"),
    (r"-> 'Cursor'", "-> 'AsyncCursor'"),
    (r"-> 'SharedCursor'", "-> 'AsyncSharedCursor'"),
    (r"-> 'Span \| None'", "-> 'AsyncSpan | None'"),
    (r"-> 'Topic'", "-> 'AsyncTopic'"),
    (r"-> 'MessageClaim", "-> 'AsyncMessageClaim"),
]


def for_asyncio(text: str) -> str:
    for word, namesake in WORDS:
        text = re.sub(word, namesake, text)
    return text


def public(owner: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def documented(member: Any) -> tuple[str, str]:
    """Signature and docstring."""
    called = member.fget if isinstance(member, property) else member
    return str(inspect.signature(called)), inspect.getdoc(called) or ""


BOTH = [(owner, name) for owner in PAIRS for name in public(owner) if f"{owner.__name__}.{name}" not in WITHOUT]


@pytest.mark.parametrize(("owner", "name"), BOTH, ids=lambda part: getattr(part, "__name__", part))
def test_a_verb_and_its_namesake_are_told_in_the_same_words(owner: type, name: str) -> None:
    here, there = public(owner)[name], public(PAIRS[owner]).get(name)
    hint = f"{PAIRS[owner].__name__} has no {name}: write it in queue_db/aio, or in WITHOUT why there is none"
    assert there is not None, hint
    signature, words = documented(here)
    words = words.replace("a Connection or Session", "an AsyncConnection or AsyncSession")
    assert documented(there) == (for_asyncio(signature), words)
    awaited = not isinstance(here, property) and f"{owner.__name__}.{name}" not in NOT_AWAITED
    assert inspect.iscoroutinefunction(there) is awaited


@pytest.mark.parametrize(("owner", "name"), BOTH, ids=lambda part: getattr(part, "__name__", part))
def test_a_verb_is_in_the_reference(owner: type, name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    section = page.split(f"\n## `{SECTIONS[owner]}", 1)[1].split("\n## ")[0]
    assert re.search(rf"`[^`\n]*\b{name}\b", section), f"docs/reference.md does not name {owner.__name__}.{name}"


def test_nothing_is_there_for_asyncio_alone() -> None:
    more = {
        f"{namesake.__name__}.{name}" for owner, namesake in PAIRS.items() for name in set(public(namesake)) - set(public(owner))
    }
    assert more == set(MORE)


def test_it_is_made_with_the_same_options() -> None:
    assert str(inspect.signature(AsyncQueueDB.__init__)) == for_asyncio(str(inspect.signature(QueueDB.__init__)))


def test_the_library_knows_nothing_of_asyncio_drivers_until_it_is_asked() -> None:
    program = (
        "import sys, queue_db, queue_db.worker\n"
        "print(*[name for name in sys.modules if name.startswith(('asyncpg', 'aiomysql', 'asyncmy', 'aiosqlite', 'greenlet',\n"
        "                                                         'sqlalchemy.ext.asyncio', 'queue_db.aio'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_without_greenlet_there_is_a_way_out() -> None:
    program = "import sys; sys.modules['greenlet'] = None; import queue_db; import queue_db.aio"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert 'ConfigurationError: queue_db.aio needs greenlet, which is not installed: pip install "queue-db[async-' in done.stderr


async def test_it_must_be_opened_and_opens_once(tmp_path: Any) -> None:
    db = AsyncQueueDB(f"sqlite:///{tmp_path}/queue.db")
    with pytest.raises(ConfigurationError, match="not open"):
        db.queue("mail")
    opened = await asyncio.gather(*[db.open() for _ in range(5)])
    assert opened == [db] * 5
    first = db._db
    await db.open()
    assert db._db is first
    await db.migrate()
    await db.close()
    await db.close()
    with pytest.raises(ConfigurationError, match="not open"):
        await db.queues()
