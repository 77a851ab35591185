"""What feeds need of each database. ``FeedDialect.of(dialect)`` is the one for a dialect of the queue."""

from queue_db.feeds.dialects import mysql, postgresql
from queue_db.feeds.dialects.base import FeedDialect
from queue_db.feeds.dialects.numbering import NumberedMove

__all__ = ["FeedDialect", "NumberedMove", "mysql", "postgresql"]
