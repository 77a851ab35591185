"""Names that the suite imports."""

import contextlib


@contextlib.contextmanager
def exclusive_transaction():
    """Of their SQLite."""
    yield


def normalize_uuid(value):
    """Of their ids."""
    return str(value)
