"""One batch of a drain: call the function, publish its rows, settle the jobs.

The order matters. Results are durable before their jobs leave the queue: whatever dies, and whenever, a job is in the queue or its
result is in the folder. What may be repeated is the work: see ``docs/spark.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from queue_db import LeasedJob, Queue, QueueDBError, arguments
from queue_db.spark.drain_loop import Heartbeat, Tally
from queue_db.spark.results import KEY

Function = Callable[[pd.DataFrame], pd.DataFrame | None]
"""The work of a drain.

It gets a pandas DataFrame with one row for each job (``id``, ``kind``, ``payload``, ``attempts`` from 1, and ``fence``, the
fencing token for outside systems) and returns one with ``id`` and the columns of the results, one row for each job. A job
without a row has failed. A text in a further column ``dead_reason`` sends the job to the dead table, and its row is no result.
Without result columns it may return None when all jobs are done. When it raises, it is called again for each job of the batch
alone, so that only those that raise alone fail. Failed jobs are retried after the backoff, and are dead after their last
attempt.
"""

# The column by which a function sends a job to the dead table.
_DEAD = "dead_reason"


@dataclass(frozen=True)
class BatchWork:
    """What a task does with each batch that it has claimed.

    :param columns: of the results, with ``id`` and ``version``.
    :param put: stores results; they are durable when it returns, unless ``complete_later``.
    :param complete_later: do not complete the jobs here. They stay leased, for a whole lease from now; the driver makes their
        results durable and completes them at the versions in the results.
    """

    function: Function
    columns: pa.Schema
    put: Callable[[pa.Table], object]
    complete_later: bool = False

    def settle(self, queue: Queue, jobs: Sequence[LeasedJob], heartbeat: Heartbeat, tally: Tally) -> None:
        """Work on ``jobs`` while ``heartbeat`` extends their leases; then settle them: results first, then the queue."""
        try:
            outcome = self._work(jobs, heartbeat)
            # A job whose lease was lost is skipped: its new holder has a higher version, and so will its row.
            mine = [job for job in jobs if job.id not in heartbeat.lost]
            if not self.complete_later:
                done = [job for job in mine if job.id not in outcome.errors and job.id not in outcome.dead]
                tally.completed += sum(map(bool, queue.complete_many(done)))
            failed = [job for job in mine if job.id in outcome.errors]
            tally.failed += sum(map(bool, queue.fail_many(failed, [outcome.errors[job.id] for job in failed])))
            dead = [job for job in mine if job.id in outcome.dead]
            tally.failed += sum(map(bool, queue.bury_many(dead, [outcome.dead[job.id] for job in dead])))
        except Exception:
            # The disk or the database failed, not the jobs: others can claim them at once.
            with contextlib.suppress(QueueDBError):
                queue.release_many(jobs)
            raise

    def _work(self, jobs: Sequence[LeasedJob], heartbeat: Heartbeat) -> Outcome:
        """Call the function and put its rows."""
        # Heartbeats raise the versions of the jobs. Any version of a lease sorts its rows after those of the lease before.
        versions = {job.id: job.version for job in jobs}
        with heartbeat:
            outcome = apply(self.function, self.columns, jobs, versions)
            rows = _without(outcome.rows, heartbeat.lost)
            if rows.num_rows and not self.complete_later:
                self.put(rows)
        if self.complete_later:
            heartbeat.beat()  # its thread has ended
            rows = _with_versions(_without(rows, heartbeat.lost), {job.id: job.version for job in jobs})
            if rows.num_rows:
                self.put(rows)
        return outcome


@dataclass
class Outcome:
    """Of a batch: its result rows, errors by job id, and reasons for the dead table by job id."""

    rows: pa.Table
    errors: dict[int, BaseException | str]
    dead: dict[int, str]


def apply(function: Function, columns: pa.Schema, jobs: Sequence[LeasedJob], versions: Mapping[int, int]) -> Outcome:
    """Call the function with all jobs; if that raises, once for each job, so that only those fail that raise alone."""
    try:
        frame = function(_frame(jobs))
        arguments.done("the function", frame)
        if frame is None and columns.names == [field.name for field in KEY]:
            frame = pd.DataFrame({"id": [job.id for job in jobs]})
        dead: dict[int, str] = {}
        if frame is not None and _DEAD in frame:
            marked = frame[frame[_DEAD].notna()]
            dead = {int(job_id): str(reason) for job_id, reason in zip(marked["id"], marked[_DEAD], strict=True)}
        table = _table(frame, columns, {job.id: versions[job.id] for job in jobs})
    except Exception as error:  # noqa: BLE001 - whatever the function raises is the job's failure
        if len(jobs) == 1:
            return Outcome(columns.empty_table(), {jobs[0].id: error}, {})
        parts = [apply(function, columns, [job], versions) for job in jobs]
        return Outcome(
            pa.concat_tables([part.rows for part in parts]),
            {key: problem for part in parts for key, problem in part.errors.items()},
            {key: reason for part in parts for key, reason in part.dead.items()},
        )
    answered = set(table["id"].to_pylist())
    missing = {job.id: "the function returned no row for this job" for job in jobs if job.id not in answered}
    return Outcome(_without(table, dead), dict(missing), dead)


def _frame(jobs: Sequence[LeasedJob]) -> pd.DataFrame:
    """What the function gets."""
    return pd.DataFrame(
        {
            "id": pd.Series([job.id for job in jobs], dtype="int64"),
            "kind": [job.kind for job in jobs],
            # As objects: pandas would convert lists of numbers or texts.
            "payload": pd.Series([job.payload for job in jobs], dtype="object"),
            "attempts": pd.Series([job.attempts for job in jobs], dtype="int64"),
            "fence": [job.fence for job in jobs],
        }
    )


def _table(frame: pd.DataFrame, columns: pa.Schema, versions: Mapping[int, int]) -> pa.Table:
    """What the function returned, checked, as a table with ``columns``."""
    ids = [int(job_id) for job_id in frame["id"]]
    if len(set(ids)) != len(ids) or not versions.keys() >= set(ids):
        raise ValueError("the function must return at most one row for each of its jobs, with the job's id")
    versioned = frame.assign(version=[versions[job_id] for job_id in ids])
    return pa.Table.from_pandas(versioned, schema=columns, preserve_index=False).replace_schema_metadata(None)


def _without(rows: pa.Table, ids: Collection[int]) -> pa.Table:
    """``rows`` without those of the jobs ``ids``."""
    return rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(list(ids), pa.int64())))) if ids else rows


def _with_versions(rows: pa.Table, versions: Mapping[int, int]) -> pa.Table:
    """``rows`` with the column ``version`` replaced."""
    column = pa.array([versions[job_id] for job_id in rows["id"].to_pylist()], pa.int64())
    return rows.set_column(rows.column_names.index("version"), rows.schema.field("version"), column)
