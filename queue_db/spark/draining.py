"""Drain a queue in parallel Spark tasks.

One drain, from top to bottom: ``drain_to`` checks its arguments and starts the tasks; each runs the loop of ``drain_loop``, which
claims a batch and hands it to ``drain_batch``: call the function, publish the rows (``results``), complete the jobs. Where only
Spark can write, ``drain_rounds`` does the same in rounds.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from sqlalchemy import URL

from queue_db import Counters, Strategy, arguments
from queue_db.errors import ArgumentError, LeaseLostError
from queue_db.spark import python_workers
from queue_db.spark.code_bundle import bundled
from queue_db.spark.drain_batch import BatchWork, Function
from queue_db.spark.drain_loop import COUNTED, COUNTERS, DrainTask, Limits, share, task_number
from queue_db.spark.drain_rounds import Rounds
from queue_db.spark.masked_errors import masked_errors
from queue_db.spark.results import destination, publish, read_results, result_schema
from queue_db.spark.target import target_of
from queue_db.store.schema import KIND_LENGTH
from queue_db.verbs.claim import MAX_CLAIM

log = logging.getLogger("queue_db.spark")

Until = Literal["empty", "idle"]


@dataclass(frozen=True)
class Drained:
    """The counts of a drain, summed over its tasks. A task attempt that died is not in them."""

    completed: int  #: jobs whose result is published and which left the queue
    failed: int  #: attempts that ended in an error; the job waits for its next attempt, or is dead
    counters: Counters  #: claims, candidates, misses, lost leases … as :attr:`queue_db.QueueDB.counters` counts them
    #: Whether a task found nothing left to wait for; False: ``max_jobs`` or ``timeout`` ended the drain before.
    drained: bool = True


def drain(
    spark: SparkSession,
    url: str | URL,
    queue: str,
    function: Function,
    schema: StructType | str | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    partitions: int = 8,
    **how: Any,
) -> DataFrame:
    """Work off ``queue`` in parallel Spark tasks and return the results, one row for each job.

    :func:`drain_to` and :func:`read_results` in one, with their parameters. The columns are ``id, version`` and those of
    ``schema``. Without ``schema`` the function works for its effects and may return None; the rows are then the completed jobs.

    :param path: as in :func:`drain_to`. None: a temporary folder on this machine, which is kept; only for executors on this
        machine (``local[…]``).
    :raises ArgumentError: no ``path`` on a cluster.
    """
    if path is None:
        master = spark.conf.get("spark.master", "")
        if not str(master).startswith("local"):
            raise ArgumentError(
                f"path is missing: on {master} give the address of a file system that Spark writes to, as in s3a://bucket/results, "
                "or a folder that the driver and all executors see under the same name"
            )
        path = tempfile.mkdtemp(prefix="queue_db-results-")
    drain_to(spark, url, queue, function, schema, path, partitions=partitions, **how)
    return read_results(spark, path, schema)


def drain_to(
    spark: SparkSession,
    url: str | URL,
    queue: str,
    function: Function,
    schema: StructType | str | None,
    path: str | os.PathLike[str],
    *,
    partitions: int = 8,
    batch: int = 100,
    lease: float = 60.0,
    strategy: str | Callable[[], Strategy] = "optimistic",
    until: Until = "empty",
    within: float = 3600.0,
    max_jobs: int | None = None,
    timeout: float | None = None,
    kind: str | None = None,
    database: Mapping[str, Any] | None = None,
) -> Drained:
    """Work off ``queue`` in ``partitions`` parallel Spark tasks; return when it is drained, with the results in ``path``.

    Each task claims a batch, calls ``function`` with it, publishes the rows as a Parquet file, completes the jobs, and repeats
    that; :func:`read_results` reads the folder. Jobs of a dead task return when their leases end, and the other tasks wait for
    that. Work may be repeated: see ``docs/spark.md``.

    :param url: of a migrated database that every executor reaches; it travels inside the task, and is in no plan or option.
    :param function: gets and returns a pandas DataFrame: see :data:`queue_db.spark.drain_batch.Function`.
    :param schema: of the result rows, without ``id`` and ``version``: ``"path string, size long"``; None: no more columns.
    :param path: a folder that driver and executors see under the same name; it is created. Or, as a str, an address that Spark
        can write to, ``s3a://bucket/results``: then Spark writes, in rounds. One folder for one queue; later drains may add to it.
    :param partitions: tasks that claim at the same time, if Spark has as many slots. Each has one connection.
    :param batch: jobs in one claim, one call of ``function`` and one file.
    :param lease: seconds; jobs of a dead task return after it. It is extended three times in each lease while ``function`` runs.
    :param strategy: a name, or a function that makes a Strategy in each task: ``lambda: Optimistic(window=20)``.
    :param until: ``empty``: no job is leased, due, or due ``within`` seconds, so retries are waited for; ``idle``: no job is
        leased or due. While the queue is paused, tasks wait.
    :param max_jobs: jobs to claim at most, an equal share in each task. A task that Spark runs again has its full share again.
    :param timeout: seconds from the call, after which nothing more is claimed; each task finishes its batch.
    :param kind: claim jobs of this kind only, and wait for no others.
    :param database: keyword arguments for :class:`queue_db.QueueDB`: ``table``, ``removal``, ``retry_after`` …
    :raises ArgumentError: for values outside their range.
    :raises ConfigurationError: the database cannot be used, or Spark cannot write to ``path``; raised before any job is claimed.
    :raises StorageError: the database cannot be reached; raised before any job is claimed.
    :raises LeaseLostError: the leases of all claimed jobs were lost: nothing left the queue.
    :raises pyspark.errors.PySparkException: a task failed as often as Spark allows. What was published counts; drain again for the
        rest.
    """
    began = time.monotonic()
    arguments.plain("function", function)
    _check_tasks(partitions, batch, lease, strategy)
    _check_ends(until, within, max_jobs, timeout, kind)
    folder, columns = destination(path), result_schema(schema)
    to_arrow_schema(columns, timezone="UTC")  # refuses types that tasks cannot return
    python_workers.check(spark, on_the_driver=False)
    limits = Limits(batch=batch, lease=lease, within=within if until == "empty" else 0.0, kind=kind)
    task = _prepare(url, queue, strategy, limits, timeout, dict(database or {}))
    if isinstance(folder, str):
        ends = float("inf") if timeout is None else began + timeout
        return _drained(_in_rounds(spark, folder, columns, task, function, partitions, max_jobs, ends), task)
    return _drained(_in_tasks(spark, folder, columns, task, function, partitions, max_jobs), task)


def _prepare(
    url: str | URL,
    queue: str,
    strategy: str | Callable[[], Strategy],
    limits: Limits,
    timeout: float | None,
    settings: dict[str, Any],
) -> DrainTask:
    """What the tasks share; the database is opened once, as a check."""
    target = target_of(url, settings.pop("table", "jobs"), settings.pop("schema", None))
    with target.open(**settings) as db:
        db.ready()
        if timeout is not None:
            limits = replace(limits, until=db.core.now() + round(timeout * 1_000_000))
    return DrainTask(target, settings, queue, strategy, limits)


def _in_rounds(
    spark: SparkSession,
    address: str,
    schema: StructType,
    task: DrainTask,
    function: Function,
    partitions: int,
    max_jobs: int | None,
    ends: float,
) -> Mapping[str, int]:
    """Let Spark write the results, in rounds; return the sums of the tasks' counts."""
    rounds = Rounds(spark, address, schema, task, function, partitions, ends)
    rounds.probe()
    return rounds.run(max_jobs)


def _in_tasks(
    spark: SparkSession,
    folder: Path,
    schema: StructType,
    task: DrainTask,
    function: Function,
    partitions: int,
    max_jobs: int | None,
) -> Mapping[str, int]:
    """Let the tasks write the results, each until the queue is drained; return the sums of their counts."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = to_arrow_schema(schema, timezone="UTC")

    def work(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = task_number(rows)
        with masked_errors(task.target.url):
            settle = BatchWork(function, columns, partial(publish, folder)).settle
            counted = task.run(settle, jobs=None if max_jobs is None else share(max_jobs, partitions, number))
        yield pa.RecordBatch.from_pydict({name: [value] for name, value in counted.items()})

    ddl = ", ".join(f"{name} long" for name in COUNTED)
    done = spark.range(0, partitions, 1, partitions).mapInArrow(bundled(work), ddl).collect()
    return {name: sum(row[name] for row in done) for name in COUNTED}


def _drained(total: Mapping[str, int], task: DrainTask) -> Drained:
    """The sums as a result; lost leases are logged.

    :raises LeaseLostError: all were lost.
    """
    counters = Counters(**{name: total[name] for name in COUNTERS})
    drained = Drained(total["completed"], total["failed"], counters, bool(total["drained"]))
    lost, limits = counters.lost, task.limits
    if lost:
        advice = (
            f"heartbeats did not reach the database in time for lease={limits.lease} s (the function kept Python's lock, or the "
            "database was away), or other programs took the jobs. Give a longer lease, or fewer jobs at once than "
            f"batch={limits.batch}"
        )
        if not drained.completed and not drained.failed:
            problem = f"drain of queue {task.queue!r}: all {lost} leases were lost, and no job left the queue: {advice}"
            raise LeaseLostError(message=problem)
        log.warning("drain of queue %r: %d leases were lost, that work is repeated: %s", task.queue, lost, advice)
    return drained


def _check_tasks(partitions: int, batch: int, lease: float, strategy: str | Callable[[], Strategy]) -> None:
    arguments.whole("partitions", partitions, 1)
    arguments.whole("batch", batch, 1, MAX_CLAIM)
    arguments.seconds("lease", lease, zero=False)
    if not isinstance(strategy, str) and not callable(strategy):
        # Each task would get a copy of the object with the same random numbers, and all would try the same jobs.
        raise ArgumentError(f"strategy={strategy!r}: give its name, or a function that makes one: lambda: Optimistic(window=20)")


def _check_ends(until: str, within: float, max_jobs: int | None, timeout: float | None, kind: str | None) -> None:
    if until not in ("empty", "idle"):
        raise ArgumentError(f"until={until!r}: must be empty or idle")
    arguments.seconds("within", within)
    if max_jobs is not None:
        arguments.whole("max_jobs", max_jobs, 1)
    if timeout is not None:
        arguments.seconds("timeout", timeout, zero=False)
    if kind is not None:
        arguments.name("kind", kind, KIND_LENGTH)
