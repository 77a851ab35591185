"""``queue-db actions``: the log of what people and programs with tokens changed."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions

app = typer.Typer(rich_help_panel=panels.SETUP)


@command(app, "actions", "queue-db actions", "queue-db actions --limit 1000 --json | jq 'select(.who == \"ann\")'")
def actions(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N actions.")] = 100,
    after: Annotated[int | None, typer.Option(min=0, metavar="ID", help="Only those before the action with this ID.")] = None,
    common: CommonOptions,
) -> None:
    """List what people and programs changed, newest first. Workers delete entries after 90 days.

    who: the name of a token, for the service and the dashboard; cli:USER@MACHINE for commands of queue-db that change something.
    """
    with common.open() as db:
        found = db.actions.list(limit=limit, after=after)
    common.print_all(
        found,
        ("id", "at", "who", "action", "target", "number", "detail"),
        lambda one: (
            *(one.id, one.at, one.who, one.action, one.target, one.number),
            None if one.detail is None else output.brief(json.dumps(one.detail)),
        ),
    )
