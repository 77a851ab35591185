"""What Spark needs of each database. ``SparkDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.spark.dialects import mysql, postgresql, sqlite
from queue_db.spark.dialects.base import Move, SparkDialect

__all__ = ["Move", "SparkDialect", "mysql", "postgresql", "sqlite"]
