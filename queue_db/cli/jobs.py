"""``queue-db jobs``: look at jobs without claiming them, wait for one, cancel or reschedule one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, KindOption, LimitOption, QueueOption, moment
from queue_db.cli.queues import with_jobs
from queue_db.cli.recording import user
from queue_db.cli.statuses import NegativeError
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, LeaseLostError
from queue_db.groups import Batch
from queue_db.model import Job
from queue_db.model import State as JobState
from queue_db.monitoring.model import Finished
from queue_db.operations import jobs as operations
from queue_db.operations.jobs import NewTime, OneJob

IdArgument = Annotated[int, typer.Argument(min=0, metavar="ID", help="Id of the job.")]

# Jobs of one page.
_PAGE = 100

# Seconds of one wait of many.
_ONE_WAIT = 3600.0

app = typer.Typer(
    name="jobs",
    help="Jobs: look at them without claiming them, wait for one, cancel or reschedule one; the progress of batches.",
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


class State(StrEnum):
    """The states by which jobs are listed."""

    DUE = "due"
    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    RUNNING = "running"
    DEAD = "dead"
    FINISHED = "finished"


# Heading of the column with ``available_at``.
_TIMES = {
    State.DUE: "due since",
    State.SCHEDULED: "due",
    State.BLOCKED: "due",
    State.RUNNING: "lease ends",
    State.DEAD: "dead since",
}


@command(
    app,
    "list",
    "queue-db jobs list --queue mail",
    "queue-db jobs list --state running",
    "queue-db jobs list --state scheduled --queue mail --kind send --json | jq -r .payload.to",
    "queue-db jobs list --state finished --kind report --json | jq .result",
)
def list_jobs(
    *,
    state: Annotated[State, typer.Option("--state", metavar="|".join(State), help="Only jobs in this state.")] = State.DUE,
    queue: QueueOption = None,
    kind: KindOption = None,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="Only jobs of this group.")] = None,
    limit: LimitOption = 100,
    common: CommonOptions,
) -> None:
    """List the jobs in one state, queue by queue, without claiming them. The due ones come in the order of claims.

    due: a worker may claim it now. scheduled: due later, retries included. blocked: waits for earlier jobs of its group. running:
    leased by a worker. dead: out of attempts or given up. finished: completed, and its result is retained until it expires.
    """
    if state is State.FINISHED:
        if group is not None:
            raise ArgumentError("--group: finished jobs have no group")
        with common.open() as db:
            _print_finished(db.finished_jobs(queue, kind=kind, limit=limit), common)
        return
    with common.open() as db:
        jobs = (job for one in with_jobs(db, queue) for job in _of_queue(db, one.name, state, kind, group))
        print_jobs(list(islice(jobs, limit)), _TIMES[state], common)


def _of_queue(db: QueueDB, queue: str, state: State, kind: str | None, group: str | None) -> Iterator[Job]:
    """The jobs of a queue, a page at a time."""
    wanted = JobState.AVAILABLE if state is State.DUE else JobState(state.value)
    after: str | None = None
    while True:
        page = db.queue(queue).jobs(wanted, kind=kind, group=group, after=after, limit=_PAGE)
        yield from page.jobs
        if (after := page.after) is None:
            return


@command(app, "show", "queue-db jobs show 42", "queue-db jobs show 42 --json | jq .state")
def show(job_id: IdArgument, *, queue: QueueOption = None, common: CommonOptions) -> None:
    """Show one live or dead job. Completed jobs leave the table: see "queue-db jobs wait".

    Status 1 if there is none. batch: the id of its batch, for "queue-db jobs batch". steps: what it has done, and what
    it waits for.
    """
    with common.open() as db:
        job = db.get(job_id) if queue is None else db.queue(queue).get(job_id)
        steps = db.steps.list(job.id)
    texts = {"payload": output.payload_text(job.payload), "headers": output.payload_text(dict(job.headers))}
    texts["steps"] = "\n".join(map(output.step_text, steps)) or "–"
    common.print_sheet({**output.job_record(job), "steps": [output.step_record(one) for one in steps]}, texts)


@command(app, "batch", "queue-db jobs batch", "queue-db jobs batch 7", "queue-db jobs batch 7 --json | jq .pending")
def batch(
    batch_id: Annotated[int | None, typer.Argument(min=0, metavar="[ID]", help="Id of the batch; without it: list them.")] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N batches.")] = 100,
    common: CommonOptions,
) -> None:
    """List the batches with jobs still in a queue, newest first; with an ID: the progress of that one, status 1 if it has ended.

    queue: that of its callback job. pending: jobs still in the queue. dead, cancelled: how many of its jobs have ended so.
    """
    with common.open() as db:
        if batch_id is None:
            _print_batches(db.batches(limit=limit), common)
            return
        found = db.batch(batch_id)
    if found is None:
        raise NegativeError(f"no batch {batch_id}: all its jobs have left, or it never existed", "no_such_batch")
    common.print_sheet(asdict(found))


@command(app, "wait", "queue-db jobs wait 42", "queue-db jobs wait 42 --timeout 60 --json | jq .result")
def wait(
    job_id: IdArgument,
    *,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait at most so long; 0: not at all. Default: no limit.")
    ] = None,
    common: CommonOptions,
) -> None:
    """Wait until a job is completed, and print its result. Its handler or worker must retain results, by result_ttl.

    Status 1 if the job is dead, if nothing is left of it, or if it is not completed in time.
    """
    if timeout is not None:
        arguments.seconds("--timeout", timeout)
    with common.open() as db, output.busy("waiting"):
        found = _wait(db, job_id, timeout)
    common.print(asdict(found), output.payload_text(found.result))


def _wait(db: QueueDB, job_id: int, timeout: float | None) -> Finished:
    while True:
        try:
            return db.wait(job_id, _ONE_WAIT if timeout is None else timeout)
        except TimeoutError as error:
            if timeout is not None:
                raise NegativeError(str(error), "timeout") from None


@command(app, "cancel", "queue-db jobs cancel 42", "queue-db jobs cancel 42 --queue mail --json")
def cancel(job_id: IdArgument, *, queue: QueueOption = None, common: CommonOptions) -> None:
    """Remove a live job, whatever its state. If it is running, its worker loses the lease.

    Status 1 if there is no such live job. To delete dead jobs, use "queue-db dead purge".
    """
    with common.open() as db:
        job = _changed(job_id, operations.cancel(db, user(), OneJob(id=job_id, queue=queue)))
    common.print(
        {"id": job.id, "queue": job.queue, "cancelled": True},
        f"cancelled job {job.id} of queue {job.queue!r}",
    )


@command(
    app,
    "reschedule",
    "queue-db jobs reschedule 42 --now",
    "queue-db jobs reschedule 42 --delay 3600 --priority 5",
    "queue-db jobs reschedule 42 --at 2026-01-31T08:00:00+01:00 --json",
)
def reschedule(
    job_id: IdArgument,
    *,
    now: Annotated[bool, typer.Option("--now", help="It is due now.")] = False,
    delay: Annotated[float | None, typer.Option("--delay", metavar="SECONDS", help="It is due in SECONDS.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="It is due then: 2026-01-31T08:00:00+01:00, or with Z for UTC.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Lower numbers run first.")] = None,
    queue: QueueOption = None,
    common: CommonOptions,
) -> None:
    """Give a waiting job another due time or priority, also one that waits for its next attempt.

    Status 1 if there is no such job, if it is running, or if it is blocked in its group and a time is given.
    """
    if sum((now, delay is not None, at is not None)) > 1:
        raise ArgumentError("--now, --delay and --at all say when the job is due: give one of them")
    if not now and delay is None and at is None and priority is None:
        raise ArgumentError("nothing to change: give --now, --delay or --at, or --priority")
    new = NewTime(run_at=None if at is None else moment("--at", at), delay=0.0 if now else delay, priority=priority)
    with common.open() as db:
        job = _changed(job_id, operations.reschedule(db, user(), OneJob(id=job_id, queue=queue), new))
    # It is not read again: a worker may have completed it already.
    common.print(
        {"id": job.id, "queue": job.queue, "rescheduled": True},
        f"rescheduled job {job.id} of queue {job.queue!r}",
    )


def _changed(job_id: int, job: Job | None) -> Job:
    """The job that was changed.

    :raises LeaseLostError: it was not.
    """
    if job is None:
        raise LeaseLostError(
            message=f"job {job_id} was not changed: it changed during each of several tries, or a stream holds it; try again"
        )
    return job


def print_jobs(jobs: Iterable[Job], time_column: str, common: CommonOptions) -> None:
    """Print a list of jobs.

    :param time_column: heading of the column with ``available_at``.
    """
    common.print_all(
        jobs,
        ("id", "queue", "kind", "priority", "attempts", time_column, "payload", "last error"),
        lambda job: (
            *(job.id, job.queue, job.kind, job.priority, f"{job.attempts}/{job.max_attempts}", job.available_at),
            output.brief(output.payload_text(job.payload)),
            output.brief(job.last_error or ""),
        ),
        output.job_record,
    )


def _print_batches(batches: Iterable[Batch], common: CommonOptions) -> None:
    common.print_all(
        batches,
        ("batch", "queue", "jobs", "pending", "dead", "cancelled", "created"),
        lambda one: (one.id, one.queue, one.jobs, one.pending, one.dead, one.cancelled, one.created_at),
    )


def _print_finished(jobs: Iterable[Finished], common: CommonOptions) -> None:
    common.print_all(
        jobs,
        ("id", "queue", "kind", "attempts", "finished", "expires", "result"),
        lambda job: (
            *(job.id, job.queue, job.kind, job.attempts, job.finished_at, job.expires_at),
            output.brief(output.payload_text(job.result)),
        ),
    )
