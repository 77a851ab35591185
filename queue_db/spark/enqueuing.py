"""Enqueue a DataFrame's rows in one call: which columns make up the payload, and which are options of the jobs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from sqlalchemy import URL

from queue_db import arguments
from queue_db.errors import ArgumentError, StorageError
from queue_db.spark.code_bundle import register
from queue_db.spark.masked_errors import described
from queue_db.spark.staging import store as staging
from queue_db.spark.target import Target, target_of
from queue_db.spark.writer import UNNAMED
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH

log = logging.getLogger("queue_db.spark")

#: Option of ``Queue.enqueue`` → column of the data source.
_COLUMNS = {
    "delay": "delay",
    "run_at": "available_at",
    "priority": "priority",
    "unique_key": "unique_key",
    "unique_for": "unique_for",
    "group": "group_key",
    "max_attempts": "max_attempts",
    "headers": "headers",
}


def enqueue(
    df: DataFrame,
    url: str | URL,
    queue: str,
    *,
    kind: str,
    payload: Sequence[str] | None = None,
    unique_key: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_duplicate: Literal["raise", "skip", "replace"] = "skip",
    table: str = "jobs",
    schema: str | None = None,
) -> int:
    """Enqueue one job for each row, all or none and once; return how many were added.

    The same as writing with ``format("queue_db")``, for rows that do not have its columns yet.

    :param df: with one row for each job; each running partition opens one connection.
    :param url: of a migrated database that every executor reaches.
    :param kind: of all the jobs.
    :param payload: columns that make up the payload, an object with these names; default all.
    :param unique_key: column with each job's key, 1 to 200 characters.
    :param columns: further options of :meth:`queue_db.Queue.enqueue`, and the column with the values of each:
        ``{"priority": "rank"}``. A null leaves the option at its default.
    :param on_duplicate: what happens to a row whose key a live job has: ``skip``, ``raise`` (nothing is enqueued) or ``replace``.
    :param table: name of the jobs table, and ``schema`` its schema prefix.
    :returns: jobs added, without skipped rows. If the database does not answer after the write, the number of rows, and a warning
        in the log.
    :raises ArgumentError: a column is missing.
    :raises ConfigurationError: the Python of Spark's workers lacks a dependency of the package, or the database cannot be used;
        raised before Spark starts.
    :raises StorageError: the database cannot be reached; raised before Spark starts.
    :raises pyspark.errors.PySparkException: a partition failed as often as Spark allows, or the publication: nothing was enqueued.
    """
    arguments.name("queue", queue, QUEUE_LENGTH)
    arguments.name("kind", kind, KIND_LENGTH)
    rows = _as_jobs(df, payload, dict(columns or {}) | ({} if unique_key is None else {"unique_key": unique_key}))
    target = target_of(url, table, schema)
    with target.open() as db:
        db.ready()
    app = f"{UNNAMED}{uuid.uuid4()}"
    settings = {"queue": queue, "kind": kind, "onDuplicate": on_duplicate, "txnAppId": app, "txnVersion": "0"}
    register(df.sparkSession)
    written = Observation()
    counted = rows.observe(written, f.count(f.lit(1)).alias("rows"))
    try:
        counted.write.format("queue_db").mode("append").options(**_tables(target), **settings).save()
    except Exception as error:  # noqa: BLE001 - raised again unless the load was published
        return _added_all_the_same(target, app, queue, error)
    try:
        return _added(target, app, queue) or 0
    except StorageError as error:
        # The jobs are in the queue: an error would make the caller enqueue them again.
        problem = described(error, target.url)
        log.warning("queue %r: all rows are enqueued; the number of skipped rows is unknown: %s", queue, problem)
        return int(written.get["rows"])


def _as_jobs(df: DataFrame, payload: Sequence[str] | None, options: Mapping[str, str]) -> DataFrame:
    """The columns of the data source.

    :param options: option of ``Queue.enqueue`` → column of ``df``.
    """
    if unknown := set(options) - set(_COLUMNS):
        raise ArgumentError(f"columns: unknown options {', '.join(sorted(unknown))}; known: {', '.join(_COLUMNS)}")
    in_payload = list(df.columns if payload is None else payload)
    for name in [*in_payload, *options.values()]:
        if df.columns.count(name) != 1:
            raise ArgumentError(f"column {name!r} must be in the DataFrame once; it has {', '.join(df.columns)}")
    return df.select(
        f.struct(*(f.col(_quoted(name)) for name in in_payload)).alias("payload"),
        *(f.col(_quoted(column)).alias(_COLUMNS[option]) for option, column in options.items()),
    )


def _tables(target: Target) -> dict[str, str]:
    """The options that lead to the tables."""
    found = {"url": target.url.render_as_string(hide_password=False), "table": target.table}
    return found if target.schema is None else {**found, "tableSchema": target.schema}


def _quoted(name: str) -> str:
    """A column's name for Spark, where dots have a meaning."""
    return "`" + name.replace("`", "``") + "`"


def _added(target: Target, app: str, queue: str) -> int | None:
    """The jobs that the load has added, by the ledger; None: it was not published."""
    with target.open() as db:
        published = db.core.read("staging.ledger", staging.ledger, app, version=0, queue=queue)
    return None if published is None else published.jobs


def _added_all_the_same(target: Target, app: str, queue: str, error: Exception) -> int:
    """The jobs that the load has added although Spark failed: the process that published it may have died before it could answer.

    :raises Exception: ``error``; the load was not published, or the database cannot be asked.
    """
    try:
        added = _added(target, app, queue)
    except StorageError:
        raise error from None
    if added is None:
        raise error
    problem = described(error, target.url).partition("\n")[0]
    log.warning("queue %r: all rows are enqueued, although Spark failed after their publication: %s", queue, problem)
    return added
