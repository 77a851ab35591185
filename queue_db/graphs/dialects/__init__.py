"""What graphs need of each database. ``GraphDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.graphs.dialects import mysql, postgresql, sqlite
from queue_db.graphs.dialects.base import GraphDialect, Started, WaitingNode

__all__ = ["GraphDialect", "Started", "WaitingNode", "mysql", "postgresql", "sqlite"]
