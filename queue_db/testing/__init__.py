"""Helpers for tests: run handlers and tasks, also without a database, set the clock, count statements, compare locking strategies.

Fixtures for pytest are in :mod:`.fixtures`, the conformance suite for dialects and strategies is in :mod:`.suite`.
"""

from queue_db.testing.clock import SettableClock
from queue_db.testing.comparing import ComparedRow, compare
from queue_db.testing.jobs import async_job, job
from queue_db.testing.running import drain, inline
from queue_db.testing.statements import counted_statements
from queue_db.testing.tasks import InlineTasks, TaskRun, aassert_enqueued, assert_enqueued, bound_tasks, inline_tasks

__all__ = [
    "ComparedRow",
    "InlineTasks",
    "SettableClock",
    "TaskRun",
    "aassert_enqueued",
    "assert_enqueued",
    "async_job",
    "bound_tasks",
    "compare",
    "counted_statements",
    "drain",
    "inline",
    "inline_tasks",
    "job",
]
