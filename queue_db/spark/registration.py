"""What Spark adds to the queue."""

from queue_db.slices import Slice
from queue_db.spark import tables
from queue_db.spark.streams.store import holding

SLICE = Slice(tables=tables.described, holder=holding)
