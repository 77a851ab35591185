"""The queue for asyncio programs: the same verbs, awaited, on asyncpg, aiomysql (or asyncmy) and aiosqlite.

Each verb runs its synchronous namesake in a SQLAlchemy greenlet; wherever the namesake would wait, the event loop goes on.
"""

import importlib

from queue_db.errors import ConfigurationError

try:
    importlib.import_module("greenlet")
except ImportError:
    raise ConfigurationError(
        'queue_db.aio needs greenlet, which is not installed: pip install "queue-db[async-postgresql]" '
        "(or async-mysql, async-mariadb, async-sqlite)"
    ) from None

from queue_db.aio.actions import AsyncActions
from queue_db.aio.cursors import AsyncCursor, AsyncSharedCursor, AsyncSpan
from queue_db.aio.db import AsyncQueueDB
from queue_db.aio.dead import AsyncDeadJobs
from queue_db.aio.feeds import AsyncFeed, AsyncFeeds
from queue_db.aio.leased import AsyncLeasedJob
from queue_db.aio.message_claims import AsyncMessageClaim
from queue_db.aio.metrics import AsyncMetrics
from queue_db.aio.queue import AsyncQueue
from queue_db.aio.routes import AsyncRoutes, AsyncTopic
from queue_db.aio.schedules import AsyncSchedules
from queue_db.aio.streams import AsyncStreams
from queue_db.aio.tokens import AsyncTokens

__all__ = [
    "AsyncActions",
    "AsyncCursor",
    "AsyncDeadJobs",
    "AsyncFeed",
    "AsyncFeeds",
    "AsyncLeasedJob",
    "AsyncMessageClaim",
    "AsyncMetrics",
    "AsyncQueue",
    "AsyncQueueDB",
    "AsyncRoutes",
    "AsyncSchedules",
    "AsyncSharedCursor",
    "AsyncSpan",
    "AsyncStreams",
    "AsyncTokens",
    "AsyncTopic",
]
