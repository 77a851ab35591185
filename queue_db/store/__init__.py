"""The dialect-neutral SQL. Every function takes a Connection, belongs to the caller's transaction, and never commits."""

from queue_db.store.base import Store
from queue_db.store.marks import Marks

__all__ = ["Marks", "Store"]
