"""Workers in a thread of the test, and their log lines to wait for."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from queue_db.feeds.worker.slots import FeedSlots
from queue_db.worker import Worker
from queue_db.worker.leases import Heartbeat
from queue_db.worker.run import Run
from tests.patience import PATIENCE


class Log(logging.Handler):
    """Collects what the worker logs; a test may wait for a line."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: list[str] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._more:
            self._lines.append(record.getMessage())
            self._more.notify_all()

    def wait(self, part: str) -> str:
        """The first line with ``part`` in it."""
        with self._more:
            found = self._more.wait_for(lambda: next((line for line in self._lines if part in line), None), PATIENCE)
        assert found, f"no line with {part!r} in {self._lines}"
        return str(found)

    def count(self, part: str) -> int:
        """How many lines have ``part`` in them."""
        with self._more:
            return sum(part in line for line in self._lines)

    def has(self, part: str) -> bool:
        with self._more:
            return any(part in line for line in self._lines)


@pytest.fixture
def log() -> Iterator[Log]:
    logger = logging.getLogger("queue_db.worker")
    handler, level = Log(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.fixture
def running() -> Callable[..., object]:
    """``with running(worker): …`` runs it in a thread, and stops it at the end."""

    @contextmanager
    def run(worker: Worker, **options: object) -> Iterator[threading.Thread]:
        thread = threading.Thread(target=worker.run, kwargs=options)
        thread.start()
        try:
            yield thread
        finally:
            worker.stop()
            thread.join(PATIENCE)
            assert not thread.is_alive()

    return run


@pytest.fixture
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are extended at once and again, however long they are: a machine that stops for a second ends none."""
    for beats in (Heartbeat, FeedSlots):
        beat = beats.beat
        monkeypatch.setattr(beats, "beat", lambda self, beat=beat: min(beat(self), 0.01))
    leases = Run._leases
    monkeypatch.setattr(Run, "_leases", lambda run: [(0.0, task) for _, task in leases(run)])
