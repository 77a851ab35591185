"""``queue-db schedules``: jobs that are enqueued periodically."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from queue_db.cli import panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument, decoded, moment
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.model import UNCHANGED
from queue_db.operations import schedules as operations
from queue_db.operations.actor import Actor
from queue_db.operations.schedules import Definition
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

app = typer.Typer(
    name="schedules",
    help="Jobs that workers enqueue periodically, by cron expression or interval.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


class CatchUp(StrEnum):
    """Which jobs are enqueued for times at which no worker ran."""

    ONE = "one"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """When a schedule enqueues its job."""

    cron: Annotated[
        str | None, typer.Option("--cron", metavar="LINE", help="Minute, hour, day, month and weekday, such as '0 3 * * *'.")
    ] = None
    every: Annotated[float | None, typer.Option("--every", metavar="SECONDS", help="Or: the time between two jobs.")] = None
    zone: Annotated[str | None, typer.Option("--zone", metavar="ZONE", show_default="UTC", help="Time zone of --cron.")] = None
    catch_up: Annotated[
        CatchUp | None,
        typer.Option(
            "--catch-up",
            metavar="|".join(CatchUp),
            show_default=CatchUp.ONE.value,
            help="After times without workers: a job for the last time, for all.",
        ),
    ] = None
    first_at: Annotated[
        str | None, typer.Option("--first-at", metavar="TIME", help="The first time: 2026-01-31T08:00:00+01:00, or with Z for UTC.")
    ] = None

    def given(self) -> dict[str, Any]:
        """The arguments of a definition."""
        first_at = None if self.first_at is None else moment("--first-at", self.first_at)
        stays = {
            "zone": UNCHANGED if self.zone is None else self.zone,
            "catch_up": self.catch_up.value if self.catch_up else UNCHANGED,
        }
        return {**asdict(self), **stays, "first_at": first_at}


@command(app, "list", "queue-db schedules list", "queue-db schedules list --json | jq -r .next_at")
def list_schedules(*, common: CommonOptions) -> None:
    """List the schedules with their rules and their last and next times."""
    with common.open() as db:
        found = db.schedules.list()
    common.print_all(
        found,
        ("schedule", "queue", "kind", "rule", "zone", "catch up", "last", "next"),
        lambda one: (
            *(one.name, one.queue, one.kind, one.rule, one.zone, one.catch_up),
            one.last_at or "never",
            "paused" if one.paused else one.next_at,
        ),
    )


@command(
    app,
    "set",
    "queue-db schedules set nightly reports make --cron '0 3 * * *' --zone Europe/Berlin",
    """queue-db schedules set ping checks ping '{"host": "db1"}' --every 60 --catch-up none""",
)
def set_schedule(
    name: NameArgument,
    queue: QueueArgument,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Name that selects the handler.")],
    payload: Annotated[str | None, typer.Argument(metavar="[PAYLOAD]", help="JSON value of each job.")] = None,
    *,
    rule: RuleOptions,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", show_default="0", help="Lower numbers run first.")
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts",
            min=1,
            metavar="N",
            show_default=str(DEFAULT_MAX_ATTEMPTS),
            help="A job is dead after N failed attempts.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Create a schedule, or change the one with this name. Its next time changes only if its rule changes, or by --first-at.

    What is not given stays as it is in a schedule that is there, and so do its headers. Its payload becomes empty by "null".

    Programs usually set their schedules at their start, with db.schedules.set.
    """
    definition = Definition(
        queue=queue,
        kind=kind,
        payload=UNCHANGED if payload is None else decoded("PAYLOAD is", payload),
        priority=UNCHANGED if priority is None else priority,
        max_attempts=UNCHANGED if max_attempts is None else max_attempts,
        headers=UNCHANGED,
        **rule.given(),
    )
    with common.open() as db:
        new = operations.set(db, user(), name, definition)
    common.print_state({"schedule": name}, "created" if new else "changed")


@command(app, "run", "queue-db schedules run nightly")
def run(name: NameArgument, *, common: CommonOptions) -> None:
    """Enqueue the job of a schedule now, paused or not, and print its id. The next time stays when it is."""
    with common.open() as db:
        job_id = operations.run(db, user(), name)
    if job_id is None:
        common.print_state({"schedule": name}, "", there=False)
    common.print({"schedule": name, "id": job_id}, job_id)


@command(app, "pause", "queue-db schedules pause nightly")
def pause(name: NameArgument, *, common: CommonOptions) -> None:
    """Enqueue no more jobs of a schedule until it is resumed."""
    _change(operations.pause, name, "paused", common)


@command(app, "resume", "queue-db schedules resume nightly")
def resume(name: NameArgument, *, common: CommonOptions) -> None:
    """Resume a paused schedule; its catch_up setting decides which missed jobs are enqueued."""
    _change(operations.resume, name, "resumed", common)


@command(app, "remove", "queue-db schedules remove nightly")
def remove(name: NameArgument, *, common: CommonOptions) -> None:
    """Delete a schedule; jobs that it has enqueued stay."""
    _change(operations.remove, name, "removed", common)


def _change(operation: Callable[[QueueDB, Actor, str], bool], name: str, state: str, common: CommonOptions) -> None:
    with common.open() as db:
        there = operation(db, user(), name)
    common.print_state({"schedule": name}, state, there=there)
