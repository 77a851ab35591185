"""The dialect-neutral SQL. Every function takes a Transaction and never commits."""

from queue_db.store.base import Store, Transaction
from queue_db.store.low_water_marks import LowWaterMarks

__all__ = ["LowWaterMarks", "Store", "Transaction"]
