"""The command line in the test's own process, and its answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from typer import testing

from queue_db.cli.app import app

# Building all commands takes longer than most of them: it is done once, not for each invocation.
testing._get_command = cache(testing._get_command)


@dataclass
class Answer:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> Any:
        (one,) = self.records
        return one


Ask = Callable[..., Answer]


@pytest.fixture
def ask_at() -> Ask:
    """``ask_at(url, "queues", "show", "--json")`` runs the command with the URL in the environment; None: no URL anywhere."""

    def run(url: str | None, *arguments: object, input: str | bytes | None = None, status: int = 0) -> Answer:  # noqa: A002
        result = testing.CliRunner().invoke(
            app, [str(argument) for argument in arguments], input=input, env={"QUEUE_DB_URL": url, "COLUMNS": "200"}
        )
        assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
        assert "bug in queue-db" not in result.stderr
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def ask(ask_at: Ask, url: str) -> Ask:
    """``ask("queues", "show", name, "--json")`` runs the command on the shared database."""

    def run(*arguments: object, **options: Any) -> Answer:
        return ask_at(url, *arguments, **options)

    return run
