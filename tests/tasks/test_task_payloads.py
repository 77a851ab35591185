"""Arguments become payloads and come back as what their annotations say; what does not fit is refused by name."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from queue_db import PayloadError, Snooze
from queue_db.codecs import JSONCodec, plain
from queue_db.tasks import Task, Tasks


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Box:
    west: float
    name: str = "box"
    inner: list[Box] = dataclasses.field(default_factory=list)


class Line(BaseModel):
    x: int
    when: datetime
    tags: list[str] = []

    @field_validator("x")
    @classmethod
    def positive(cls, x: int) -> int:
        if x < 0:
            raise ValueError("is below zero")
        return x


class Page(msgspec.Struct):
    number: int
    lines: list[Line] = []


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    wide: bool


NOW = datetime(2026, 3, 1, 12, 30, 1, 500, tzinfo=UTC)
ID = UUID("6f2d9a2e-8f6f-4a9b-9c2e-0a1b2c3d4e5f")
LINE = Line(x=3, when=NOW, tags=["a"])


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def task_of(tasks: Tasks, annotation: Any, **options: Any) -> Task[..., Any, Any]:
    def task(it):
        return it

    task.__annotations__ = {"it": annotation, "return": annotation}
    return tasks.task(queue="mail", **options)(task)


def stored(task: Task[..., Any, Any], *args: Any, **kwargs: Any) -> Any:
    """The payload of a job as a worker finds it."""
    codec = JSONCodec()
    return codec.decode(codec.encode(task.call(*args, **kwargs).job.payload))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7),
        (int, 2**80),
        (float, 1.5),
        (bool, True),
        (str, "a\u2028b"),
        (None, None),
        (int | None, None),
        (datetime, NOW),
        (datetime | None, NOW),
        (datetime, datetime(2026, 3, 1)),  # noqa: DTZ001 - stays without a zone
        (date, date(2026, 3, 1)),
        (timedelta, timedelta(seconds=90, microseconds=5)),
        (UUID, ID),
        (Decimal, Decimal("3.10")),
        (bytes, b"\x00\xff"),
        (Colour, Colour.RED),
        (Literal["a", "b"], "b"),
        (Path, Path("/tmp/a")),
        (list[UUID], [ID]),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (dict[str, Decimal], {"a": Decimal("1.5")}),
        (dict[UUID, list[date]], {ID: [date(2026, 3, 1)]}),
        (Box, Box(1.5, inner=[Box(2.5)])),
        (Line, LINE),
        (list[Line], [LINE, LINE]),
        (dict[str, Line | None], {"a": LINE, "b": None}),
        (Page, Page(1, [LINE])),
        (list[Page | None], [Page(1), None]),
        (Point, Point(1, 2)),
        (Options, {"wide": True}),
        (Annotated[int, msgspec.Meta(ge=3)], 3),
        (Any, {"a": [1, None]}),
    ],
    ids=str,
)
def test_an_argument_and_a_result_come_back_as_they_were(tasks: Tasks, annotation: Any, value: Any) -> None:
    task = task_of(tasks, annotation)
    (found,) = task.payloads.schema.read("task", stored(task, value)).values()
    assert found == value
    assert type(found) is type(value)
    codec = JSONCodec()
    result = task.payloads.result(codec.decode(codec.encode(plain(value)))) if not isinstance(value, bytes) else value
    assert result == value
    assert type(result) is type(value)


def welcome(user: int, at: datetime | None = None, *, box: Box | None = None, lines: list[Line] | None = None) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"user": "7"}, "user: Expected `int`, got `str`"),
        ({"user": True}, "user: Expected `int`, got `bool`"),
        ({"user": 7, "at": "tomorrow"}, "at: Invalid RFC3339 encoded datetime"),
        ({"user": 7, "box": Box("x")}, "box.west: Expected `float`, got `str`"),  # type: ignore[arg-type]
        ({"user": 7, "box": {"wst": 3}}, "box: Object missing required field `west`"),
        ({"user": 7, "box": Box(1.0, inner=[Box(2.0), Box(None)])}, "box.inner[1].west: Expected `float`, got `null`"),  # type: ignore[arg-type]
        ({"user": 7, "lines": [{"x": 1, "when": NOW}, {"x": "p4ss", "when": NOW}]}, "lines[1]: x: Input should be a valid integer"),
        ({"user": 7, "lines": [{"x": -1, "when": NOW}]}, "lines[0]: x: Value error, is below zero"),
        ({"user": object()}, "user: object is no type of JSON"),
        ({}, "missing a required argument: 'user'"),
        ({"user": 7, "usr": 7}, "got an unexpected keyword argument 'usr'"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_enqueue_by_its_name(tasks: Tasks, arguments: Mapping[str, Any], message: str) -> None:
    task = tasks.task(queue="mail")(welcome)
    for call in (task.call, task.using(delay=3).call, task.enqueue):
        with pytest.raises(
            PayloadError, match="payload of job kind 'welcome': does not fit welcome: " + re.escape(message)
        ) as error:
            call(**arguments)
        assert "p4ss" not in str(error.value)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"user": "7"}, "user: Expected `int`, got `str`"),
        ({}, "Object missing required field `user`"),
        (None, "Object missing required field `user`"),
        ({"user": 7, "usr": 7}, "Object contains unknown field `usr`"),
        ([7], "Expected `object`, got `array`"),
        ("7", "Expected `object`, got `str`"),
        ({"user": 7, "lines": [{"x": 1}]}, "lines[0]: when: Field required"),
    ],
)
def test_a_stored_payload_that_does_not_fit_is_refused_by_name(tasks: Tasks, payload: Any, message: str) -> None:
    task = tasks.task(queue="mail")(welcome)
    with pytest.raises(PayloadError, match="does not fit welcome: " + re.escape(message)):
        task.payloads.schema.read("welcome", payload)


def test_the_payload_has_what_was_given_and_the_function_has_its_own_defaults(tasks: Tasks) -> None:
    seen = []

    @tasks.task(queue="mail")
    def task(user: int, size: Decimal = Decimal("1.5"), names: list[str] = ["a"]) -> None:  # noqa: B006 - that is the point
        seen.append((user, size, names))

    assert stored(task, 7) == {"user": 7}
    assert stored(task, 7, names=[]) == {"user": 7, "names": []}
    assert task.payloads.schema.read("task", {"user": 7}) == {"user": 7}


def test_a_task_without_arguments_takes_an_empty_payload(tasks: Tasks) -> None:
    task = tasks.task(queue="mail", name="nothing")(lambda: None)
    assert stored(task) == {}
    assert task.payloads.schema.read("nothing", None) == {}


def test_results_leave_out_what_is_no_result(tasks: Tasks) -> None:
    assert task_of(tasks, UUID | Snooze).payloads.result(str(ID)) == ID
    assert task_of(Tasks(), Snooze).payloads.result(None) is None
    assert task_of(Tasks(), UUID | Snooze | None).payloads.result(None) is None
    assert task_of(Tasks(), int | str).payloads.result("7") == "7"
    with pytest.raises(PayloadError, match="result of job kind 'task': does not fit: Expected `int`, got `array`"):
        task_of(Tasks(), int).payloads.result([1])


def keys(tasks: Tasks, function: Callable[..., Any], **options: Any) -> Mapping[str, Any]:
    return tasks.task(queue="mail", **options)(function).call(user=7, at="2026-03-01").job.options()


def test_a_key_is_made_of_the_arguments_that_its_function_names() -> None:
    """They are of the types of the annotations, and those that are not given have their defaults."""

    def task(user: int, at: date, size: int = 3) -> None: ...

    found = keys(Tasks(), task, unique=lambda at, size: f"{at:%d.%m.}-{size}", unique_for=60, group=lambda user: f"g{user}")
    assert found == {"unique_key": "01.03.-3", "unique_for": 60, "group": "g7"}
    assert keys(Tasks(), task, unique=lambda **given: json.dumps(sorted(given)))["unique_key"] == '["at", "size", "user"]'
    assert keys(Tasks(), task, group="all", priority=-1, delay=5, max_attempts=2) == {
        "group": "all",
        "priority": -1,
        "delay": 5,
        "max_attempts": 2,
    }


def test_without_the_check_at_the_enqueue_a_wrong_argument_would_be_stored(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the tests above: writing alone refuses nothing that JSON has."""
    task = tasks.task(queue="mail")(welcome)
    monkeypatch.setattr(type(task.payloads), "_read", lambda self, payload: payload)
    assert stored(task, user="7") == {"user": "7"}
