"""What the service adds to the queue."""

from queue_db.service import tables
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described)
