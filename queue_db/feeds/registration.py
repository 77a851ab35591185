"""What feeds add to the queue."""

from queue_db.feeds import tables
from queue_db.feeds.store import cursors, publishes, spans
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described, prune=publishes.prune, rescue=spans.rescue, behind=cursors.behind)
