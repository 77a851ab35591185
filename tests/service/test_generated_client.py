"""The client that is generated from the OpenAPI document, in a language without a line of ours, loses no job when processes die."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.patience import PATIENCE
from tests.service.drained import drain
from tests.service.node_client import _locked, _run

JOBS = 400


@pytest.mark.rest("test_api_settlements.py has the fence, test_api_contract.py the document, and tests/crash the kills")
@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_jobs_are_drained_over_rest_while_client_and_service_are_killed(db: QueueDB, name: str, tmp_path: Path) -> None:
    run = drain(db, name, JOBS, tmp_path)
    assert run.kills["client"] >= 1
    assert run.kills["service"] >= 1
    assert run.completed() <= JOBS


def test_a_command_that_does_not_end_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    command = "echo begun; exec 3<>pipe; sleep 1000 & wait"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(pytest.fail.Exception, match=r"does not end within 0.5 s \(is the npm registry slow"):
        _run(tmp_path, "sh", "-c", command, longest=0.5)
    until = time.monotonic() + PATIENCE
    while _is_open(tmp_path / "pipe"):
        assert time.monotonic() < until, "the process in the background lives on"
        time.sleep(0.01)
    with pytest.raises(pytest.fail.Exception, match=r"fails \(3\)[^\0]*the reason"):
        _run(tmp_path, "sh", "-c", "echo the reason >&2; exit 3")


def test_one_process_at_a_time_installs_the_packages(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as other, (tmp_path / "lock").open("w") as mine:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(pytest.fail.Exception, match="another process has held"):
            _locked(mine, 0.0)
        fcntl.flock(other, fcntl.LOCK_UN)
        _locked(mine, 0.0)


def _is_open(pipe: Path) -> bool:
    """Whether a process has the pipe open."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True
