"""As in all tests of workers, failed jobs wait. And nothing happens because a test takes long."""

import pytest

from tests.patience import HOURS, PATIENCE
from tests.worker.conftest import open_db

__all__ = ["open_db"]


@pytest.fixture(autouse=True)
def no_report_and_no_end_because_of_the_time(monkeypatch):
    """A span is reported at its end only, and the end of a run waits for that."""
    monkeypatch.setattr("queue_db.feeds.worker.span_work.REPORT_EVERY", HOURS)
    monkeypatch.setattr("queue_db.feeds.worker.slots._END", PATIENCE)
