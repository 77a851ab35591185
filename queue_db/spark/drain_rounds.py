"""A drain whose results go where only Spark can write: object stores and distributed file systems.

Python tasks cannot write to Hadoop's file systems, so Spark does. Such a drain is a sequence of *rounds*. In each round

1. every task claims one batch, works on it and returns its rows;
2. Spark writes the rows of all tasks into a folder of this round, with its own committer;
3. when that is committed, the jobs of the rows *that can be read there* are completed.

The rows of a task that died, or that Spark ran twice, are in no file. Its jobs are not completed: they return when their leases
end.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType
from sqlalchemy import select

from queue_db import LeasedJob, Queue
from queue_db.database.transaction import Run
from queue_db.errors import ConfigurationError
from queue_db.model import ClaimedRow
from queue_db.spark.code_bundle import bundled
from queue_db.spark.drain_batch import BatchWork, Function
from queue_db.spark.drain_loop import COUNTED, FIRST_WAIT, LONGEST_WAIT, DrainTask, share, task_number
from queue_db.spark.masked_errors import masked_errors
from queue_db.spark.results import KEY, without_wildcards
from queue_db.store import Transaction

# What the tasks of a round count.
_COUNTED = (*COUNTED, "written")

# Columns with the counts of a task, in a row without an id, which is not written.
_COUNT = "__queue_db_"

# A hidden folder in the results, written before the first round as a check.
_PROBE = "_queue_db"

# Jobs in one statement.
_IDS = 1000


@dataclass
class Rounds:
    """One drain.

    :param address: of the results' folder.
    :param schema: of the results, with ``id`` and ``version``.
    :param ends: when claiming ends, by this machine's monotonic clock.
    """

    spark: SparkSession
    address: str
    schema: StructType
    task: DrainTask
    function: Function
    partitions: int
    ends: float

    def probe(self) -> None:
        """Check that the folder can be written, before any job is claimed.

        :raises ConfigurationError: it cannot.
        """
        try:
            self.spark.createDataFrame([], self.schema).write.mode("overwrite").parquet(f"{self.address}/{_PROBE}")
        except Exception as error:  # Spark's, or what Py4J makes of Hadoop's
            # Of Java's traceback the line with the exception.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            problem = next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)
            raise ConfigurationError(
                f"path={self.address!r}: Spark cannot write there, and no job was touched: {problem}. Give Spark the file "
                "system's jars and credentials (spark.jars.packages, spark.hadoop.fs.…), or give a folder without a scheme"
            ) from error

    def run(self, max_jobs: int | None) -> Counter[str]:
        """Run rounds until the queue is drained or a limit is reached; return the counts.

        ``drained`` is not zero if nothing was left.
        """
        wait, limits = FIRST_WAIT, self.task.limits
        total: Counter[str] = Counter()
        with self.task.target.open(**self.task.settings) as db:
            queue = db.queue(self.task.queue)
            while time.monotonic() < self.ends and (max_jobs is None or total["claimed"] < max_jobs):
                # A round costs Spark a second, also if nothing is due.
                if queue.core.run(Run("is_due", write=False), _is_due, queue.name, limits.kind) and not queue.controls().paused:
                    counted = self._round(None if max_jobs is None else max_jobs - total["claimed"])
                    total += counted
                    if counted["claimed"]:
                        wait = FIRST_WAIT
                        continue
                if not limits.anything_left(queue):
                    total["drained"] = 1
                    break
                time.sleep(max(0.0, min(wait * random.uniform(0.5, 1.0), self.ends - time.monotonic())))
                wait = min(wait * 2, LONGEST_WAIT)
        return total

    def _round(self, left: int | None) -> Counter[str]:
        """Claim, work, write, complete.

        :param left: jobs that may still be claimed; None: no limit.
        """
        folder = f"{self.address}/{uuid.uuid4().hex}"
        schema = StructType([*self.schema.fields, *(StructField(_COUNT + name, LongType()) for name in _COUNTED)])
        work = _claimed_batch(self.task, self.function, self.schema, schema, left, self.partitions)
        totals = Observation()
        rows = self.spark.range(0, self.partitions, 1, self.partitions).mapInArrow(bundled(work), schema)
        rows = rows.observe(totals, *(f.sum(_COUNT + name).alias(name) for name in _COUNTED))
        rows.where("id IS NOT NULL").select(*self.schema.fieldNames()).write.parquet(folder)
        counted = Counter({name: int(number or 0) for name, number in totals.get.items()})
        return counted + (self._complete(folder) if counted["written"] else Counter())

    def _complete(self, folder: str) -> Counter[str]:
        """Complete the jobs whose rows are in ``folder``."""
        task = self.task

        def complete(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pairs = [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
            with masked_errors(task.target.url), task.target.open(**task.settings) as db:
                queue = db.queue(task.queue)
                mine = leased(queue, pairs)
                completed = sum(map(bool, queue.complete_many(mine)))
                counted = {name: getattr(db.counters, name, 0) for name in _COUNTED}
                counted |= {"completed": completed, "lost": counted["lost"] + len(pairs) - len(mine)}
            yield pa.RecordBatch.from_pydict({name: [counted[name]] for name in _COUNTED})

        rows: DataFrame = self.spark.read.schema(StructType(list(KEY))).parquet(without_wildcards(folder))
        ddl = ", ".join(f"{name} long" for name in _COUNTED)
        done = rows.mapInArrow(bundled(complete), ddl).collect()
        return Counter({name: sum(row[name] for row in done) for name in _COUNTED})


def _claimed_batch(
    task: DrainTask, function: Function, results: StructType, schema: StructType, left: int | None, partitions: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a round's tasks: claim one batch and work on it; return its result rows, then a row of counts.

    It is made outside of Rounds, since the session there cannot be pickled.

    :param schema: of ``results``, and the columns of counts.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, batch = task_number(batches), task.limits.batch
        jobs = batch if left is None else min(batch, share(left, partitions, number))
        tables: list[pa.Table] = []
        settle = BatchWork(function, to_arrow_schema(results, timezone="UTC"), tables.append, complete_later=True).settle
        with masked_errors(task.target.url):
            counted = task.run(settle, jobs=jobs, once=True)
        columns = to_arrow_schema(schema, timezone="UTC")
        for table in tables:
            yield from _with_columns(table, columns).to_batches()
        counted["written"] = sum(table.num_rows for table in tables)
        yield from _with_columns(pa.table({_COUNT + name: [counted[name]] for name in _COUNTED}), columns).to_batches()

    return work


def leased(queue: Queue, pairs: Sequence[tuple[int, int]]) -> list[LeasedJob]:
    """The jobs, of these ``(id, version)``, that are still leased at that version."""
    wanted, found = dict(pairs), []
    ids = sorted(wanted)
    for start in range(0, len(ids), _IDS):
        found += queue.core.run(Run("leased_jobs", write=False), _leased_jobs, queue, ids[start : start + _IDS])
    return [job for job in found if job.version == wanted[job.id]]


def _leased_jobs(tx: Transaction, queue: Queue, ids: Sequence[int]) -> list[LeasedJob]:
    """The jobs ``ids``, without their texts, which completing does not need."""
    jobs = tx.tables.jobs
    texts: Mapping[str, Any] = {"payload": "", "headers": None, "last_error": None}
    columns = [jobs.c[name] for name in ClaimedRow._fields if name not in texts]
    query = select(*columns, jobs.c.claim_token).where(jobs.c.id.in_(ids), jobs.c.queue == queue.name)
    found = []
    for row in tx.connection.execute(query).mappings():
        values = {name: row[name] for name in ClaimedRow._fields if name in row}
        found.append(LeasedJob(ClaimedRow(**values, **texts), queue, queue.core.codec, row["claim_token"] or ""))
    return found


def _is_due(tx: Transaction, queue: str, kind: str | None) -> bool:
    """Whether a job can be claimed now."""
    jobs = tx.tables.jobs
    due = [jobs.c.queue == queue, jobs.c.available_at <= tx.now, jobs.c.delete_mark == 0]
    if kind is not None:
        due.append(jobs.c.kind == kind)
    return tx.connection.execute(select(jobs.c.id).where(*due).limit(1), tx.time()).scalar() is not None


def _with_columns(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """``table`` with exactly these columns; nulls in those that it lacks."""
    arrays = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows, columns.field(name).type)
        for name in columns.names
    ]
    return pa.Table.from_arrays(arrays, schema=columns)
