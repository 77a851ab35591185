"""The commands of feeds: ``queue-db feeds``, ``cursors`` and ``claims``."""
