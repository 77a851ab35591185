"""The queue for asyncio programs: the same verbs, awaited, on asyncpg, aiomysql (or asyncmy) and aiosqlite.

Each verb runs the synchronous verb of the same name in a SQLAlchemy greenlet. Where this verb would wait, the event loop runs on.
"""

import importlib
from typing import TYPE_CHECKING, Any

from queue_db.errors import ConfigurationError

try:
    importlib.import_module("greenlet")
except ImportError:
    raise ConfigurationError(
        'queue_db.aio needs greenlet, which is not installed: pip install "queue-db[async-postgresql]" '
        "(or async-mysql, async-mariadb, async-sqlite)"
    ) from None

from queue_db.aio.db import AsyncQueueDB
from queue_db.aio.leased import AsyncLeasedJob
from queue_db.aio.queue import AsyncQueue
from queue_db.slices import load

if TYPE_CHECKING:
    from queue_db.dead.aio import AsyncDeadJobs
    from queue_db.feeds.aio.cursors import AsyncCursor, AsyncSharedCursor, AsyncSpan
    from queue_db.feeds.aio.feeds import AsyncFeed, AsyncFeeds
    from queue_db.feeds.aio.message_claims import AsyncMessageClaim
    from queue_db.graphs.aio import AsyncGraphs, AsyncJobGraph
    from queue_db.monitoring.aio import AsyncActions, AsyncMetrics
    from queue_db.routes.aio import AsyncRoutes, AsyncTopic
    from queue_db.schedules.aio import AsyncSchedules
    from queue_db.spark.streams.aio import AsyncStreams
    from queue_db.steps.aio import AsyncSteps
    from queue_db.tokens.aio import AsyncTokens

__all__ = [
    "AsyncActions",
    "AsyncCursor",
    "AsyncDeadJobs",
    "AsyncFeed",
    "AsyncFeeds",
    "AsyncGraphs",
    "AsyncJobGraph",
    "AsyncLeasedJob",
    "AsyncMessageClaim",
    "AsyncMetrics",
    "AsyncQueue",
    "AsyncQueueDB",
    "AsyncRoutes",
    "AsyncSchedules",
    "AsyncSharedCursor",
    "AsyncSpan",
    "AsyncSteps",
    "AsyncStreams",
    "AsyncTokens",
    "AsyncTopic",
]

# Imported when they are first used: the queue does not import its slices.
_OF_SLICES = {
    "AsyncActions": "monitoring.aio",
    "AsyncCursor": "feeds.aio.cursors",
    "AsyncDeadJobs": "dead.aio",
    "AsyncFeed": "feeds.aio.feeds",
    "AsyncFeeds": "feeds.aio.feeds",
    "AsyncGraphs": "graphs.aio",
    "AsyncJobGraph": "graphs.aio",
    "AsyncMessageClaim": "feeds.aio.message_claims",
    "AsyncMetrics": "monitoring.aio",
    "AsyncRoutes": "routes.aio",
    "AsyncSchedules": "schedules.aio",
    "AsyncSharedCursor": "feeds.aio.cursors",
    "AsyncSpan": "feeds.aio.cursors",
    "AsyncSteps": "steps.aio",
    "AsyncStreams": "spark.streams.aio",
    "AsyncTokens": "tokens.aio",
    "AsyncTopic": "routes.aio",
}


if not TYPE_CHECKING:  # for a type checker, any name would be an attribute of this module

    def __getattr__(name: str) -> Any:
        if name not in _OF_SLICES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return load(_OF_SLICES[name], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
