"""The dialect-neutral SQL. Every function takes a Connection, belongs to the caller's transaction, and never commits."""

from queue_db.store.base import Store
from queue_db.store.low_water_marks import LowWaterMarks

__all__ = ["LowWaterMarks", "Store"]
