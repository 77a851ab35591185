"""``queue-db cursors``: how far the readers of feeds are."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db.cli import panels
from queue_db.cli.commands import command
from queue_db.cli.feeds import FeedArgument, existing
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.feeds.message import SpanInfo
from queue_db.operations import cursors as operations

CursorArgument = Annotated[str, typer.Argument(metavar="CURSOR", help="Name of the cursor.")]

app = typer.Typer(
    name="cursors",
    help="Positions of the readers of feeds. A cursor is created when a program opens it with feed.cursor.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(
    app,
    "list",
    "queue-db cursors list",
    "queue-db cursors list --name ann",
    "queue-db cursors list --json | jq .behind",
    "queue-db cursors list --spans --feed orders --name mailers",
)
def list_cursors(
    *,
    feed: Annotated[str | None, typer.Option("--feed", metavar="FEED", help="Only those of this feed.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="CURSOR", help="Only those with this name.")] = None,
    spans: Annotated[
        bool,
        typer.Option("--spans", help="The open spans of shared cursors instead: who has claimed which messages, and until when."),
    ] = False,
    common: CommonOptions,
) -> None:
    """List the cursors of all feeds, with how many messages they are behind.

    trimmed: messages that retention has deleted before the cursor acknowledged them. spans: open ones of a shared cursor. A span
    without a time may be claimed by any consumer now.
    """
    with common.open() as db:
        if feed is not None:
            existing(db, feed)
        if spans:
            common.print_all(
                _spans(db, feed, name),
                ("feed", "cursor", "span", "from", "to", "claims", "worker", "until"),
                lambda one: (
                    *(one.feed, one.cursor, one.id, one.low, one.high, one.attempts),
                    one.worker or "",
                    one.expires_at or "",
                ),
            )
            return
        found = db.feeds.cursors(name, feeds=None if feed is None else [feed])
    common.print_all(
        found,
        ("feed", "cursor", "behind", "trimmed", "holder", "spans", "seen", "position"),
        lambda one: (
            *(one.feed, one.name, one.behind, one.trimmed),
            "shared" if one.shared else one.holder or "",
            one.spans if one.shared else "",
            one.seen_at,
            one.position,
        ),
    )


def _spans(db: QueueDB, feed: str | None, name: str | None) -> list[SpanInfo]:
    """The open spans of one cursor, which must be shared, or of all shared ones."""
    if feed is not None and name is not None:
        return db.feed(feed).spans(name)
    found = db.feeds.cursors(name, feeds=None if feed is None else [feed])
    return [span for one in found if one.shared for span in db.feed(one.feed).spans(one.name)]


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
        operations.seek(db, user(), feed, cursor, position)
    common.print({"feed": feed, "cursor": cursor, "position": position}, f"{feed} {cursor}: at {position}")


@command(app, "remove", "queue-db cursors remove orders billing")
def remove(feed: FeedArgument, cursor: CursorArgument, *, common: CommonOptions) -> None:
    """Delete a cursor, so that retention does not wait for it."""
    with common.open() as db:
        removed = operations.remove(db, user(), feed, cursor)
    common.print_state({"feed": feed, "cursor": cursor}, "removed", there=removed, code="no_such_cursor")
