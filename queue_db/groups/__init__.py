"""Jobs that wait for others: groups, whose jobs run in order, and batches, whose callback job comes after all their jobs."""

from queue_db.groups.verbs import Batch

__all__ = ["Batch"]
