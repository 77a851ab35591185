"""``queue-db queues``: the numbers and the controls of queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from queue_db import arguments
from queue_db.cli import output, panels, profiles, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument, YesOption
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, QueueDBError
from queue_db.model import UNCHANGED, Controls, from_micros
from queue_db.monitoring import waiting_groups
from queue_db.monitoring.insights import controlled
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.monitoring.model import QueueStats
from queue_db.monitoring.sampling import MOST
from queue_db.monitoring.store import counts
from queue_db.operations import groups as groups_operations
from queue_db.operations import queues as operations
from queue_db.operations.queues import NO_LIMITS, Limits
from queue_db.queue import Queue

app = typer.Typer(
    name="queues",
    help="Queues: their numbers and groups, and their controls, which hold for all workers. A queue begins with its first job.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)

_STATES = ("available", "scheduled", "blocked", "running", "held", "dead")
_COUNTS = ("completed", "failed", "died", "lost", "missed")


@command(
    app,
    "list",
    "queue-db queues list",
    "queue-db queues list --json | jq .oldest",
    "queue-db queues list mail --last 3600 --width 60",
)
def list_queues(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    last: Annotated[
        float | None,
        typer.Option("--last", metavar="SECONDS", help="The history of the last SECONDS, up to 30 days, not the latest numbers."),
    ] = None,
    width: Annotated[
        int,
        typer.Option("--width", metavar="SECONDS", help="Seconds per line of the history: a multiple of 10; beyond a day of 600."),
    ] = 10,
    common: CommonOptions,
) -> None:
    """List the queues with the numbers that workers wrote: jobs by state, and what happened in the last minute.

    Reads no jobs, so it is quick however many there are; "queue-db queues show" counts them now. "10,000+": there may be more, as a
    count stops there; --last shows all, counted less often. workers: that claim from the queue. no handler: jobs of kinds for which
    no worker has had a handler. controls: the pause and the limits; a queue with controls is listed also if it had no jobs lately.
    """
    if last is not None and not 0 <= last <= 366 * 86_400:
        raise ArgumentError(f"--last {last:g}: must be 0 to {366 * 86_400:,} seconds")
    with common.open() as db:
        if last is None:
            found = [one for one in db.metrics.latest() if queue in (None, one.queue)]
            named = {name: one for name, one in controlled(db).items() if queue in (None, name) and one != Controls()}
        else:
            found = db.metrics.history(queue, since=from_micros(db.core.now()) - timedelta(seconds=last), width=width)
            named = {}
    idle = sorted(named.keys() - {one.queue for one in found})
    if common.as_json:
        for one in found:
            more = {} if last is not None else {"controls": asdict(named.get(one.queue, Controls()))}
            output.record(asdict(one) | more)
        for name in idle:
            output.record({"queue": name, "controls": asdict(named[name])})
        return
    output.table(
        ("queue", "at", *_STATES, "oldest", *_COUNTS, "in", "workers", "no handler", "controls"),
        [
            *(_line(one, named.get(one.queue, Controls())) for one in found),
            *((name, *[None] * (len(_STATES) + len(_COUNTS) + 5), _short(named[name])) for name in idle),
        ],
    )


def _line(one: QueueMetrics, controls: Controls) -> tuple[object, ...]:
    return (
        one.queue,
        one.at,
        *(output.at_least(getattr(one, name), name in one.capped) for name in _STATES),
        output.span(one.oldest),
        *(getattr(one, name) for name in _COUNTS),
        output.span(one.duration),
        one.workers,
        one.unknown,
        _short(controls) or None,
    )


def _short(controls: Controls) -> str:
    """The pause and the limits, for a table."""
    return "" if controls == Controls() else described(controls)


@command(
    app,
    "show",
    "queue-db queues show mail",
    "queue-db queues show mail --exact --json | jq .available",
    "queue-db queues show mail --groups",
)
def show(
    queue: QueueArgument,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count all jobs. This reads the whole queue.")] = False,
    groups: Annotated[
        bool, typer.Option("--groups", help="The groups with jobs that wait instead, and the job that each waits for.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Count the jobs of a queue by state and kind, and show its pause and limits; or the groups whose jobs wait.

    Counts stop at 10,000, unless --exact is given.

    available: due now. scheduled: due later, retries included. blocked: waiting for earlier jobs of their groups. running: leased
    by a worker. held: claimed by a stream. dead: out of attempts or given up. waiting: how long ago the oldest available job
    became due. progress: mean of the running jobs that report one.

    With --groups: looks at the first 200 blocked jobs of the queue; groups with most of them come first. blocked: how many of these
    wait in the group.
    """
    if groups:
        if exact:
            raise ArgumentError("--exact and --groups exclude each other: give one of them")
        _show_groups(queue, common)
        return
    with common.open() as db:
        found, controls = db.queue(queue).stats(most=None if exact else MOST), db.queue(queue).controls()
    if common.as_json:
        output.record(asdict(found) | {"controls": asdict(controls)})
        return
    output.table(("queue", "kind", *_STATES, "waiting", "progress"), list(_rows(found)))
    output.line(described(controls))


def _show_groups(queue: str, common: CommonOptions) -> None:
    with common.open() as db:
        db.queue(queue)  # checks the name
        found, more = waiting_groups.heads(db, [queue])

    def record(one: waiting_groups.Head) -> dict[str, Any]:
        return {
            "queue": one.queue,
            "group": one.group,
            "blocked": one.blocked,
            "job": None if one.job is None else output.job_record(one.job),
        }

    def line(one: waiting_groups.Head) -> tuple[object, ...]:
        if (job := one.job) is None:
            return (one.group, one.blocked, *[None] * 5)
        attempts, error = f"{job.attempts}/{job.max_attempts}", output.brief(job.last_error or "")
        return (one.group, one.blocked, f"{job.kind} {job.id}", job.state.value, attempts, job.available_at, error)

    common.print_all(found, ("group", "blocked", "waits for", "state", "attempts", "due", "last error"), line, record)
    if more and not common.as_json:
        output.note(
            f"of the first {waiting_groups.MOST_JOBS} blocked jobs, and at most {waiting_groups.MOST} groups; there are more"
        )


def _rows(one: QueueStats) -> Iterator[tuple[object, ...]]:
    waiting, progress = output.span(one.oldest_available_age), output.share(one.progress)
    yield (one.queue, "", *(output.at_least(getattr(one, state), state in one.capped) for state in _STATES), waiting, progress)
    for kind, n in one.by_kind.items():
        yield ("", kind, n.available, n.scheduled, n.blocked, n.running, "", n.dead, "", "")


@command(app, "pause", "queue-db queues pause mail", "queue-db queues pause mail --wait 60")
def pause(
    queue: QueueArgument,
    *,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Wait up to SECONDS until no job of the queue is running; status 1 if one still is. "
            "Workers notice a pause within 1.5 s, which may be added to the wait.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Stop all workers from claiming jobs of a queue until it is resumed. Running jobs continue."""
    if wait is not None:
        arguments.seconds("--wait", wait)
    with common.open() as db:
        idle = operations.pause(db, user(), queue, wait=wait)
        _warn_if_unused(db, queue)
        _print_controls(db, queue, common)
    if not idle:
        output.note(f"jobs of {queue} are still running after {wait:g} s")
        raise typer.Exit(statuses.NEGATIVE)


@command(app, "resume", "queue-db queues resume mail")
def resume(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Let workers claim from a paused queue again."""
    with common.open() as db:
        operations.resume(db, user(), queue)
        _warn_if_unused(db, queue)
        _print_controls(db, queue, common)


@command(
    app,
    "limit",
    "queue-db queues limit mail --concurrency 20",
    "queue-db queues limit mail --rate 50 --per 60",
    "queue-db queues limit mail --none",
    "queue-db queues limit mail --none --concurrency 5",
)
def limit(
    queue: QueueArgument,
    *,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most N jobs of the queue are leased at a time, over all workers.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most N jobs are claimed per --per seconds, over all workers.")
    ] = None,
    per: Annotated[float | None, typer.Option(metavar="SECONDS", show_default="1", help="The time span of the rate.")] = None,
    per_group: Annotated[
        int | None, typer.Option(min=1, metavar="N", show_default="1", help="At most N jobs of one group are leased at a time.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the limits that are not given. A pause stays.")] = False,
    common: CommonOptions,
) -> None:
    """Change limits of a queue, which hold for all workers together. What is not given stays as it is, or is removed with --none.

    "queue-db queues show" shows the limits.
    """
    values = {"concurrency": concurrency, "rate": rate, "per": per, "per_group": per_group}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if not given and not none:
        raise ArgumentError("nothing to change: give --concurrency, --rate, --per or --per-group; --none removes all limits")
    with common.open() as db:
        new = [f"{name} {value}" for name, value in given.items()] + ["none of the others"] * none
        profiles.confirm(f"limit queue {queue}: {', '.join(new)},")
        left: Any = None if none else UNCHANGED
        operations.limit(db, user(), queue, Limits(**(dict.fromkeys(asdict(NO_LIMITS), left) | given)))
        _warn_if_unused(db, queue)
        _print_controls(db, queue, common)


@command(
    app,
    "fair",
    "queue-db queues fair mail",
    "queue-db queues fair mail --weight vip=3 --weight trial=1",
    "queue-db queues fair mail --off",
)
def fair(
    queue: QueueArgument,
    *,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=N", help="The group has N jobs in each turn; 1, as all others, by default.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="The queue is as any other again.")] = False,
    common: CommonOptions,
) -> None:
    """Let claims of a queue take turns among its groups, such as tenants. The jobs of a group do not wait for each other."""
    weights = dict(_weight(one) for one in weight or [])
    with common.open() as db:
        operations.fair(db, user(), queue, enabled=not off, weights=weights)
        _warn_if_unused(db, queue)
        _print_controls(db, queue, common)


def _weight(given: str) -> tuple[str, int]:
    group, _, number = given.rpartition("=")
    if not group or not number.isdecimal():
        raise ArgumentError(f"--weight {given}: must be GROUP=N")
    return group, int(number)


@command(
    app,
    "limit-groups",
    "queue-db queues limit-groups mail --concurrency 5",
    "queue-db queues limit-groups mail --group vip --concurrency 50",
    "queue-db queues limit-groups api --prefix acme: --rate 10",
    "queue-db queues limit-groups mail --group vip --none",
)
def limit_groups(
    queue: QueueArgument,
    *,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Only this group.")] = None,
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="All groups together whose names begin with TEXT.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N jobs are leased at a time.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N jobs are claimed per --per seconds.")] = None,
    per: Annotated[float | None, typer.Option(metavar="SECONDS", show_default="1", help="The time span of the rate.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the limits that are not given.")] = False,
    common: CommonOptions,
) -> None:
    """Change the limits of each group of a fair queue, of one group, or of a prefix. Then print all of them.

    What is not given stays as it is, or is removed with --none.
    """
    values = {"concurrency": concurrency, "rate": rate, "per": per}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if not given and not none:
        raise ArgumentError("nothing to change: give --concurrency, --rate or --per; --none removes all limits")
    left: Any = None if none else UNCHANGED
    limits = Limits(**(dict.fromkeys(values, left) | given))
    with common.open() as db:
        operations.limit_groups(db, user(), queue, limits, group=group, prefix=prefix)
        found = db.queue(queue).group_limits()
    titles = ("group", "prefix", "weight", "concurrency", "rate", "per")
    common.print_all(found, titles, lambda one: tuple(asdict(one).values()), lambda one: {"queue": queue} | asdict(one))


@command(app, "purge", "queue-db queues purge mail", "queue-db queues purge mail --yes --json")
def purge(queue: QueueArgument, *, yes: YesOption = False, common: CommonOptions) -> None:
    """Delete all due, scheduled and blocked jobs of a queue. Running and dead jobs stay: see "queue-db dead purge"."""
    with common.open() as db:
        db.queue(queue)  # checks the name
        profiles.confirm_loss(f"All waiting jobs of queue {queue!r} in {db.url} will be deleted.", yes=yes)
        with output.busy("purging"):
            deleted = operations.purge(db, user(), queue)
    common.print({"queue": queue, "deleted": deleted}, f"deleted {deleted:,} jobs of queue {queue!r}")


@command(app, "repair", "queue-db queues repair mail")
def repair(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Unblock the groups of a queue after its jobs were deleted with SQL. Workers do this once a minute.

    Deleting a grouped job with SQL leaves the next job of its group blocked.
    """
    with common.open() as db:
        repaired = groups_operations.repair(db, user(), queue)
    common.print({"queue": queue, "repaired": repaired}, f"repaired {repaired:,} groups of queue {queue!r}")


def _warn_if_unused(db: QueueDB, queue: str) -> None:
    """A queue comes into being with its first job, so a misspelled name is no error."""
    if not db.core.read("monitoring.used", counts.used, queue) and not any(queue in worker.queues for worker in db.workers()):
        output.note(f"queue {queue!r} has no jobs and no workers: is the name right?")


def _print_controls(db: QueueDB, queue: str, common: CommonOptions) -> None:
    """Print the pause and the limits of a queue."""
    controls = db.queue(queue).controls()
    common.print({"queue": queue} | asdict(controls), f"{queue}: {described(controls)}")


def described(controls: Controls) -> str:
    """The pause and the limits of a queue, for people."""
    parts = ["paused" if controls.paused else "not paused"]
    parts.append("no concurrency limit" if controls.concurrency is None else f"at most {controls.concurrency} at a time")
    parts.append("no rate limit" if controls.rate is None else f"at most {controls.rate} per {controls.per:g} s")
    if controls.fair:
        parts.append("fair among its groups")
    if controls.per_group > 1:
        parts.append(f"{controls.per_group} of each group at a time")
    return ", ".join(parts)


def with_jobs(db: QueueDB, name: str | None) -> Iterator[Queue]:
    """Yield the queue of that name, or without a name every queue that has jobs."""
    if name is not None:
        yield db.queue(name)
        return
    for found in db.queues():
        try:
            yield db.queue(found)
        except QueueDBError as error:
            output.note(f"skipped a queue whose name, written by an INSERT of your own, is invalid: {error}")
