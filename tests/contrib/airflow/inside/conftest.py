"""Tests that run within an environment that has Airflow; ``tests/contrib/airflow/test_in_airflow.py`` starts them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from queue_db import Queue, QueueDB
from queue_db.feeds import Feed


@pytest.fixture(scope="session")
def db() -> Iterator[QueueDB]:
    with QueueDB(os.environ["QUEUE_DB_TEST_URL"]) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def feed(db: QueueDB) -> Feed:
    return db.feed(f"f-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def queue(db: QueueDB) -> Queue:
    return db.queue(f"q-{uuid.uuid4().hex[:12]}")
