"""Drain a queue in parallel tasks: claim a batch, work on it, publish its results, complete it.

The order is the point. Results are on the disk before their jobs leave the queue, so whatever dies, and whenever, a job is in the
queue or its result is in the folder. What may come twice is the work: see ``docs/spark.md``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from sqlalchemy import URL

from queue_db import Counters, LeasedJob, Queue, QueueDBError, Strategy, arguments
from queue_db.errors import ArgumentError, LeaseLostError
from queue_db.spark import python_workers
from queue_db.spark.code_bundle import bundled
from queue_db.spark.drain_loop import DrainLoop, Heartbeat, Limits, OfKind, Settle, Tally
from queue_db.spark.drain_rounds import Rounds
from queue_db.spark.masked_errors import masked_errors
from queue_db.spark.results import KEY, destination, publish, read_results, result_schema
from queue_db.spark.target import target_of
from queue_db.store.schema import KIND_LENGTH
from queue_db.strategies import strategy_for
from queue_db.verbs.claim import MAX_CLAIM

log = logging.getLogger("queue_db.spark")

#: Jobs in, one result row for each job out; see :func:`drain`.
Function = Callable[[pd.DataFrame], pd.DataFrame | None]
Until = Literal["empty", "idle"]

# The column by which a function sends a job to the dead.
_DEAD = "dead_reason"

_COUNTERS = tuple(field.name for field in fields(Counters))


@dataclass(frozen=True)
class Drained:
    """What a drain did, summed over its tasks. A task attempt that died has taken its numbers with it."""

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
    """Work off ``queue`` in parallel Spark tasks and return the results, a row for each job.

    :func:`drain_to` and :func:`read_results` in one; the parameters are theirs. The columns are ``id, version`` and those of
    ``schema``. Without ``schema`` the function works for its effects and may return nothing; the rows are then the jobs done.

    :param path: as in :func:`drain_to`; None: a temporary folder on this machine, which stays, and which serves only where the
        executors are on this machine too (``local[…]``).
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

    Each task claims up to ``batch`` jobs, hands them to ``function``, publishes the rows as one Parquet file, and then completes
    the jobs, until the queue is drained; :func:`read_results` reads the folder. A task that dies loses nothing: its jobs come back
    when their lease ends, and the other tasks wait for that. Work may be repeated: see ``docs/spark.md``.

    ``function`` gets a pandas DataFrame with one row for each job (``id``, ``kind``, ``payload``, ``attempts`` from 1, and
    ``fence``, the fencing token for outside systems) and returns one with ``id`` and the columns of ``schema``, one row for
    each job. A job without a row has failed. In a further column ``dead_reason``, a text sends the job to the dead, and its row is
    no result. When the function raises, it is called again for each job of the batch alone, so that only those that raise alone
    fail. Failed jobs are tried again after the backoff, and are dead after their last attempt.

    :param url: of a migrated database that every executor reaches; it travels inside the task, and shows in no plan or option.
    :param schema: of the result rows, without ``id`` and ``version``: ``"path string, size long"``; None: no more than these, and
        the function may return None where all jobs are done.
    :param path: folder that driver and executors see under the same name; made if it is not there. Or, as text, the address of a
        folder in a file system that Spark writes to, ``s3a://bucket/results``: then Spark writes, in rounds. One folder for one
        queue; later drains of the queue may add to it.
    :param partitions: how many tasks claim at the same time, if Spark has as many slots. Each has one connection.
    :param batch: jobs in one claim, one call of ``function`` and one file.
    :param lease: seconds; jobs of a vanished task come back after it. It is extended every third of it while ``function`` runs.
    :param strategy: a name, or what makes a Strategy in each task: ``lambda: Optimistic(window=20)``.
    :param until: ``empty``: nothing is leased, due, or due ``within`` so many seconds, so failed jobs are waited for; ``idle``:
        nothing is leased or due, what is due later stays. While the queue is paused, tasks wait.
    :param within: seconds; with ``until="empty"`` a job that is due later than that is not waited for.
    :param max_jobs: claim at most so many, an equal share in each task. A task that Spark runs again has its share anew.
    :param timeout: seconds from the call; after them nothing more is claimed, and each task finishes the batch that it has in hand.
    :param kind: claim jobs of this kind only, and wait for no others.
    :param database: keyword arguments for :class:`queue_db.QueueDB`: ``table``, ``removal``, ``retry_after`` …
    :raises ArgumentError: for values outside their range.
    :raises ConfigurationError, StorageError: when the database cannot be used, or ``path`` is an address to which Spark cannot
        write; found out here, before a job is touched.
    :raises LeaseLostError: jobs were claimed, and the leases of all of them were lost: nothing left the queue.
    :raises pyspark.errors.PySparkException: when a task failed as often as Spark allows. What was published counts; the rest is
        in the queue: drain again.
    """
    began = time.monotonic()
    arguments.whole("partitions", partitions, 1)
    arguments.whole("batch", batch, 1, MAX_CLAIM)
    arguments.seconds("lease", lease, zero=False)
    if until not in ("empty", "idle"):
        raise ArgumentError(f"until={until!r}: must be empty or idle")
    if not isinstance(strategy, str) and not callable(strategy):
        # Every task would get a copy of the object, with the same random numbers: all would reach for the same jobs.
        raise ArgumentError(f"strategy={strategy!r}: give its name, or a function that makes one: lambda: Optimistic(window=20)")
    _check_ends(within, max_jobs, timeout, kind)
    folder = destination(path)
    columns = to_arrow_schema(result_schema(schema), timezone="UTC")
    python_workers.check(spark, on_the_driver=False)
    settings = dict(database or {})
    target = target_of(url, settings.pop("table", "jobs"), settings.pop("schema", None))
    with target.open(**settings) as db:
        db.ready()
        ends = None if timeout is None else db.database.run(db.store.read_clock, name="clock", write=False)
    limits = Limits(
        batch=batch,
        lease=lease,
        within=within if until == "empty" else 0.0,
        kind=kind,
        until=None if timeout is None or ends is None else ends + round(timeout * 1_000_000),
    )

    def in_task(mine: Limits, settle: Settle, *, once: bool = False) -> dict[str, int]:
        made = strategy_for(strategy if isinstance(strategy, str) else strategy())
        with target.open(strategy=made if kind is None else OfKind(made, kind), **settings) as db:
            loop = DrainLoop(db.queue(queue), mine, settle)
            tally = loop.once() if once else loop.run()
            counted = {"completed": tally.completed, "failed": tally.failed, "drained": int(tally.drained)}
            return counted | {name: getattr(db.counters, name) for name in _COUNTERS}

    names = ("completed", "failed", "drained", *_COUNTERS)
    total: Mapping[str, int]
    if isinstance(folder, str):

        def one_round(number: int, left: int | None) -> tuple[Mapping[str, int], pa.Table | None]:
            done: list[pa.Table] = []
            jobs = batch if left is None else min(batch, _share(left, partitions, number))
            counted = in_task(replace(limits, jobs=jobs), partial(_settle, function, columns, done.append, True), once=True)
            return counted | {"written": sum(rows.num_rows for rows in done)}, done[0] if done else None

        rounds = Rounds(
            spark=spark,
            address=folder,
            schema=result_schema(schema),
            target=target,
            settings=settings,
            queue=queue,
            partitions=partitions,
            limits=limits,
            names=(*names, "written"),
            ends=float("inf") if timeout is None else began + timeout,
        )
        rounds.prove()
        total = rounds.run(one_round, max_jobs)
    else:
        folder.mkdir(parents=True, exist_ok=True)

        def work(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # The row is the number of the task; and Spark throws away a Python process that left input unread.
            (number,) = (number for some in rows for number in some.column(0).to_pylist())
            with masked_errors(target.url):
                mine = limits if max_jobs is None else replace(limits, jobs=_share(max_jobs, partitions, number))
                counted = in_task(mine, partial(_settle, function, columns, partial(publish, folder), False))
            yield pa.RecordBatch.from_pydict({name: [value] for name, value in counted.items()})

        ddl = ", ".join(f"{name} long" for name in names)
        done = spark.range(0, partitions, 1, partitions).mapInArrow(bundled(work), ddl).collect()
        total = {name: sum(row[name] for row in done) for name in names}
    drained = Drained(total["completed"], total["failed"], Counters(**_counted(total)), bool(total["drained"]))
    _judge(drained, queue, lease, batch)
    return drained


def _check_ends(within: float, max_jobs: int | None, timeout: float | None, kind: str | None) -> None:
    arguments.seconds("within", within)
    if max_jobs is not None:
        arguments.whole("max_jobs", max_jobs, 1)
    if timeout is not None:
        arguments.seconds("timeout", timeout, zero=False)
    if kind is not None:
        arguments.name("kind", kind, KIND_LENGTH)


def _counted(total: Mapping[str, int]) -> dict[str, int]:
    return {name: total[name] for name in _COUNTERS}


def _share(jobs: int, partitions: int, number: int) -> int:
    """How many of so many jobs the task of this number may claim."""
    return jobs // partitions + (number < jobs % partitions)


def _judge(drained: Drained, queue: str, lease: float, batch: int) -> None:
    """Say what was lost.

    :raises LeaseLostError: everything.
    """
    lost = drained.counters.lost
    if not lost:
        return
    advice = (
        f"heartbeats did not reach the database in time for lease={lease} s (the function kept Python's lock, or the database was "
        f"away), or other programs took the jobs. Give a longer lease, or fewer jobs at once than batch={batch}"
    )
    if drained.completed or drained.failed:
        log.warning("drain of queue %r: %d leases were lost, and that work is done again: %s", queue, lost, advice)
    else:
        raise LeaseLostError(message=f"drain of queue {queue!r}: all {lost} leases were lost, and no job left the queue: {advice}")


def _settle(
    function: Function,
    columns: pa.Schema,
    put: Callable[[pa.Table], object],
    later: bool,
    queue: Queue,
    jobs: Sequence[LeasedJob],
    heartbeat: Heartbeat,
    tally: Tally,
) -> None:
    """Work on a batch: results first, then the queue.

    :param put: gets the results.
    :param later: the jobs that are done stay leased, for a whole lease from now, until their results are safe and the driver has
        them completed at the versions that the results have; False: the results are safe when ``put`` returns.
    """
    # Heartbeats raise the versions of the jobs. Any version of a lease orders its rows behind those of the lease before.
    versions = {job.id: job.version for job in jobs}
    try:
        with heartbeat:
            answer = _apply(function, columns, jobs, versions)
            rows = _without(answer.rows, heartbeat.lost)
            if rows.num_rows and not later:
                put(rows)
        if later:
            heartbeat.beat()  # by itself: the thread has ended
            rows = _at(_without(rows, heartbeat.lost), {job.id: job.version for job in jobs})
            if rows.num_rows:
                put(rows)
        # Where a lease was lost nothing is to be done: whoever has the job now has a higher version, and so will its row.
        mine = [job for job in jobs if job.id not in heartbeat.lost]
        rest = [job for job in mine if job.id not in answer.errors and job.id not in answer.dead]
        if not later:
            tally.completed += sum(map(bool, queue.complete_many(rest)))
        failed = [job for job in mine if job.id in answer.errors]
        tally.failed += sum(map(bool, queue.fail_many(failed, [answer.errors[job.id] for job in failed])))
        dead = [job for job in mine if job.id in answer.dead]
        tally.failed += sum(map(bool, queue.bury_many(dead, [answer.dead[job.id] for job in dead])))
    except Exception:
        # The disk or the database, not the jobs: let others have at once what this task still holds.
        with contextlib.suppress(QueueDBError):
            queue.release_many(jobs)
        raise


def _without(rows: pa.Table, ids: Collection[int]) -> pa.Table:
    """``rows`` without those of some jobs."""
    return rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(list(ids), pa.int64())))) if ids else rows


def _at(rows: pa.Table, versions: Mapping[int, int]) -> pa.Table:
    """``rows`` with these versions."""
    now = pa.array([versions[job_id] for job_id in rows["id"].to_pylist()], pa.int64())
    return rows.set_column(rows.column_names.index("version"), rows.schema.field("version"), now)


@dataclass
class _Answer:
    """What became of the jobs of a batch: result rows; by job id why there is none; and why it is to die."""

    rows: pa.Table
    errors: dict[int, BaseException | str]
    dead: dict[int, str]


def _apply(function: Function, columns: pa.Schema, jobs: Sequence[LeasedJob], versions: Mapping[int, int]) -> _Answer:
    try:
        frame = function(_frame(jobs))
        if frame is None and columns.names == [field.name for field in KEY]:
            frame = pd.DataFrame({"id": [job.id for job in jobs]})
        dead: dict[int, str] = {}
        if frame is not None and _DEAD in frame:
            marked = frame[frame[_DEAD].notna()]
            dead = {int(job_id): str(reason) for job_id, reason in zip(marked["id"], marked[_DEAD], strict=True)}
        table = _rows(frame, columns, {job.id: versions[job.id] for job in jobs})
    except Exception as error:  # noqa: BLE001 - whatever the function raises is the job's failure
        if len(jobs) == 1:
            return _Answer(columns.empty_table(), {jobs[0].id: error}, {})
        # One bad job must not cost its neighbours an attempt.
        parts = [_apply(function, columns, [job], versions) for job in jobs]
        return _Answer(
            pa.concat_tables([part.rows for part in parts]),
            {key: why for part in parts for key, why in part.errors.items()},
            {key: why for part in parts for key, why in part.dead.items()},
        )
    answered = set(table["id"].to_pylist())
    missing = {job.id: "the function returned no row for this job" for job in jobs if job.id not in answered}
    return _Answer(_without(table, dead), dict(missing), dead)


def _frame(jobs: Sequence[LeasedJob]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": pd.Series([job.id for job in jobs], dtype="int64"),
            "kind": [job.kind for job in jobs],
            # As they are: pandas would make its own of lists of numbers or texts.
            "payload": pd.Series([job.payload for job in jobs], dtype="object"),
            "attempts": pd.Series([job.attempts for job in jobs], dtype="int64"),
            "fence": [job.fence for job in jobs],
        }
    )


def _rows(frame: pd.DataFrame, columns: pa.Schema, versions: Mapping[int, int]) -> pa.Table:
    """What the function returned as a table with ``columns``, checked."""
    ids = [int(job_id) for job_id in frame["id"]]
    if len(set(ids)) != len(ids) or not versions.keys() >= set(ids):
        raise ValueError("the function must return at most one row for each of its jobs, with the job's id")
    return pa.Table.from_pandas(
        frame.assign(version=[versions[job_id] for job_id in ids]), schema=columns, preserve_index=False
    ).replace_schema_metadata(None)
