"""Failed jobs of workers wait."""

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.backoff import constant
from tests.patience import HOURS


@pytest.fixture
def open_db(open_db: Callable[..., QueueDB]) -> Callable[..., QueueDB]:
    """As everywhere, but a failed job waits for hours: a busy machine may take longer than the default backoff to look at it."""
    return lambda **options: open_db(**({"retry_after": constant(HOURS)} | options))
