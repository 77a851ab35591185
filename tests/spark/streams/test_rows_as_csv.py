"""Rows that the database writes as CSV are the rows that it would have given one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from queue_db import QueueDB
from queue_db.spark.dialects import mysql
from queue_db.spark.ranges import store as ranges
from queue_db.spark.rows import SCHEMA, RowShape
from queue_db.spark.target import target_of
from tests.spark.staging.test_staged_contents import CONTENTS
from tests.spark.streams.conftest import enqueue

EVERYTHING = [*CONTENTS.values(), ",", '"', '""', ",,\n,", "x" * 100_000]


@pytest.fixture
def reader(url: str) -> Iterator[QueueDB]:
    with target_of(url).open() as opened:
        yield opened


def read(db: QueueDB, name: str, limit: int = 5000, after: int = 0, *, csv: bool = True) -> ranges.Rows:
    work = partial(ranges.jobs, queue=name, after=after, high=2**62, limit=limit, csv=csv)
    return db.database.run(work, store=db.store, name="read", write=False)


@pytest.fixture
def filled(db: QueueDB, name: str) -> str:
    jobs = db.store.tables.jobs
    rows = [{"queue": name, "payload": text, "headers": None if place % 3 else text} for place, text in enumerate(EVERYTHING)]
    db.database.run(lambda connection: connection.execute(jobs.insert(), rows), name="insert")
    return name


def test_rows_are_csv_where_the_database_can_write_it(reader: QueueDB, filled: str, url: str) -> None:
    assert isinstance(read(reader, filled), bytes) is not url.startswith("sqlite")


def test_rows_from_csv_equal_rows_from_tuples(reader: QueueDB, filled: str) -> None:
    plain, quick = (
        RowShape(SCHEMA).batch(read(reader, filled, csv=csv), {"queue": filled}, ranges.COLUMNS)[0] for csv in (False, True)
    )
    assert plain.num_rows == len(EVERYTHING)
    assert quick.sort_by("id") == plain


def test_pages_end_where_they_should(reader: QueueDB, db: QueueDB, name: str) -> None:
    enqueue(db, name, 10)
    ids, after = [], 0
    while page := read(reader, name, 4, after):
        some = RowShape(SCHEMA).batch(page, {"queue": name}, ranges.COLUMNS)[1].to_pylist()
        assert len(some) <= 4
        ids += some
        after = max(some)
    assert ids == sorted(set(ids))
    assert len(ids) == 10


def test_rows_that_csv_would_truncate_are_read_as_tuples(
    reader: QueueDB, filled: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql, "_LONGEST_TEXT", 1000)
    rows = read(reader, filled)
    assert isinstance(rows, bytes) is url.startswith("postgresql")
    assert RowShape(SCHEMA).batch(rows, {"queue": filled}, ranges.COLUMNS)[0].num_rows == len(EVERYTHING)
