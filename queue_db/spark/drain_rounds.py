"""A drain whose results go where only Spark reaches: object stores and distributed file systems.

Python tasks have no way to Hadoop's file systems, so Spark writes. A drain is then a sequence of *rounds*: each task claims one
batch, works on it and returns its rows; Spark writes the rows of all tasks into a folder of this round, with its own committer;
and when that is committed, the jobs of the rows *that can be read there* are completed. What a task did that Spark ran twice, or
that died, is in no file, so its jobs are not completed: they come back when their leases end.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType
from sqlalchemy import Connection, Select, select

from queue_db import LeasedJob, Queue
from queue_db.dialects.clock import moment
from queue_db.errors import ConfigurationError
from queue_db.model import ClaimedRow
from queue_db.spark.code_bundle import bundled
from queue_db.spark.drain_loop import FIRST_WAIT, LONGEST_WAIT, Limits
from queue_db.spark.masked_errors import masked_errors
from queue_db.spark.results import KEY, literally
from queue_db.spark.target import Target
from queue_db.store import Store

#: What a task of a round does: its number and its limits → counts, and the rows of the jobs that are done.
Task = Callable[[int, int | None], tuple[Mapping[str, int], pa.Table | None]]

# Columns with what a task has counted, in a row without an id, which is not written.
_COUNT = "__queue_db_"

# A hidden folder in the results: what was written to see whether that is possible.
_PROOF = "_queue_db"

# Jobs in one statement.
_SOME = 1000


@dataclass
class Rounds:
    """One drain.

    :param address: of the results' folder.
    :param schema: of the results.
    :param names: of what tasks count; ``completed`` among them.
    :param ends: when nothing more is claimed, by this machine's monotonic clock.
    """

    spark: SparkSession
    address: str
    schema: StructType
    target: Target
    settings: Mapping[str, Any]
    queue: str
    partitions: int
    limits: Limits
    names: Sequence[str]
    ends: float
    total: Counter[str] = field(default_factory=Counter)

    def prove(self) -> None:
        """See whether the folder can be written, before any job is touched.

        :raises ConfigurationError: it cannot.
        """
        try:
            self.spark.createDataFrame([], self.schema).write.mode("overwrite").parquet(f"{self.address}/{_PROOF}")
        except Exception as error:  # Spark's, or what Py4J makes of Hadoop's
            # The line of the traceback in which Java says it.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            told = next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)
            raise ConfigurationError(
                f"path={self.address!r}: Spark cannot write there, and no job was touched: {told}. Give Spark the file "
                "system's jars and credentials (spark.jars.packages, spark.hadoop.fs.…), or give a folder without a scheme"
            ) from error

    def run(self, task: Task, max_jobs: int | None) -> Counter[str]:
        """Claim, work, write and complete until the queue is drained or a limit is reached; return what was counted.

        ``drained`` is not zero if nothing was left.
        """
        wait = FIRST_WAIT
        with self.target.open(**self.settings) as db:
            queue = db.queue(self.queue)
            while time.monotonic() < self.ends and (max_jobs is None or self.total["claimed"] < max_jobs):
                # A round costs Spark a second, also if nothing is due.
                if self._due(queue) and not queue.controls().paused:
                    left = None if max_jobs is None else max_jobs - self.total["claimed"]
                    counted = self._round(task, left)
                    self.total += counted
                    if counted["claimed"]:
                        wait = FIRST_WAIT
                        continue
                if not self.limits.anything_left(queue):
                    self.total["drained"] = 1
                    break
                time.sleep(max(0.0, min(wait * random.uniform(0.5, 1.0), self.ends - time.monotonic())))
                wait = min(wait * 2, LONGEST_WAIT)
        return self.total

    def _due(self, queue: Queue) -> bool:
        db = queue.db
        jobs = db.store.tables.jobs
        due = [jobs.c.queue == queue.name, jobs.c.available_at <= moment(db.store.clock is not None), jobs.c.delete_mark == 0]
        if self.limits.kind is not None:
            due.append(jobs.c.kind == self.limits.kind)
        query = select(jobs.c.id).where(*due).limit(1)
        work = partial(_first, query=query, store=db.store)
        return db.database.run(work, name="due", write=False) is not None

    def _round(self, task: Task, left: int | None) -> Counter[str]:
        folder = f"{self.address}/{uuid.uuid4().hex}"
        counts = [StructField(_COUNT + name, LongType()) for name in self.names]
        schema = StructType([*self.schema.fields, *counts])
        columns = to_arrow_schema(schema, timezone="UTC")
        # Not this object, which has the session, travels with the function.
        target, names = self.target, self.names

        def work(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # Spark throws away a Python process that left input unread.
            (number,) = (number for some in rows for number in some.column(0).to_pylist())
            with masked_errors(target.url):
                counted, done = task(number, left)
            if done is not None:
                yield from _with_columns(done, columns).to_batches()
            row = {_COUNT + name: [counted.get(name, 0)] for name in names}
            yield from _with_columns(pa.table(row), columns).to_batches()

        seen = Observation()
        rows = self.spark.range(0, self.partitions, 1, self.partitions).mapInArrow(bundled(work), schema)
        rows = rows.observe(seen, *(f.sum(_COUNT + name).alias(name) for name in names))
        rows.where("id IS NOT NULL").select(*self.schema.fieldNames()).write.parquet(folder)
        found = {name: int(number or 0) for name, number in seen.get.items()}
        return Counter(found) + (self._complete(folder) if found["written"] else Counter())

    def _complete(self, folder: str) -> Counter[str]:
        """Complete the jobs of the rows that are in ``folder``."""
        target, settings, name_of_queue, names = self.target, self.settings, self.queue, self.names

        def complete(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pairs = [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
            with masked_errors(target.url), target.open(**settings) as db:
                queue = db.queue(name_of_queue)
                mine = leased(queue, pairs)
                done = sum(map(bool, queue.complete_many(mine)))
                counted = {name: getattr(db.counters, name, 0) for name in names}
                counted |= {"completed": done, "lost": counted["lost"] + len(pairs) - len(mine)}
            yield pa.RecordBatch.from_pydict({name: [counted[name]] for name in names})

        rows: DataFrame = self.spark.read.schema(StructType(list(KEY))).parquet(literally(folder))
        ddl = ", ".join(f"{name} long" for name in names)
        done = rows.mapInArrow(bundled(complete), ddl).collect()
        return Counter({name: sum(row[name] for row in done) for name in names})


def _first(connection: Connection, query: Select[Any], store: Store) -> object:
    return connection.execute(query, store.time()).scalar()


def leased(queue: Queue, pairs: Sequence[tuple[int, int]]) -> list[LeasedJob]:
    """Those of these jobs, by id and version, that are still leased at that version."""
    jobs, db = queue.db.store.tables.jobs, queue.db
    same = [jobs.c[name] for name in ClaimedRow._fields if name not in ("payload", "headers", "last_error")]
    missing: dict[str, Any] = {"payload": "", "headers": None, "last_error": None}

    def look(connection: Connection, some: Sequence[int]) -> list[LeasedJob]:
        query = select(*same, jobs.c.claim_token).where(jobs.c.id.in_(some), jobs.c.queue == queue.name)
        found = []
        for row in connection.execute(query).mappings():
            values = {name: row[name] for name in ClaimedRow._fields if name in row}
            found.append(LeasedJob(ClaimedRow(**values, **missing), queue, db.codec, row["claim_token"] or ""))
        return found

    wanted, found = dict(pairs), []
    ids = sorted(wanted)
    for start in range(0, len(ids), _SOME):
        work = partial(look, some=ids[start : start + _SOME])
        found += db.database.run(work, name="leased", write=False)
    return [job for job in found if job.version == wanted[job.id]]


def _with_columns(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """``table`` with just these columns, nulls where it has none."""
    arrays = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows, columns.field(name).type)
        for name in columns.names
    ]
    return pa.Table.from_arrays(arrays, schema=columns)
