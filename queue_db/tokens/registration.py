"""What API tokens add to the queue."""

from queue_db.slices import Slice
from queue_db.tokens import tables

SLICE = Slice(tables=tables.described)
