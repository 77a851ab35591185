"""A DataFrame's rows as jobs: every partition loads its own, in short transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlalchemy import URL

from queue_db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.spark.connecting import checked

# Jobs in one call of enqueue_many, hence in one transaction: it runs calls of up to so many again after a deadlock.
_CHUNK = 1000


def enqueue(
    df: DataFrame,
    url: str | URL,
    queue: str,
    *,
    kind: str,
    payload: Sequence[str] | None = None,
    unique_key: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_duplicate: str = "skip",
    database: Mapping[str, Any] | None = None,
) -> int:
    """Enqueue one job for each row and return how many were added.

    Each partition opens the database for itself and loads its rows with bulk inserts, 1000 to a transaction. When Spark runs a
    partition again (a failed task, a speculative copy), what its first attempt had committed is in the queue already: give
    ``unique_key``, and the jobs that are still there are not added twice. Without it a retried partition repeats jobs.

    :param df: with one row for each job; as many connections are open at a time as partitions run.
    :param url: of a migrated database that every executor reaches; it travels inside the task, and shows in no plan or option.
    :param kind: of all the jobs.
    :param payload: columns that make up the payload, an object with these names; default all. Dates, decimals and bytes have no
        form in JSON: cast them.
    :param unique_key: column with each job's key, 1 to 200 characters.
    :param columns: further options of :meth:`queue_db.Queue.enqueue` and the column that has each: ``{"priority": "rank"}``.
        A null leaves the option at its default.
    :param on_duplicate: what happens to a row whose key a live job has: ``skip``, ``raise`` (fails the task, and so a retried
        one) or ``replace``.
    :param database: keyword arguments for :class:`queue_db.QueueDB`: ``table``, ``schema``, ``codec`` …
    :returns: jobs added. A partition that was run again counts only what its last attempt added.
    :raises ArgumentError: for a column that is not there.
    :raises ConfigurationError, StorageError: when the database cannot be used; found out here, before Spark starts.
    :raises pyspark.errors.PySparkException: when a partition failed as often as Spark allows; others may have been loaded.
    """
    options = dict(columns or {})
    if unique_key is not None:
        options["unique_key"] = unique_key
    taken = list(df.columns if payload is None else payload)
    for name in [*taken, *options.values()]:
        if df.columns.count(name) != 1:
            raise ArgumentError(f"column {name!r} must be in the DataFrame once; it has {', '.join(df.columns)}")
    settings = dict(database or {})
    place = checked(url, settings)

    def load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with QueueDB(place, **settings) as db:
            loaded = 0
            for batch in batches:
                for start in range(0, batch.num_rows, _CHUNK):
                    rows = batch.slice(start, _CHUNK).to_pylist()
                    jobs = [_job(row, kind, taken, options) for row in rows]
                    ids = db.queue(queue).enqueue_many(jobs, on_duplicate=on_duplicate)
                    loaded += sum(1 for job_id in ids if job_id is not None)
            yield pa.RecordBatch.from_pydict({"loaded": [loaded]})

    return sum(row.loaded for row in df.mapInArrow(load, "loaded long").collect())


def _job(
    row: Mapping[str, Any], kind: str, payload: Sequence[str], columns: Mapping[str, str]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    options = {option: row[column] for option, column in columns.items() if row[column] is not None}
    return kind, {name: row[name] for name in payload}, options
