"""What graphs add to the queue."""

from queue_db.graphs import tables
from queue_db.graphs.store import changing, leaving
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described, nodes=leaving, prune=changing.prune)
