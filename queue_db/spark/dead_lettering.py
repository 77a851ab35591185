"""Sends jobs of a stream's micro-batch to the dead table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sqlalchemy import URL

from queue_db import arguments
from queue_db.errors import ArgumentError, NoSuchStreamError
from queue_db.spark import python_workers
from queue_db.spark.code_bundle import bundled
from queue_db.spark.masked_errors import masked_errors
from queue_db.spark.streams import store as streams
from queue_db.spark.target import REPEATABLE, Target, target_of
from queue_db.verbs.settle import MAX_ERROR


def dead_letter(df: DataFrame, url: str | URL, stream: str, *, table: str = "jobs", schema: str | None = None) -> int:
    """Mark jobs of a stream's batch for the dead table; return how many were marked. For use within ``foreachBatch``.

    They move there when the batch is completed, with the reason as their last error; ``db.dead.redrive`` brings them back. Until
    then a replay of the batch reads them again, and marking them again changes nothing.

    :param df: with the columns ``fence``, as the stream has it, and ``dead_reason``; rows without a reason are ignored.
    :param url: of the stream's database.
    :raises ArgumentError: a column is missing.
    :raises NoSuchStreamError: there is no such stream.
    :raises pyspark.errors.PySparkException: among others, a ``fence`` is not one of the stream's; the error names its row.
    """
    for name in ("fence", "dead_reason"):
        if name not in df.columns:
            raise ArgumentError(f"column {name!r} is missing; there are {', '.join(df.columns)}")
    python_workers.check(df.sparkSession, on_the_driver=False)
    target = target_of(url, table, schema)
    ids = _streams(target, stream)

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        marked = before = 0
        for batch in batches:
            reasons = _reasons(batch, before)
            before += batch.num_rows
            with masked_errors(target.url), target.open() as db:
                for one in ids:
                    marked += db.core.run(REPEATABLE.named("streams.mark_dead"), streams.mark_dead, one, reasons)
        yield pa.RecordBatch.from_pydict({"marked": [marked]})

    rows = df.where("dead_reason IS NOT NULL").select(f.col("fence").cast("string"), f.col("dead_reason").cast("string"))
    return sum(row.marked for row in rows.mapInArrow(bundled(mark), "marked long").collect())


def _reasons(batch: pa.RecordBatch, before: int) -> dict[tuple[int, int], str]:
    """``(id, version)`` → why.

    :param before: rows of the task before this batch.
    :raises ArgumentError: naming the row whose fence is none.
    """
    found = {}
    for row, (fence, reason) in enumerate(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True), before + 1):
        job_id, _, version = (fence or "").partition(":")
        if not (job_id.isdecimal() and version.isdecimal()):
            raise ArgumentError(
                f"row {row} with a reason: column 'fence' has {fence!r:.80}, which is not the stream's fence (id:version)"
            )
        found[int(job_id), int(version)] = arguments.storable(reason, MAX_ERROR)
    return found


def _streams(target: Target, name: str) -> list[int]:
    """The ids of the stream, and of those of its queues that hold jobs, if it reads several."""
    with target.open() as db:
        listed = db.core.read("streams.listed", streams.listed)
    if found := [int(stream.id) for stream in listed if stream.name == name]:
        return found
    several = [stream for stream in listed if stream.name.startswith(f"{name}/")]
    if not several:
        raise NoSuchStreamError(f"there is no stream {name!r}")
    return [int(stream.id) for stream in several if stream.held]
