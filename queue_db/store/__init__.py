"""The SQL that is the same for every database. Every function takes a :class:`Transaction` and never commits it."""

from queue_db.store.base import Store, Transaction
from queue_db.store.low_water_marks import LowWaterMarks

__all__ = ["LowWaterMarks", "Store", "Transaction"]
