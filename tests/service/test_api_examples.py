"""The curl commands of docs/rest.md are requests of the API, with bodies and headers that it takes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from queue_db import QueueDB

DOCS = Path(__file__).resolve().parents[2] / "docs"


def commands(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [command for block in blocks for command in re.findall(r"^curl (.*?)(?=^curl |\Z)", block, re.MULTILINE | re.DOTALL)]


PAGE = (DOCS / "rest.md").read_text(encoding="utf-8")
SERVICE, FEEDS = map(commands, PAGE.split("\n## Feeds\n"))

#: Commands with the answers that the page shows below them.
ANSWERED = re.findall(r"^```bash\ncurl (.*?)^```\n\n```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    """A database of this page's own, since the examples name queues, feeds and routes as a reader does."""
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('examples') / 'queue.db'}") as db:
        db.migrate()
        yield db


def request(command: str) -> tuple[str, str, dict[str, str], str | None]:
    """Method, path, headers and body of a command."""
    words = iter(shlex.split(command.replace("\\\n", " ")))
    method, path, headers, body = "GET", "", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        elif word != "-i":
            path = word
    assert path.startswith("$URL/"), command
    return method, path.removeprefix("$URL"), headers, body


def send(client: httpx2.Client, command: str, lease: dict[str, str] | None = None) -> httpx2.Response:
    method, path, headers, body = request(command)
    assert headers.pop("Authorization") == "Bearer $TOKEN"
    given = lease or {}
    parts = {"$LEASE_TOKEN": "token", "$ID": "id", "$VERSION": "version"}
    values = {variable: given[part] for variable, part in parts.items() if given} | {"$LEASE": json.dumps(given)}

    def filled(text: str) -> str:
        for variable, value in values.items():
            text = text.replace(variable, value)
        return text

    path, body = filled(path), None if body is None else filled(body)
    headers = {name: filled(value) for name, value in headers.items()}
    return client.request(method, f"/api/v1{path}", headers=headers, content=body)


@pytest.mark.parametrize("number", range(len(SERVICE)))
def test_an_example_works(db: QueueDB, client: httpx2.Client, number: int) -> None:
    assert len(SERVICE) >= 10
    command, queue = SERVICE[number], db.queue("mail")
    queue.purge()
    # What a reader has put into the environment: of a leased job, or of one that waits.
    if "$LEASE" in command:
        queue.enqueue("welcome")
        (job,) = queue.claim()
        lease = {"id": str(job.id), "version": str(job.version), "token": job.token}
    else:
        job_id = queue.enqueue("welcome", delay=60 if "$ID" in command else 0)
        assert job_id is not None
        lease = {"id": str(job_id), "version": str(db.get(job_id).version), "token": ""}
    answer = send(client, command, lease)
    assert answer.status_code in {200, 201, 204}, answer.text
    for verdict in answer.json().get("verdicts", ()) if answer.content else ():
        assert verdict["verdict"] == "applied"


def test_the_first_examples_complete_a_job_with_the_answers_that_the_page_shows(db: QueueDB, client: httpx2.Client) -> None:
    db.queue("mail").purge()
    lease = None
    for command, shown in ANSWERED:
        answer = send(client, command, lease)
        assert likewise(answer.json()) == likewise(json.loads(shown))
        lease = answer.json().get("jobs", [{}])[0].get("lease", lease)
    assert len(ANSWERED) == 3
    assert lease is not None
    assert str(db.state(int(lease["id"]))) == "unknown"


def likewise(answer: object, name: str = "") -> object:
    """The answer without what differs each time: ids, tokens, versions and times."""
    if isinstance(answer, dict):
        return {key: likewise(value, key) for key, value in answer.items()}
    if isinstance(answer, list):
        return [likewise(one) for one in answer]
    return type(answer) if name in {"id", "token", "created_at", "due_at", "lease_expires"} else answer


def test_the_examples_of_feeds_lead_from_one_to_the_next(db: QueueDB, client: httpx2.Client) -> None:
    assert len(FEEDS) >= 8
    after = claim = ""
    for command in FEEDS:
        answer = send(client, command.replace("$AFTER", after).replace("$CLAIM", claim))
        assert answer.status_code in {200, 201}, (command, answer.text)
        got = answer.json()
        if "/claims" in command:
            claim = got["id"]
        elif command.startswith("-X PUT") and "/feeds/" in command:
            after = got["end"]
    assert got == {"acted": 1}
    (message,) = db.feed("orders").read().messages
    assert message.headers["topic"] == "orders.paid"
