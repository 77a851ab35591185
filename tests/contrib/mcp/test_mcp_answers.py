"""Answers of the MCP server, and its settings."""

from __future__ import annotations

import json

import pytest

from queue_db.contrib.mcp.__main__ import server
from queue_db.contrib.mcp.answers import ANSWER, answer
from queue_db.errors import ConfigurationError


def test_an_answer_is_bounded_and_says_what_it_left_out() -> None:
    text = answer({"jobs": [{"id": str(number), "last_error": "e" * 400} for number in range(500)], "after": "next"})
    read = json.loads(text.splitlines()[2])
    assert len(text) < ANSWER + 500
    assert 10 < len(read["jobs"]) == 500 - read["left_out"]
    assert read["after"] == "next"
    assert "\\u202e" in answer({"name": "a\u202eb"})
    assert answer({}) != answer({})  # the marks


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "QUEUE_DB_TOKEN is not set"),
        ({"QUEUE_DB_TOKEN": "a", "QUEUE_DB_OPERATE_TOKEN": "a "}, "is the same as"),
        ({"QUEUE_DB_TOKEN": "a\nb"}, "is no API token"),
        ({"QUEUE_DB_TOKEN": "a", "QUEUE_DB_SERVICE_URL": "http://queue.example.com"}, "use https"),
        ({"QUEUE_DB_TOKEN": "a", "QUEUE_DB_SERVICE_URL": "queue.example.com"}, "must be the URL"),
        ({"QUEUE_DB_TOKEN": "s3cret", "QUEUE_DB_SERVICE_URL": "https://u:p@queue.example.com"}, "must be the URL"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_the_token(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        server(environment, payloads=False)
    assert "s3cret" not in str(caught.value)
