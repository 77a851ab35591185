"""What groups and batches add to the queue."""

from queue_db.groups import tables
from queue_db.groups.store import dependents
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described, dependents=dependents)
