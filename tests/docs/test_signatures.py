"""The calls that docs/reference.md shows can be made like that, and the attributes of what they return are all named."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from queue_db import Batch, QueueStats
from tests.aio.test_namesakes import SECTIONS
from tools.asynchronous import TWINS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("owner", SECTIONS)
def test_a_call_has_the_parameters_of_its_verb(owner: str) -> None:
    """Their names, whether each must be named in the call, and the defaults that are shown; it may leave out some."""
    (module,) = {twin.module for twin in TWINS.values() if twin.name == owner}
    known = getattr(import_module(module), owner)
    section = PAGE.split(f"\n## `{SECTIONS[owner]}", 1)[1].split("\n## ")[0]
    calls = [(name, text) for name, text in re.findall(r"`(\w+)\(([^`]*)\)`", section) if hasattr(known, name) and "…" not in text]
    assert calls
    for name, text in calls:
        there = inspect.signature(getattr(known, name)).parameters
        for parameter, default, named in shown(text):
            assert parameter in there, f"{name}({text}): {parameter}"
            assert named == (there[parameter].kind is inspect.Parameter.KEYWORD_ONLY), f"{name}({text}): {parameter}"
            if default is not inspect.Parameter.empty:
                assert default == there[parameter].default, f"{name}({text}): {parameter}"
            elif not named:
                assert there[parameter].default is inspect.Parameter.empty, f"{name}({text}): {parameter} has a default"


def shown(text: str) -> Iterator[tuple[str, Any, bool]]:
    """Name, default and whether it must be named, of each parameter; a default in words, such as ``30 days``, equals all."""
    named = False
    for part in re.split(r",\s*(?![^()\[\]]*[)\]])", text) if text else ():
        if part == "*":
            named = True
            continue
        names, equals, words = part.partition("=")
        for name in names.split(" | "):
            yield name, literal(words) if equals else inspect.Parameter.empty, named


def literal(words: str) -> Any:
    try:
        return ast.literal_eval(words)
    except (SyntaxError, ValueError):
        return Described()


class Described:
    """Equal to every default."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("shape", [QueueStats, Batch])
def test_the_attributes_of_a_result_are_named(shape: type[Any]) -> None:
    (line,) = re.findall(rf"`{shape.__name__}`: ([^;]*)", PAGE)
    assert [field.name for field in fields(shape) if not re.search(rf"\b{field.name}\b", line)] == []
