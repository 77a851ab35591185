"""The differences between databases. The capability table of the docs is generated from these classes."""

from queue_db.dialects import mysql, postgresql, sqlite
from queue_db.dialects.base import Dialect, dialect_for, registered
from queue_db.dialects.listening import Listener, LoopListener

__all__ = ["Dialect", "Listener", "LoopListener", "dialect_for", "mysql", "postgresql", "registered", "sqlite"]
