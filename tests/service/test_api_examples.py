"""The curl commands of docs/service.md are requests of the API, with bodies and headers that it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx2
import pytest

from queue_db import QueueDB

PAGE = Path(__file__).resolve().parents[2] / "docs" / "service.md"
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = [command for block in BLOCKS for command in re.findall(r"^curl (.*?)(?=^curl |\Z)", block, re.MULTILINE | re.DOTALL)]


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


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_an_example_is_a_request_of_the_api(db: QueueDB, client: httpx2.Client, number: int) -> None:
    assert len(COMMANDS) >= 8
    method, path, headers, body = request(COMMANDS[number])
    assert headers.pop("Authorization") == "Bearer $TOKEN"
    if "/claims" in path:
        db.queue("mail").enqueue("welcome")
    answer = client.request(method, f"/api/v1{path}", headers=headers, content=body)
    # A job 17 need not be there, and its lease is lost.
    assert answer.status_code in {200, 201, 204, 404, 412}, answer.text
    if answer.status_code == 404:
        assert answer.json()["title"] == "There is no such job"
