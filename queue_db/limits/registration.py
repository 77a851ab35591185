"""What the limits of queues add to the queue.

A worker imports :mod:`queue_db.limits.limiter` when one of its queues has a limit. The service imports
:mod:`queue_db.limits.claims`.
"""

from queue_db.limits import store, tables
from queue_db.slices import Slice

SLICE = Slice(tables=tables.described, rescue=store.rescue, prune=store.prune)
