"""What routes add to the queue."""

from queue_db.routes import tables
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described)
