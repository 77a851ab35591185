"""What each database says differently. The capability table of the docs is printed from these classes."""

from queue_db.dialects import mysql, postgresql, sqlite
from queue_db.dialects.base import Dialect, Listener, dialect_for, registered

__all__ = ["Dialect", "Listener", "dialect_for", "mysql", "postgresql", "registered", "sqlite"]
