"""What tests of monitoring share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitoring.exported import Seen


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()
