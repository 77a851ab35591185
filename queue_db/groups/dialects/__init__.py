"""What groups need of each database. ``GroupDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.groups.dialects import mysql, postgresql
from queue_db.groups.dialects.base import GroupDialect

__all__ = ["GroupDialect", "mysql", "postgresql"]
