"""As in all tests of workers, failed jobs wait."""

from tests.worker.conftest import open_db

__all__ = ["open_db"]
