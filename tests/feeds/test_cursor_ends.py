"""A reader ends in an outage: its error comes out, not that of the release of its cursor."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from queue_db import PermanentStorageError, QueueDB
from queue_db.feeds.store import cursors

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture
def no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise PermanentStorageError("the release failed")

    monkeypatch.setattr(cursors, "release", fail)


@SQLITE
@pytest.mark.usefixtures("no_release")
def test_the_readers_error_comes_out(db: QueueDB, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "queue_db.feeds"), pytest.raises(KeyError, match="first"), db.feed(name).cursor("mine"):
        raise KeyError("first")
    assert "'mine'" in caplog.text
    assert "the release failed" in caplog.text


@SQLITE
@pytest.mark.usefixtures("no_release")
def test_without_another_error_that_of_the_release_comes_out(db: QueueDB, name: str) -> None:
    with pytest.raises(PermanentStorageError, match="the release failed"), db.feed(name).cursor("mine"):
        pass
