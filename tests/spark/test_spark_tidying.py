"""What comes after a publication may fail: the jobs are in the queue, so the write has succeeded. No JVM is needed for this."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from sqlalchemy import create_engine, make_url, text

from queue_db import QueueDB
from queue_db.spark.options import Use, parse
from queue_db.spark.target import target_of
from queue_db.spark.writer import BatchWriter, StreamWriter

SCHEMA = StructType([StructField("payload", StringType())])

#: Older than any sweep leaves alone: of the year 1970.
OLD = 1000 << 22


def broken(db: QueueDB, table: str) -> None:
    """From now on the server refuses to delete a row of ``table``."""
    name = f"no_delete_{table}"
    refuse = {
        "sqlite": [f"CREATE TRIGGER {name} BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'refused here'); END"],
        "postgresql": [
            f"CREATE FUNCTION {name}() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'refused here'; END $$ LANGUAGE plpgsql",
            f"CREATE TRIGGER {name} BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
        ],
    }.get(
        db.database.engine.dialect.name,
        [f"CREATE TRIGGER {name} BEFORE DELETE ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused here'"],
    )
    with db.database.engine.begin() as connection:
        for statement in refuse:
            connection.execute(text(statement))


def add(db: QueueDB, statement: str) -> None:
    with db.database.engine.begin() as connection:
        connection.execute(text(statement))


@pytest.fixture
def db(own_url: str) -> Any:
    with QueueDB(own_url) as db:
        yield db


def batch_writer(url: str, **options: str) -> BatchWriter:
    return BatchWriter(target_of(url), parse({"url": url, "queue": "q", **options}, Use.WRITE), SCHEMA)


def rows(*payloads: str) -> Any:
    return iter([pa.RecordBatch.from_pydict({"payload": list(payloads)})])


def test_a_sweep_that_fails_does_not_fail_the_write(db: QueueDB, own_url: str, caplog: pytest.LogCaptureFixture) -> None:
    add(db, f"INSERT INTO jobs_staged (attempt, place, size, chunk) VALUES ({OLD}, 0, 1, '[]')")
    broken(db, "jobs_staged")
    writer = batch_writer(own_url)
    with caplog.at_level(logging.WARNING, "queue_db.spark"):
        writer.commit([writer.write(rows("1", "2"))])
    assert db.queue("q").stats().available == 2
    (record,) = caplog.records
    assert (record.levelname, "refused here" in record.message, "staging.sweep" in record.message) == ("WARNING", True, True)
    assert make_url(own_url).password is None or str(make_url(own_url).password) not in record.message


def test_chunks_of_a_repetition_that_cannot_be_deleted_do_not_fail_it(db: QueueDB, own_url: str) -> None:
    writer = batch_writer(own_url, txnAppId="a", txnVersion="1")
    many = [f'"{number:0>2000}"' for number in range(300)]
    writer.commit([writer.write(rows(*many))])
    again = writer.write(rows(*many))
    assert again.chunks, "so few that nothing was staged"
    broken(db, "jobs_staged")
    writer.commit([again])
    assert db.queue("q").stats().available == 300


def test_a_failed_clean_up_of_the_ledger_does_not_fail_a_micro_batch(
    db: QueueDB, own_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(db, "INSERT INTO jobs_published (app, version, queue, size) VALUES ('query:abc', 1, 'q', 0)")
    broken(db, "jobs_published")
    writer = StreamWriter(target_of(own_url), parse({"url": own_url, "queue": "q"}, Use.WRITE_STREAM), SCHEMA)
    writer.commit([replace(writer.write(rows("1")), query="abc")], 200)
    assert db.queue("q").stats().available == 1
    assert "staging.forget_versions" in caplog.records[-1].message


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")  # a file has one writer at a time
def test_a_locked_chunk_is_not_waited_for(db: QueueDB, own_url: str) -> None:
    for place in range(2):
        add(db, f"INSERT INTO jobs_staged (attempt, place, size, chunk) VALUES ({OLD}, {place}, 1, '[]')")
    writer = batch_writer(own_url)
    message = writer.write(rows("1"))
    engine = create_engine(own_url)
    with engine.connect() as other:
        # If it were waited for, this would end in a lock timeout, and the other chunk would stay.
        other.execute(text(f"SELECT chunk FROM jobs_staged WHERE attempt = {OLD} AND place = 0 FOR UPDATE"))
        writer.commit([message])
        other.rollback()
    engine.dispose()
    with db.database.engine.connect() as connection:
        assert connection.execute(text("SELECT place FROM jobs_staged")).scalars().all() == [0]
