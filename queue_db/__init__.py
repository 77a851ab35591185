"""A job queue in the SQL database you already have."""

from queue_db.errors import (
    ArgumentError,
    ConfigurationError,
    DuplicateJobError,
    EnqueueError,
    JobNotFoundError,
    LeaseLostError,
    PayloadError,
    PermanentStorageError,
    QueueDBError,
    SchemaOutOfDateError,
    StorageError,
    TransientStorageError,
    UnknownKindError,
    UnsupportedError,
)
from queue_db.leased import LeasedJob
from queue_db.model import (
    Capability,
    Controls,
    Counters,
    DeathReason,
    Finished,
    Job,
    JobError,
    KindStats,
    QueueStats,
    State,
    Verdict,
    WorkerInfo,
)
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.queues import QueueDB
from queue_db.strategies import Adaptive, Optimistic, Pessimistic, SkipLocked, Strategy

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "ArgumentError",
    "Cancel",
    "Capability",
    "ConfigurationError",
    "Controls",
    "Counters",
    "Dead",
    "DeathReason",
    "DuplicateJobError",
    "EnqueueError",
    "Finished",
    "Job",
    "JobError",
    "JobNotFoundError",
    "KindStats",
    "LeaseLostError",
    "LeasedJob",
    "Optimistic",
    "PayloadError",
    "PermanentStorageError",
    "Pessimistic",
    "Queue",
    "QueueDB",
    "QueueDBError",
    "QueueStats",
    "Retry",
    "SchemaOutOfDateError",
    "SkipLocked",
    "Snooze",
    "State",
    "StorageError",
    "Strategy",
    "TransientStorageError",
    "UnknownKindError",
    "UnsupportedError",
    "Verdict",
    "WorkerInfo",
    "__version__",
]
