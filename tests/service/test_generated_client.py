"""The client that is generated from the OpenAPI document, in a language without a line of ours, loses no job when processes die."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.service.drained import drain

JOBS = 400


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_jobs_are_drained_over_rest_while_client_and_service_are_killed(db: QueueDB, name: str, tmp_path: Path) -> None:
    run = drain(db, name, JOBS, tmp_path)
    assert run.kills["client"] >= 1
    assert run.kills["service"] >= 1
    assert run.completed() <= JOBS
