"""``queue-db schedules``: jobs that are enqueued periodically."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import record

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

app = typer.Typer(
    name="schedules",
    help="Jobs that workers enqueue periodically, by cron expression or interval. Programs create them with db.schedules.set.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(app, "list", "queue-db schedules list", "queue-db schedules list --json | jq -r .next_at")
def list_schedules(*, common: CommonOptions) -> None:
    """List the schedules with their rules and their last and next times."""
    with common.open() as db:
        found = db.schedules.list()
    if common.as_json:
        for one in found:
            times = {"next_at": one.next_at.isoformat(), "last_at": one.last_at and one.last_at.isoformat()}
            output.record(asdict(one) | times)
        return
    output.table(
        ("schedule", "queue", "kind", "rule", "zone", "catch up", "last", "next"),
        [
            (
                one.name,
                one.queue,
                one.kind,
                one.rule,
                one.zone,
                one.catch_up,
                "never" if one.last_at is None else output.moment(one.last_at),
                "paused" if one.paused else output.moment(one.next_at),
            )
            for one in found
        ],
    )


@command(app, "pause", "queue-db schedules pause nightly")
def pause(name: NameArgument, *, common: CommonOptions) -> None:
    """Enqueue no more jobs of a schedule until it is resumed."""
    _change("pause", name, "paused", common)


@command(app, "resume", "queue-db schedules resume nightly")
def resume(name: NameArgument, *, common: CommonOptions) -> None:
    """Resume a paused schedule; its catch_up setting decides which missed jobs are enqueued."""
    _change("resume", name, "resumed", common)


@command(app, "remove", "queue-db schedules remove nightly")
def remove(name: NameArgument, *, common: CommonOptions) -> None:
    """Delete a schedule; jobs that it has enqueued stay."""
    _change("remove", name, "removed", common)


def _change(verb: str, name: str, state: str, common: CommonOptions) -> None:
    with common.open() as db:
        # ``remove`` returns False if another process has just removed it.
        known = name in [one.name for one in db.schedules.list()] and getattr(db.schedules, verb)(name) is not False
        if known:
            record(db, verb, f"schedule {name}")
    state = state if known else "not found"
    common.print({"schedule": name, "state": state}, f"{name}: {state}")
    output.found(known)
