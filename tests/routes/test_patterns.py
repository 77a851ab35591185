"""Patterns compared with a second, slower way to match, and with what the database is asked for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_db.errors import ArgumentError
from queue_db.routes.patterns import ESCAPE, matches, pattern

AMQP = st.lists(st.sampled_from(["a", "b", "*", "#", "", "a*", "%"]), min_size=1, max_size=5).map(".".join).filter(bool)
TOPICS = st.lists(st.sampled_from(["a", "b", "", "a*", "%"]), min_size=1, max_size=5).map(".".join).filter(bool)
GLOBS = st.text("ab*?[]^-\\!%_", min_size=1, max_size=8)
TEXTS = st.text("ab^-!%]_*", min_size=1, max_size=6)


def words(pattern: list[str], topic: list[str]) -> bool:
    """AMQP's rule, as it is told."""
    if not pattern:
        return not topic
    first, *rest = pattern
    if first == "#":
        return words(rest, topic) or (bool(topic) and words(pattern, topic[1:]))
    return bool(topic) and first in {"*", topic[0]} and words(rest, topic[1:])


def like(text: str, topic: str) -> bool:
    """What LIKE of a database does."""
    parts = re.findall(rf"{ESCAPE}.|.", text, re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    return re.fullmatch("".join(wildcards.get(part, re.escape(part[-1])) for part in parts), topic, re.DOTALL) is not None


@given(AMQP, TOPICS)
def test_words_match_as_amqp_says(text: str, topic: str) -> None:
    assert matches("amqp", text, topic) == words(text.split("."), topic.split("."))
    if matches("amqp", text, topic):
        stored = pattern(text, "amqp")
        assert like(stored.like, topic)
        assert stored.topic in {"", topic}


@given(GLOBS, TEXTS)
def test_what_a_glob_matches_the_database_finds(text: str, topic: str) -> None:
    if matches("glob", text, topic):
        stored = pattern(text, "glob")
        assert like(stored.like, topic)
        assert stored.topic in {"", topic}


def test_no_pattern_takes_long() -> None:
    """A matcher that tries every length of every star would not come to an end here."""
    assert not matches("glob", "*a" * 90 + "b", "a" * 200)
    assert not matches("amqp", "#.a." * 49 + "b", "a." * 99 + "a")


@pytest.mark.parametrize(
    "text",
    [
        '{"x-match":["all"],"a":1}',
        '{"x-match":{},"a":1}',
        '{"x-match":null,"a":1}',
        '{"x-match":"none","a":1}',
        '{"topic":["a"],"a":1}',
        '{"a":[1]}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e400}',
        '{"topic":"a","x-match":"any"}',
        "[]",
        "1",
    ],
)
def test_conditions_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        pattern(text, "headers")


@pytest.mark.parametrize(
    ("stored", "texts"),
    [
        (
            '{"a":1}',
            ['{"a": 1}', '{"a":1,"x-match":"all"}', '{"a":1,"x-match":"any"}', '{"a":1,"topic":null}', '{"a":1.0}', '{"a":1e0}'],
        ),
        ('{"a":0}', ['{"a":-0.0}']),
        ('{"a":true}', ['{"a":true,"x-match":"all"}']),
        ('{"a":1.5,"b":null,"topic":"t","x-match":"any"}', ['{"x-match":"any","topic":"t","b":null,"a":15e-1}']),
    ],
)
def test_the_same_conditions_are_the_same_subscription(stored: str, texts: list[str]) -> None:
    assert {pattern(text, "headers").text for text in [stored, *texts]} == {stored}
