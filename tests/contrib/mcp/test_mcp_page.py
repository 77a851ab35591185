"""The page of the tools for agents: its commands make tokens, and its configuration starts the server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from queue_db import QueueDB
from queue_db.contrib.mcp.answers import ANSWER
from queue_db.contrib.mcp.changing import VALID
from queue_db.service import Settings
from tests.patience import PATIENCE
from tests.service.conftest import serving

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "integrations" / "mcp.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        yield db


def token(db: QueueDB, command: str) -> str:
    """What a command of the page prints."""
    environment = {**os.environ, "QUEUE_DB_URL": db.url, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = shlex.split(command)
    assert words[0] == "queue-db"
    done = subprocess.run(
        [sys.executable, "-m", "queue_db", *words[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.rest("a session of the command; test_mcp.py asks each tool")
def test_the_page_can_be_followed(db: QueueDB) -> None:
    install, *commands = [line for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
    assert install == 'pip install "queue-db[mcp]"'
    reader, operator = (token(db, command) for command in commands)
    (configuration,) = [json.loads(code) for language, code in BLOCKS if language == "json"]
    assert {language for language, _ in BLOCKS} == {"sh", "json"}
    given = configuration["mcpServers"]["queue_db"]
    assert given["command"] == "python"

    async def tools(url: str, **more: str) -> dict[str, Any]:
        environment = {
            **given["env"],
            "QUEUE_DB_SERVICE_URL": url,
            "QUEUE_DB_TOKEN": reader,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **more,
        }
        command = StdioServerParameters(command=sys.executable, args=given["args"], env=environment)
        async with Client(stdio_client(command)) as client:
            assert not (await client.call_tool("check_health", {}, read_timeout_seconds=PATIENCE)).is_error
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    with serving(db, Settings()) as url:
        looking = anyio.run(tools, url)
        all_tools = anyio.run(lambda: tools(url, QUEUE_DB_OPERATE_TOKEN=operator))
    table = {name for row in re.findall(r"^\| (`\w+`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert table == looking.keys()
    changing = set(re.search(r"there are also (.*?):", PAGE)[1].replace(" and", ",").replace("`", "").split(", "))  # type: ignore[index]
    assert all_tools.keys() - looking.keys() == changing | {f"preview_{name}" for name in changing}


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"{ANSWER:,} characters" in PAGE
    assert VALID == 120
    assert "for two minutes" in PAGE
