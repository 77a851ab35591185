"""``queue-db schedules``: jobs that are enqueued again and again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, command, opened

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add_to(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(
        name="schedules",
        help="Jobs that are enqueued again and again, by cron lines or at intervals. Workers carry schedules out; "
        "programs make them (db.schedules.set).",
        no_args_is_help=True,
    )
    app.add_typer(group)

    @command(group, "list", "queue-db schedules list", "queue-db schedules list --json | jq -r .next_at")
    def list_schedules(
        *, url: UrlOption = None, table: TableOption = "jobs", schema: SchemaOption = None, as_json: JsonOption = False
    ) -> None:
        """List the schedules: their rules, their last slots, and their next ones."""
        with opened(url, table, schema) as db:
            found = db.schedules.list()
        if as_json:
            for one in found:
                shown = asdict(one) | {"next_at": one.next_at.isoformat(), "last_at": one.last_at and one.last_at.isoformat()}
                output.record(shown)
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

    @command(group, "pause", "queue-db schedules pause nightly")
    def pause(
        name: NameArgument,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Enqueue nothing of it until it is resumed."""
        with opened(url, table, schema) as db:
            db.schedules.pause(name)
        _told(name, "paused", as_json=as_json)

    @command(group, "resume", "queue-db schedules resume nightly")
    def resume(
        name: NameArgument,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Go on; what passed meanwhile is caught up with as the schedule says."""
        with opened(url, table, schema) as db:
            db.schedules.resume(name)
        _told(name, "resumed", as_json=as_json)

    @command(group, "remove", "queue-db schedules remove nightly")
    def remove(
        name: NameArgument,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Delete it; jobs that it has enqueued stay."""
        with opened(url, table, schema) as db:
            there = db.schedules.remove(name)
        _told(name, "removed" if there else "not there", as_json=as_json)


def _told(name: str, what: str, *, as_json: bool) -> None:
    if as_json:
        output.record({"schedule": name, "state": what})
    else:
        output.line(f"{name}: {what}")
