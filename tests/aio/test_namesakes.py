"""What the classes for asyncio are beside the synchronous ones: documented, and not loaded before they are asked for."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_db import ConfigurationError
from queue_db.aio import AsyncQueueDB
from tools.asynchronous import names

#: How the section of each class begins in docs/reference.md.
SECTIONS = {
    "QueueDB": "QueueDB(",
    "Queue": "Queue`",
    "LeasedJob": "LeasedJob`",
    "DeadJobs": "db.dead`",
    "Schedules": "db.schedules`",
    "Graphs": "db.graphs`",
    "JobGraph": "db.graphs`",
    "Actions": "db.actions`",
    "Metrics": "db.metrics`",
    "Streams": "db.streams`",
    "Steps": "db.steps`",
    "Tokens": "db.tokens`",
    "Feed": "db.feed(name)`",
    "Feeds": "db.feeds`",
    "Routes": "db.routes`",
    "Topic": "db.topic(name)`",
    "Cursor": "feed.cursor(name)`",
    "SharedCursor": "feed.shared(name)`",
    "Span": "Span`",
    "MessageClaim": "MessageClaim`",
}


@pytest.mark.parametrize(("owner", "name"), [(twin.name, name) for twin, name in names()])
def test_a_verb_is_in_the_reference(owner: str, name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    section = page.split(f"\n## `{SECTIONS[owner]}", 1)[1].split("\n## ")[0]
    assert re.search(rf"`[^`\n]*\b{name}\b", section), f"docs/reference.md does not name {owner}.{name}"


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
