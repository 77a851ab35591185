"""What feeds add to the queue."""

from functools import partial

from queue_db.feeds import retention, tables
from queue_db.feeds.store import cursors, publishes, spans
from queue_db.slices import Slice, load

SLICE = Slice(
    tables=tables.described,
    prune=publishes.prune,
    rescue=spans.rescue,
    behind=cursors.behind,
    slots=partial(load, "feeds.worker.slots", "FeedSlots"),
    tasks=retention.tasks,
)
