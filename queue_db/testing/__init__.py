"""Helpers for tests: run handlers, call one without a database, set the clock, count statements, compare locking strategies.

Fixtures for pytest are in :mod:`.fixtures`, the conformance suite for dialects and strategies is in :mod:`.suite`.
"""

from queue_db.testing.clock import SettableClock
from queue_db.testing.comparing import ComparedRow, compare
from queue_db.testing.jobs import job
from queue_db.testing.running import drain, inline
from queue_db.testing.statements import counted_statements

__all__ = ["ComparedRow", "SettableClock", "compare", "counted_statements", "drain", "inline", "job"]
