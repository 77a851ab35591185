"""What a test says that waits for Airflow's processes in vain: what is lacking, which have ended, and what they wrote."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.contrib.airflow import all_processes
from tests.contrib.airflow.all_processes import Background
from tests.patience import wait_for


def test_a_program_that_has_ended_is_named_with_its_status_and_output(tmp_path: Path) -> None:
    with Background(dict(os.environ), tmp_path) as background:
        background.start("scheduler", ["sh", "-c", "echo the port is taken; exit 3"])
        with pytest.raises(AssertionError) as raised:
            background.until(lambda: False, "no run is started")
    assert str(raised.value).startswith("no run is started: these have ended, with their status: {'scheduler': 3}")
    assert "--- scheduler:\nthe port is taken" in str(raised.value)


def test_what_does_not_come_is_named_with_the_output_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_processes, "PATIENCE", -1)
    with Background(dict(os.environ), tmp_path) as background:
        background.start("triggerer", ["sh", "-c", "echo waiting; exec sleep 1000"])
        wait_for((tmp_path / "triggerer.log").read_text)
        with pytest.raises(AssertionError, match=r"^no event is stored, within -1 s\n--- triggerer:\nwaiting"):
            background.until(lambda: False, "no event is stored")
        process = background.running["triggerer"]
    assert process.returncode == -signal.SIGTERM
