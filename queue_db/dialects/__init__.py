"""The differences between databases. The capability table of the docs is generated from these classes."""

from queue_db.dialects import mysql, postgresql, sqlite
from queue_db.dialects.base import Dialect, dialect_for, dialect_of, registered
from queue_db.dialects.listening import Listener, LoopListener

__all__ = ["Dialect", "Listener", "LoopListener", "dialect_for", "dialect_of", "mysql", "postgresql", "registered", "sqlite"]
