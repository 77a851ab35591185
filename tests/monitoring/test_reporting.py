"""The recipes for Sentry and structlog in docs/monitoring.md, run in a process of their own: both change the whole process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text()
SENTRY, STRUCTLOG = re.findall(r"^~~~py\n(.*?)^~~~", PAGE, re.MULTILINE | re.DOTALL)

BEGIN = """
from queue_db import QueueDB
from queue_db.worker import Worker

db = QueueDB("sqlite:///queue.db")
db.migrate()
worker = Worker(db, "mail", concurrency=1, schedules=False)
"""

COLLECT = """
import json

from sentry_sdk.transport import Transport

events = []


class Collecting(Transport):
    def capture_envelope(self, envelope):
        events.extend(item.get_event() for item in envelope.items if item.get_event())


sentry_sdk.get_client().transport = Collecting()


@worker.handles("send")
def send(job):
    address = job.payload["address"]
    raise LookupError("no such user")


@worker.handles("fine")
def fine(job):
    return None


db.queue("mail").enqueue("fine")
db.queue("mail").enqueue("send", {"address": "p4yload"}, max_attempts=1)
worker.run(until_empty=True)
sentry_sdk.flush()
print(json.dumps(events, default=str))
"""

LOG = """
log = structlog.get_logger()


@worker.handles("send")
def send(job):
    log.info("sending", to="ada")


db.queue("mail").enqueue("send", {"address": "p4yload"})
worker.run(until_empty=True)
log.info("outside")
"""


def run(folder: Path, *code: str) -> str:
    environment = {**os.environ, "SENTRY_DSN": "http://public@127.0.0.1:9/1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def reported(folder: Path, recipe: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(folder, BEGIN, recipe, COLLECT).splitlines()[-1])
    return found


@pytest.mark.rest("a worker with Sentry's SDK; tests/worker tells hooks of each end")
def test_an_exception_of_a_handler_reaches_sentry_with_tags_and_without_the_payload(tmp_path: Path) -> None:
    (event,) = reported(tmp_path, SENTRY)
    assert event["exception"]["values"][-1]["type"] == "LookupError"
    assert event["tags"] == {"queue": "mail", "kind": "send", "job_id": "2", "attempt": "1"}
    assert "p4yload" not in json.dumps(event)


@pytest.mark.rest("the control of the test above")
def test_local_variables_would_show_the_payload(tmp_path: Path) -> None:
    """The control: why the recipe leaves them out."""
    with_locals = SENTRY.replace("include_local_variables=False", "include_local_variables=True")
    assert with_locals != SENTRY
    assert "p4yload" in json.dumps(reported(tmp_path, with_locals))


def test_a_line_of_a_handler_has_the_job(tmp_path: Path) -> None:
    inside, outside = map(json.loads, run(tmp_path, BEGIN, STRUCTLOG, LOG).splitlines())
    assert inside.pop("timestamp")
    assert inside == {
        "event": "sending",
        "to": "ada",
        "level": "info",
        "queue": "mail",
        "kind": "send",
        "job_id": 1,
        "attempt": 1,
    }
    assert outside.keys() == {"event", "level", "timestamp"}
