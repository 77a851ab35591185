"""Whatever a job has comes out as it went in, whichever way it takes from a chunk into the queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.dialects.clock import clock_query
from queue_db.spark.dialects import SparkDialect
from queue_db.spark.staging import chunks
from queue_db.spark.staging import store as staging
from queue_db.spark.staging.chunks import FIELDS, pack, unpack
from queue_db.spark.staging.store import Published
from queue_db.spark.target import target_of
from queue_db.testing import SettableClock
from tests.spark.staging.conftest import jobs_of, load, load_at_once, publish, stage

FACE = "\N{GRINNING FACE}"

CONTENTS: dict[str, str] = {
    "emoji": f'"{FACE}\N{ZERO WIDTH JOINER}\N{RAINBOW} \N{HEBREW LETTER ALEF} e\N{COMBINING ACUTE ACCENT} \xe9"',
    "an escaped NUL": '"\\u0000"',
    "escapes": '"\\\\ \\" \\/ \\b\\f\\n\\r\\t \\ud83d\\ude00 \\ud800"',
    "quotes and places": "\"it's `%s` %(x)s %% :name ? {} $1 \\\\'\"",
    "lines": '{\n  "a" :\t1\r\n}\n',
    "line separators": '"\u2028\u2029\ufeff\x7f"',
    "a long number": "123456789012345678901234567890.10",
    "a key twice": '{"b":1,"a":2,"b":3}',
    "deep": "[" * 200 + "]" * 200,
    "null": "null",
    "no JSON": "a\\",
    "marks of bulk loads": "a\n\\.\nb\t\\N",
    "a mark of NULL": "\\N",
    "the word": "NULL",
    "a mark of the end": "\\.",
    "control characters": "x\x01\x1b\x1fy",
    "blanks": "  x  ",
    "nothing": "",
    "the last characters": "\uffff\U0010ffff",
}

LARGE: dict[str, str] = {
    "a megabyte": json.dumps("x" * 1_000_000),
    "half a megabyte of everything": json.dumps(f'{FACE}\\"\n\u0001' * 35_000, ensure_ascii=False),
}

WAYS = ["by the database", "one by one for its keys", "one by one for want of a function"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == WAYS[2]:
        monkeypatch.setattr(type(SparkDialect.of(db.database.dialect)), "unpacked", SparkDialect.unpacked)
    elif request.param == WAYS[0]:

        def refuse(*_: Any) -> int:
            raise AssertionError("it went one by one")

        monkeypatch.setattr(staging, "_one_by_one", refuse)
    return str(request.param)


@pytest.fixture
def keys(way: str) -> Callable[[int], dict[str, list[str]]]:
    """A column of keys, where it is for them that the jobs go one by one."""
    return lambda count: {"unique_key": [f"{FACE} {number}" for number in range(count)]} if way == WAYS[1] else {}


@pytest.fixture(params=["values", "files"])
def loader(request: pytest.FixtureRequest, db: QueueDB, url: str) -> Iterator[QueueDB]:
    """The database as others open it, and as tasks do, which may send files."""
    if request.param == "values":
        yield db
    else:
        with target_of(url, local_infile=True).open() as opened:
            yield opened


@pytest.fixture
def both(db: QueueDB, loader: QueueDB) -> Callable[[staging.Load, dict[str, Any]], None]:
    """The same rows twice: published, and loaded at once."""

    def put(entry: staging.Load, rows: dict[str, Any]) -> None:
        count = len(rows["payload"])
        assert publish(db, entry, stage(loader, rows)) == Published(count, 0)
        again = {name: [f"{value} again" if name == "unique_key" else value for value in column] for name, column in rows.items()}
        assert load_at_once(loader, entry, again) == count

    return put


def test_texts(db: QueueDB, name: str, keys: Any, both: Any) -> None:
    texts = [*CONTENTS.values(), "1"]
    headers = [None, *CONTENTS.values()]
    both(load(name, name, fields=("headers", *keys(0))), {"payload": texts, "headers": headers, **keys(len(texts))})
    stored = [(row.payload, row.headers) for row in jobs_of(db, name)]
    assert stored == list(zip(texts, headers, strict=True)) * 2


@pytest.mark.parametrize("what", LARGE)
def test_large_texts(db: QueueDB, name: str, keys: Any, both: Any, what: str) -> None:
    both(load(name, name, fields=("headers", *keys(0))), {"payload": [LARGE[what]], "headers": [LARGE[what]], **keys(1)})
    assert [(row.payload, row.headers) for row in jobs_of(db, name)] == [(LARGE[what], LARGE[what])] * 2


def test_kinds_and_keys(db: QueueDB, name: str, keys: Any, both: Any) -> None:
    kinds = [FACE * 100, None, "it's \"\\", "%s"]
    both(load(name, name, kind="its own", fields=("kind", *keys(0))), {"payload": ["1"] * 4, "kind": kinds, **keys(4)})
    rows = jobs_of(db, name)
    assert [row.kind for row in rows] == [FACE * 100, "its own", "it's \"\\", "%s"] * 2
    expected = [*keys(4)["unique_key"], *(f"{key} again" for key in keys(4)["unique_key"])] if keys(0) else [None] * 8
    assert [row.unique_key for row in rows] == expected


def test_numbers_and_nulls(db: QueueDB, name: str, keys: Any, both: Any) -> None:
    rows = {
        "payload": ["1"] * 4,
        "priority": [-(2**31), 2**31 - 1, 0, None],
        "max_attempts": [1, 2**31 - 1, None, None],
        **keys(4),
    }
    both(load(name, name, priority=5, max_attempts=6, fields=("priority", "max_attempts", *keys(0))), rows)
    expected = [(-(2**31), 1), (2**31 - 1, 2**31 - 1), (0, 6), (5, 6)]
    assert [(row.priority, row.max_attempts) for row in jobs_of(db, name)] == expected * 2


# Numbers that a double would not hold among them.
LONGEST, FAR, BEYOND = 100 * 366 * 86_400_000_000, 253_402_300_799_999_999, 2**62 + 1


@pytest.mark.parametrize("fields", [("after",), ("not_before",), ("after", "not_before"), ()], ids=" ".join)
def test_times(open_db: Callable[..., QueueDB], name: str, way: str, fields: tuple[str, ...]) -> None:
    clock = SettableClock()
    db, now = open_db(clock=clock), clock()
    times = {
        "after": [0, 1, LONGEST, LONGEST, 7, None, 5_000_001, None],
        "not_before": [0, now - 1, 0, FAR, BEYOND, now + 5, None, None],
    }
    rows = {"payload": ["1"] * 8, **{field: times[field] for field in fields}}
    if way == WAYS[1]:
        fields, rows = (*fields, "unique_key"), rows | {"unique_key": list("abcdefgh")}
    entry = load(name, name, after=3, not_before=now + 1, fields=fields)
    assert publish(db, entry, stage(db, rows)) == Published(8, 0)
    if not {"after", "not_before"} & set(fields):
        # What every job has, and is in no chunk, waits for no one: writers give no such defaults.
        assert {row.created_at for row in jobs_of(db, name)} == {now}
        return
    wanted = []
    for place in range(8):
        after, not_before = (
            default if field not in fields or times[field][place] is None else times[field][place]
            for field, default in (("after", 3), ("not_before", now + 1))
        )
        wanted.append(max(now + (after or 0), not_before or 0))
    again = rows | ({"unique_key": list("ABCDEFGH")} if "unique_key" in rows else {})
    assert load_at_once(db, entry, again) == 8
    assert [(row.available_at, row.created_at) for row in jobs_of(db, name)] == [(due, now) for due in wanted] * 2


def test_by_the_databases_clock_jobs_are_due_when_they_are_published(db: QueueDB, name: str, way: str) -> None:
    keyed = {"unique_key": ["a"]} if way == WAYS[1] else {}
    before = stage(db, {"payload": ["1"], **keyed})
    now = db.database.run(lambda connection: connection.execute(clock_query()).scalar_one(), name="clock")
    assert publish(db, load(name, name, fields=tuple(keyed)), before) == Published(1, 0)
    (row,) = jobs_of(db, name)
    assert now <= row.available_at == row.created_at
    (job,) = db.queue(name).claim()
    assert job.id == row.id


def test_every_field_of_a_new_job_is_one_of_a_chunk() -> None:
    columns = {name: [place, None] for place, name in enumerate(FIELDS)}
    again = unpack(pack(columns), list(FIELDS))
    assert {name: list(values) for name, values in again.items()} == columns
    (first, second) = chunks.jobs_of(again, "q", {**staging.DEFAULTS, "payload": "default"})
    others = {"callback_id": None}  # which loads know nothing of
    assert first._asdict() == {**{name: place for place, name in enumerate(FIELDS)}, **others}
    assert second._asdict() == {"queue": "q", "payload": "default", **staging.DEFAULTS}
