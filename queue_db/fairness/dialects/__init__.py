"""What fair queues need of each database. ``FairDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.fairness.dialects import mysql, postgresql, sqlite
from queue_db.fairness.dialects.base import Ahead, FairDialect, Search, Turn

__all__ = ["Ahead", "FairDialect", "Search", "Turn", "mysql", "postgresql", "sqlite"]
