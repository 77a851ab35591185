"""For users' tests and for ours: a clock that is set, a count of statements, and the conformance suite (:mod:`.suite`)."""

from queue_db.testing.clock import SettableClock
from queue_db.testing.statements import counted_statements

__all__ = ["SettableClock", "counted_statements"]
