"""For users' tests and for ours: handlers run in line, a clock that is set, a count of statements.

Fixtures for pytest are in :mod:`.fixtures`, the conformance suite for dialects and strategies in :mod:`.suite`.
"""

from queue_db.testing.clock import SettableClock
from queue_db.testing.running import drain, inline
from queue_db.testing.statements import counted_statements

__all__ = ["SettableClock", "counted_statements", "drain", "inline"]
