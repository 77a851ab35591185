"""What steps add to the queue."""

from queue_db.slices import Slice
from queue_db.steps import store, tables

SLICE = Slice(tables=tables.described, prune=store.prune)
