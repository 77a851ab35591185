"""``queue-db cursors``: how far the readers of feeds are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.feeds import FeedArgument, existing, position_of
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import record

CursorArgument = Annotated[str, typer.Argument(metavar="CURSOR", help="Name of the cursor.")]

app = typer.Typer(
    name="cursors",
    help="Positions of the readers of feeds. A cursor is created when a program opens it with feed.cursor.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(app, "list", "queue-db cursors list", "queue-db cursors list --name ann", "queue-db cursors list --json | jq .behind")
def list_cursors(
    *,
    name: Annotated[
        str | None, typer.Option("--name", metavar="CURSOR", help="Only those with this name.", show_default=False)
    ] = None,
    common: CommonOptions,
) -> None:
    """List the cursors of all feeds, with how many messages they are behind.

    trimmed: messages that retention has deleted before the cursor acknowledged them. spans: open ones of a shared cursor.
    """
    with common.open() as db:
        found = db.feeds.cursors(name)
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"seen_at": one.seen_at.isoformat(), "created_at": one.created_at.isoformat()})
        return
    output.table(
        ("feed", "cursor", "behind", "trimmed", "holder", "spans", "seen", "position"),
        [
            (
                one.feed,
                one.name,
                one.behind,
                one.trimmed,
                "shared" if one.shared else one.holder or "",
                one.spans if one.shared else "",
                output.moment(one.seen_at),
                one.position,
            )
            for one in found
        ],
    )


@command(app, "spans", "queue-db cursors spans orders mailers", "queue-db cursors spans orders mailers --json | jq .worker")
def spans(feed: FeedArgument, cursor: CursorArgument, *, common: CommonOptions) -> None:
    """List the open spans of a shared cursor: which process has claimed which messages, and until when.

    Without a time any consumer may claim the span now.
    """
    with common.open() as db:
        found = existing(db, feed).spans(cursor)
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"expires_at": None if one.expires_at is None else one.expires_at.isoformat()})
        return
    output.table(
        ("span", "from", "to", "claims", "worker", "until"),
        [
            (
                one.id,
                one.low,
                one.high,
                one.attempts,
                one.worker or "",
                "" if one.expires_at is None else output.moment(one.expires_at),
            )
            for one in found
        ],
    )


@command(app, "seek", "queue-db cursors seek orders billing start", "queue-db cursors seek orders billing 1f0c9a2e.1.184")
def seek(
    feed: FeedArgument,
    cursor: CursorArgument,
    position: Annotated[str, typer.Argument(metavar="POSITION", help="start, end, or a position.")],
    *,
    common: CommonOptions,
) -> None:
    """Move a cursor forwards or back. A process that holds it, or spans of it, loses them."""
    with common.open() as db:
        opened = existing(db, feed)
        position_of(opened, position)
        opened.seek(cursor, position)
        record(db, "seek", f"cursor {cursor} of feed {feed}", detail={"position": position})
    common.print({"feed": feed, "cursor": cursor, "position": position}, f"{feed} {cursor}: at {position}")


@command(app, "remove", "queue-db cursors remove orders billing")
def remove(feed: FeedArgument, cursor: CursorArgument, *, common: CommonOptions) -> None:
    """Delete a cursor, so that retention does not wait for it."""
    with common.open() as db:
        removed = existing(db, feed).remove_cursor(cursor)
        if removed:
            record(db, "remove", f"cursor {cursor} of feed {feed}")
    state = "removed" if removed else "not found"
    common.print({"feed": feed, "cursor": cursor, "state": state}, f"{feed} {cursor}: {state}")
    output.found(removed)
