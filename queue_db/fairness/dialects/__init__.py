"""What fair queues need of each database. ``FairDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.fairness.dialects import mysql, postgresql
from queue_db.fairness.dialects.base import Claimed, FairDialect, Turn

__all__ = ["Claimed", "FairDialect", "Turn", "mysql", "postgresql"]
