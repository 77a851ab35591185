"""Schemas of a producer, synchronous or not: what does not fit is refused where it is enqueued."""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import Any, Literal

import pytest

from queue_db import ArgumentError, PayloadError, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.codecs import Schema

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@dataclasses.dataclass
class Order:
    number: int
    price: float = 0.0
    name: str | None = None
    paid: bool = False
    lines: list[int] = dataclasses.field(default_factory=list)
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    state: Literal["new", "done"] = "new"
    day: date | None = None
    anything: Any = None


@dataclasses.dataclass
class Strange:
    number: int
    other: OnlyForCheckers = None  # type: ignore[name-defined]  # noqa: F821 - the name is not there


FIT: list[dict[str, Any]] = [
    {"number": 1},
    {"number": 1, "price": 2, "name": "x", "paid": True, "lines": [1, 2], "tags": {"a": "b"}, "state": "done"},
    {"number": 1, "price": 2.5, "name": None, "lines": (1,), "anything": [{}]},
    {"number": 1, "day": "2026-11-24"},  # JSON has no dates: not checked
]

MISFIT = {
    "number must be int, not str": {"number": "1"},
    "number must be int, not bool": {"number": True},
    "number must be int, not float": {"number": 1.5},
    "price must be float, not str": {"number": 1, "price": "2"},
    "price must be float, not bool": {"number": 1, "price": True},
    r"name must be str \| None, not int": {"number": 1, "name": 5},
    "paid must be bool, not int": {"number": 1, "paid": 1},
    r"lines must be list\[int\], not list": {"number": 1, "lines": ["1"]},
    r"lines must be list\[int\], not dict": {"number": 1, "lines": {}},
    r"tags must be dict\[str, str\], not dict": {"number": 1, "tags": {"a": 1}},
    r"state must be typing.Literal\['new', 'done'\], not str": {"number": 1, "state": "old"},
    "missing 1 required positional argument: 'number'": {},
    "unexpected keyword argument 'numbr'": {"numbr": 1},
    "must be an object with the model's fields, not list": [1],
}


@pytest.mark.parametrize("payload", FIT)
def test_a_payload_with_the_types_of_a_dataclass_fits(kind: str, payload: dict[str, Any]) -> None:
    assert Schema(Order).read("order", payload) == Order(**payload)
    assert Schema(Order).write("order", payload) == payload


@pytest.mark.parametrize("reason", MISFIT)
def test_a_payload_with_another_type_or_name_does_not_fit(kind: str, reason: str) -> None:
    payload: Any = MISFIT[reason]
    for check in (Schema(Order).read, Schema(Order).write):
        with pytest.raises(PayloadError, match=f"does not fit Order: .*{reason}"):
            check("order", payload)


def test_an_object_of_a_dataclass_is_checked_too(kind: str) -> None:
    assert Schema(Order).write("order", Order(1))["number"] == 1
    with pytest.raises(PayloadError, match="number must be int, not str"):
        Schema(Order).write("order", Order("1"))  # type: ignore[arg-type]


def test_annotations_that_only_checkers_know_are_not_checked(kind: str) -> None:
    assert Schema(Strange).read("strange", {"number": "1"}).number == "1"


async def test_producers_refuse_what_does_not_fit(url: str, name: str) -> None:
    schemas = {"order": Order, "number": Schema(int)}
    with QueueDB(url, schemas=schemas) as db:
        queue = db.queue(name)
        for payload in ({"number": "1"}, Order("1")):  # type: ignore[arg-type]
            with pytest.raises(PayloadError, match="does not fit Order"):
                queue.enqueue("order", payload)
        with pytest.raises(PayloadError, match="job 1: .*does not fit int"):
            queue.enqueue_many([("number", 1), ("number", "x")])
        queue.enqueue("order", Order(1))
    async with AsyncQueueDB(url, schemas=schemas) as adb:
        aqueue = adb.queue(name)
        with pytest.raises(PayloadError, match="does not fit Order"):
            await aqueue.enqueue("order", {"number": "1"})
        with pytest.raises(PayloadError, match="does not fit int"):
            await aqueue.enqueue_many([("number", "x")])
        await aqueue.enqueue("order", Order(2))
        await aqueue.enqueue("other", {"number": "1"})
        assert [job.payload["number"] for job in await aqueue.peek()] == [1, 2, "1"]


def test_what_is_no_schema_is_refused(kind: str) -> None:
    for schemas in ([Order], {"order": 5}):
        with pytest.raises(ArgumentError, match="schema"):
            QueueDB("sqlite://", schemas=schemas)  # type: ignore[arg-type]
