"""A DataFrame's rows as jobs, in one call: which columns make up the payload, and which are options."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from sqlalchemy import URL

from queue_db import arguments
from queue_db.errors import ArgumentError, StorageError
from queue_db.spark.code_bundle import register
from queue_db.spark.masked_errors import described
from queue_db.spark.target import target_of
from queue_db.spark.writer import UNNAMED
from queue_db.store import staging
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH

log = logging.getLogger("queue_db.spark")

#: Option of ``Queue.enqueue`` → column of the data source.
_COLUMNS = {
    "delay": "delay",
    "run_at": "available_at",
    "priority": "priority",
    "unique_key": "unique_key",
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
    on_duplicate: str = "skip",
    table: str = "jobs",
    schema: str | None = None,
) -> int:
    """Enqueue one job for each row, all or none and once, and return how many were added.

    The same as writing with ``format("queue_db")``, for rows that are not yet in its columns.

    :param df: with one row for each job; as many connections are open at a time as partitions run.
    :param url: of a migrated database that every executor reaches.
    :param kind: of all the jobs.
    :param payload: columns that make up the payload, an object with these names; default all.
    :param unique_key: column with each job's key, 1 to 200 characters.
    :param columns: further options of :meth:`queue_db.Queue.enqueue` and the column that has each: ``{"priority": "rank"}``.
        A null leaves the option at its default.
    :param on_duplicate: what happens to a row whose key a live job has: ``skip``, ``raise`` (nothing is enqueued) or ``replace``.
    :param table: name of the jobs table, and ``schema`` its schema prefix.
    :returns: jobs added; less than there are rows where some were skipped. If the database cannot be asked after the write, the
        number of rows, and a warning in the log.
    :raises ArgumentError: for a column that is not there.
    :raises ConfigurationError: the Python that Spark runs its workers with lacks what the package needs.
    :raises ConfigurationError, StorageError: when the database cannot be used; found out here, before Spark starts.
    :raises pyspark.errors.PySparkException: when a partition failed as often as Spark allows: nothing was enqueued.
    """
    arguments.name("queue", queue, QUEUE_LENGTH)
    arguments.name("kind", kind, KIND_LENGTH)
    options = dict(columns or {})
    if unique_key is not None:
        options["unique_key"] = unique_key
    if unknown := set(options) - set(_COLUMNS):
        raise ArgumentError(f"columns: unknown options {', '.join(sorted(unknown))}; known: {', '.join(_COLUMNS)}")
    taken = list(df.columns if payload is None else payload)
    for name in [*taken, *options.values()]:
        if df.columns.count(name) != 1:
            raise ArgumentError(f"column {name!r} must be in the DataFrame once; it has {', '.join(df.columns)}")
    target = target_of(url, table, schema)
    with target.open() as db:
        db.ready()
    app = f"{UNNAMED}{uuid.uuid4()}"
    # Names are quoted: a column may be called a.b.
    given = {_COLUMNS[option]: f.col(_quoted(column)) for option, column in options.items()}
    rows = df.select(
        f.struct(*(f.col(_quoted(name)) for name in taken)).alias("payload"),
        *(column.alias(name) for name, column in given.items()),
    )
    register(df.sparkSession)
    seen = Observation()
    writer = rows.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("queue_db").mode("append")
    settings = {
        "url": target.url.render_as_string(hide_password=False),
        "queue": queue,
        "kind": kind,
        "table": table,
        "onDuplicate": on_duplicate,
        "txnAppId": app,
        "txnVersion": "0",
    } | ({} if schema is None else {"tableSchema": schema})
    writer.options(**settings).save()
    try:
        with target.open() as db:
            published = db.database.run(
                partial(staging.ledger, store=db.store, app=app, version=0, queue=queue), name="ledger", write=False
            )
    except StorageError as error:
        # The jobs are in the queue: an error would make the caller enqueue them again.
        problem = described(error, target.url)
        log.warning("queue %r: all rows are enqueued; how many of them were skipped is not known: %s", queue, problem)
        return int(seen.get["rows"])
    return 0 if published is None else published.jobs


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
