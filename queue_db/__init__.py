"""A job queue in the SQL database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from queue_db.database.urls import url_of
from queue_db.db import QueueDB
from queue_db.errors import (
    ArgumentError,
    CheckpointMismatchError,
    ClaimError,
    ClaimExpiredError,
    ConfigurationError,
    CursorHeldError,
    DuplicateJobError,
    EnqueueError,
    FeedError,
    GraphNotFoundError,
    HandlerProcessError,
    HandlerResultError,
    IdempotencyKeyError,
    JobDeadError,
    JobNotFinishedError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    MessageClaimedError,
    MessageNotClaimedError,
    NoSuchCursorError,
    NoSuchFeedError,
    NoSuchStreamError,
    PayloadError,
    PermanentStorageError,
    PositionError,
    QueueDBError,
    RouteError,
    SchemaOutOfDateError,
    StagingError,
    StorageError,
    StreamError,
    StreamFencedError,
    TransientStorageError,
    TrimmedError,
    UnknownClaimError,
    UnknownKindError,
    UnsupportedError,
)
from queue_db.leased_job import LeasedJob
from queue_db.model import Capability, Controls, Counters, DeathReason, Job, State, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze, Suspended
from queue_db.queue import Queue
from queue_db.slices import load
from queue_db.strategies import Adaptive, Optimistic, Pessimistic, SkipLocked, Strategy
from queue_db.verbs.arrivals import Arrivals

if TYPE_CHECKING:
    from queue_db.feeds import Cursor, Feed, Message, MessageClaim, SharedCursor, Span
    from queue_db.graphs import Graph, JobGraph, NewGraph, NewNode, Node
    from queue_db.groups import Batch
    from queue_db.monitoring import (
        Action,
        FailureGroup,
        Finished,
        JobError,
        JobPage,
        KindStats,
        QueueMetrics,
        QueueStats,
        WorkerInfo,
    )
    from queue_db.routes import Topic
    from queue_db.schedules import Schedule
    from queue_db.steps import Step

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Adaptive",
    "ArgumentError",
    "Arrivals",
    "Batch",
    "Cancel",
    "Capability",
    "CheckpointMismatchError",
    "ClaimError",
    "ClaimExpiredError",
    "ConfigurationError",
    "Controls",
    "Counters",
    "Cursor",
    "CursorHeldError",
    "Dead",
    "DeathReason",
    "DuplicateJobError",
    "EnqueueError",
    "FailureGroup",
    "Feed",
    "FeedError",
    "Finished",
    "Graph",
    "GraphNotFoundError",
    "HandlerProcessError",
    "HandlerResultError",
    "IdempotencyKeyError",
    "Job",
    "JobDeadError",
    "JobError",
    "JobGraph",
    "JobNotFinishedError",
    "JobNotFoundError",
    "JobPage",
    "JobStateError",
    "KindStats",
    "LeaseLostError",
    "LeasedJob",
    "Message",
    "MessageClaim",
    "MessageClaimedError",
    "MessageNotClaimedError",
    "NewGraph",
    "NewNode",
    "NoSuchCursorError",
    "NoSuchFeedError",
    "NoSuchStreamError",
    "Node",
    "Optimistic",
    "PayloadError",
    "PermanentStorageError",
    "Pessimistic",
    "PositionError",
    "Queue",
    "QueueDB",
    "QueueDBError",
    "QueueMetrics",
    "QueueStats",
    "Retry",
    "RouteError",
    "Schedule",
    "SchemaOutOfDateError",
    "SharedCursor",
    "SkipLocked",
    "Snooze",
    "Span",
    "StagingError",
    "State",
    "Step",
    "StorageError",
    "Strategy",
    "StreamError",
    "StreamFencedError",
    "Suspended",
    "Topic",
    "TransientStorageError",
    "TrimmedError",
    "UnknownClaimError",
    "UnknownKindError",
    "UnsupportedError",
    "Verdict",
    "WorkerInfo",
    "__version__",
    "url_of",
]


# Imported when they are first used: the queue does not import its slices.
_OF_SLICES = {
    **dict.fromkeys(("Cursor", "Feed", "Message", "MessageClaim", "SharedCursor", "Span"), "feeds"),
    **dict.fromkeys(("Action", "FailureGroup", "Finished", "JobError", "JobPage"), "monitoring"),
    **dict.fromkeys(("KindStats", "QueueMetrics", "QueueStats", "WorkerInfo"), "monitoring"),
    "Batch": "groups",
    **dict.fromkeys(("Graph", "JobGraph", "NewGraph", "NewNode", "Node"), "graphs"),
    "Schedule": "schedules",
    "Step": "steps",
    "Topic": "routes",
}


if not TYPE_CHECKING:  # for a type checker, any name would be an attribute of this module

    def __getattr__(name: str) -> Any:
        if name in ("dead", "feeds", "graphs", "routes", "schedules"):
            return import_module(f"queue_db.{name}")
        if name not in _OF_SLICES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return load(_OF_SLICES[name], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
