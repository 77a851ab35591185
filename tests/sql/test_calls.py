"""How many functions of the package a warm verb calls, and how deep: its length, in figures without time.

Traced calls (and depth) on SQLite, PostgreSQL and MariaDB: claim 31 (8), 31 (8), 35 (8); completion 25 (8), 24 (8), 24 (8);
complete_and_claim 54 (9), 43 (10), 58 (9); extend 37 (10), 33 (9), 37 (10); fail 69 (11), 64 (10), 63 (9). One claim in ten
of a queue adapts its window, in two more calls.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
from pymysql.protocol import FieldDescriptorPacket

from queue_db import Queue
from queue_db.dialects import prepared, raw_cursor
from queue_db.store import low_water_marks, wakeups

_T = TypeVar("_T")

ROOT = Path(__file__).parents[2]

#: Verb → database → most calls, and how deep they may be. Only ever lowered.
MOST: dict[str, dict[str, tuple[int, int]]] = {
    "claim": {"sqlite": (31, 8), "postgresql": (31, 8), "mysql": (35, 8), "mariadb": (35, 8)},
    "complete": {"sqlite": (25, 8), "postgresql": (23, 8), "mysql": (23, 8), "mariadb": (23, 8)},
    "enqueue": {"sqlite": (34, 9), "postgresql": (37, 10), "mysql": (33, 9), "mariadb": (33, 9)},
    "complete_and_claim": {"sqlite": (54, 9), "postgresql": (43, 10), "mysql": (57, 9), "mariadb": (57, 9)},
    "extend": {"sqlite": (37, 10), "postgresql": (32, 9), "mysql": (36, 10), "mariadb": (36, 10)},
    "fail": {"sqlite": (69, 11), "postgresql": (64, 10), "mysql": (63, 9), "mariadb": (63, 9)},
}


def calls_of(call: Callable[[], _T], files: list[str] | None = None) -> tuple[_T, list[tuple[int, str]]]:
    """The answer of ``call``, and the functions of the package that it called in this thread, each with its depth.

    :param files: gets the file of each.

    Comprehensions and generator expressions do not count: later versions of Python have no frame for them.
    """
    calls: list[tuple[int, str]] = []
    depth = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if event not in {"call", "return"} or not str(frame.f_globals.get("__name__", "")).startswith("queue_db."):
            return
        if code.co_name.startswith("<") and code.co_name != "<lambda>":
            return
        if code.co_name == "read_packet":  # PyMySQL calls it for each packet
            return
        if event == "call":
            depth += 1
            calls.append((depth, code.co_qualname))
            if files is not None:
                files.append(code.co_filename)
        else:
            depth -= 1

    sys.setprofile(note)
    try:
        answer = call()
    finally:
        sys.setprofile(None)
    return answer, calls


@pytest.fixture
def warm(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue of which each verb has run a few times: what is prepared is prepared once, and nothing is due again by time."""
    monkeypatch.setattr(low_water_marks, "SHORTEST_RESCAN_INTERVAL", 3600.0)
    monkeypatch.setattr(low_water_marks, "LONGEST_RESCAN_INTERVAL", 3600.0)
    monkeypatch.setattr(prepared, "BUSY_PLAN_AGE", 3600.0)
    monkeypatch.setattr(raw_cursor, "_FORGOTTEN", 3600.0)
    monkeypatch.setattr(wakeups.Notifications, "every", 3600.0)
    queue.enqueue_many([("work", number) for number in range(100)])
    jobs = queue.claim()
    for number in range(4):
        jobs = queue.complete_and_claim(jobs)[1]
        queue.claim()[0].complete()
        (job,) = queue.claim()
        job.extend(30.0)
        job.fail("wrong", retry_in=3600.0)
        queue.enqueue("work", number)
    assert jobs
    return queue


@pytest.mark.parametrize("verb", MOST)
def test_a_warm_verb_calls_few_functions(kind: str, warm: Queue, verb: str) -> None:
    (job,) = warm.claim()
    if verb == "enqueue":
        warm.enqueue("work")
    calls = {
        "claim": warm.claim,
        "complete": job.complete,
        "extend": lambda: job.extend(30.0) is not None,
        "fail": lambda: job.fail("wrong"),
        "enqueue": lambda: warm.enqueue("work"),
        "complete_and_claim": lambda: warm.complete_and_claim([job]),
    }
    answer, found = calls_of(calls[verb])
    assert answer
    number, deep = len(found), max(depth for depth, _ in found)
    way = "\n".join("  " * depth + name for depth, name in found)
    calls_most, deep_most = MOST[verb][kind]
    assert number <= calls_most, f"{number} calls, {deep} deep:\n{way}"
    assert deep <= deep_most, f"{number} calls, {deep} deep:\n{way}"


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_a_warm_claim_parses_no_description_of_a_column(kind: str, warm: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL takes more time for the descriptions of a claim's columns than for all else that the client does."""
    parse, parsed = FieldDescriptorPacket._parse_field_descriptor, []

    def note(self: FieldDescriptorPacket, encoding: str) -> None:
        parse(self, encoding)
        parsed.append(self.name)

    monkeypatch.setattr(FieldDescriptorPacket, "_parse_field_descriptor", note)
    (job,) = warm.claim()
    assert job.complete()
    assert parsed == []


_ROW = re.compile(r"^(queue_db/[\w/]+\.py) +([\w.]+) ", re.MULTILINE)


def way_of(verb: str) -> list[tuple[str, str]]:
    """The functions of a verb in CONTRIBUTING.md: file and name, in their order."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"## Follow one {verb}\n")
    return _ROW.findall(section.partition("\n## ")[0])


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("verb", ["claim", "completion", "enqueue"])
def test_the_ways_in_contributing_are_those_of_the_code(kind: str, warm: Queue, verb: str) -> None:
    (job,) = warm.claim()
    warm.enqueue("work")
    call: Callable[[], object] = {"claim": warm.claim, "completion": job.complete, "enqueue": lambda: warm.enqueue("work")}[verb]
    files: list[str] = []
    _, calls = calls_of(call, files)
    went = iter([(file.removeprefix(f"{ROOT}/"), name) for file, (_, name) in zip(files, calls, strict=True)])
    told = way_of(verb)
    assert len(told) >= 8
    assert [step for step in told if step not in went] == [], "these do not follow the ones before them"
