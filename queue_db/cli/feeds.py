"""``queue-db feeds``: ordered messages for any number of readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, cast

import typer

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.lasting import lasting
from queue_db.cli.logs import log_to_stderr
from queue_db.cli.options import CommonOptions, YesOption, decoded
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.feeds import Feed, FeedInfo, Message, Page
from queue_db.feeds.position import Position
from queue_db.feeds.settings import FeedOrdering, OnTrimmed
from queue_db.feeds.waiting import Waiting
from queue_db.operations import feeds as operations
from queue_db.operations import rights

FeedArgument = Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")]
IdempotencyOption = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Names this publish: a second one with the same key within a day does nothing.",
    ),
]

# Messages of one read.
_LIMIT = 100


@dataclass(frozen=True)
class MessageOptions:
    """What a message has beside its kind and payload."""

    key: Annotated[str | None, typer.Option("--key", help="What it is about, such as order-7.")] = None
    headers: Annotated[str | None, typer.Option("--headers", metavar="JSON", help="Headers of the message, a JSON object.")] = None
    client: Annotated[str | None, typer.Option("--client", help="Who publishes it.")] = None


@dataclass(frozen=True)
class MessageTimes:
    """When a message can be claimed."""

    delay: Annotated[float | None, typer.Option("--delay", help="Seconds before which it cannot be claimed; 0: none.")] = None
    expires_in: Annotated[float | None, typer.Option("--expires-in", help="Seconds after which it expires; 0: never.")] = None


@dataclass(frozen=True)
class ClaimOptions:
    """The settings of a feed whose messages can be claimed."""

    claims: Annotated[bool | None, typer.Option("--claims", help="Of a new feed: consumers can claim its messages.")] = None
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="With claims: a message claimed this often becomes a dead job.")
    ] = None
    delay: Annotated[
        float | None, typer.Option("--delay", help="With claims: delay of messages that have none of their own; 0: none.")
    ] = None
    expires_in: Annotated[
        float | None,
        typer.Option("--expires-in", help="With claims: lifetime of messages that have none of their own; 0: no limit."),
    ] = None


app = typer.Typer(
    name="feeds",
    help="Ordered messages that stay for any number of readers. A feed is created when a program publishes to it.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(app, "list", "queue-db feeds list", "queue-db feeds list --json | jq .messages")
def list_feeds(*, common: CommonOptions) -> None:
    """List the feeds with their settings and their numbers of messages.

    waiting: published messages that have no number yet; the next reader or publisher gives it. unread: how many messages retention
    keeps at most for cursors that have not acknowledged them. claims: with the delay and lifetime of
    messages that have none of their own.
    """
    with common.open() as db:
        found = db.feeds.list()
    common.print_all(
        found,
        ("feed", "ordering", "messages", "waiting", "keep for", "keep rows", "unread", "claims", "end"),
        lambda one: (
            *(one.name, one.ordering, one.messages, one.waiting, output.span(one.keep_for)),
            "" if one.keep_rows is None else one.keep_rows,
            *(one.keep_unread, _claims(one), one.end),
        ),
    )


def _claims(feed: FeedInfo) -> str:
    if not feed.claims:
        return ""
    times = [f"delay {output.span(feed.delay)}"] if feed.delay else []
    times += [f"lifetime {output.span(feed.expires_in)}"] if feed.expires_in else []
    return ", ".join(["yes", *times])


@command(
    app,
    "publish",
    "queue-db feeds publish orders paid '{\"order\": 7}'",
    "queue-db feeds publish orders paid --key order-7",
    'queue-db feeds publish mail send \'{"to": "ann"}\' --delay 60',
    "queue-db feeds publish sensor.7 reading '{\"celsius\": 21}' --topic",
)
def publish(
    name: Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed; with --topic: of the topic.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Kind of the message.")],
    payload: Annotated[str, typer.Argument(metavar="[JSON]", help="Payload as JSON.")] = "null",
    *,
    topic: Annotated[
        bool, typer.Option("--topic", help="The name is a topic: routes decide where the message goes. Print how many acted.")
    ] = False,
    message: MessageOptions,
    idempotency_key: IdempotencyOption = None,
    times: MessageTimes,
    common: CommonOptions,
) -> None:
    """Publish one message, and print its id. The feed is created if there is none.

    --delay and --expires-in are for feeds with claims: without them the message has those of the feed.
    """
    content, headers = decoded("the payload is", payload), decoded("the headers are", message.headers)
    options: dict[str, Any] = {"key": message.key, "headers": headers, "client": message.client, "idempotency_key": idempotency_key}
    if topic and times != MessageTimes():
        raise ArgumentError("--delay and --expires-in are of messages of a feed: publish without --topic")
    with common.open() as db:
        profiles.confirm(f"publish a message to {name}")
        if topic:
            acted = db.topic(name).publish(kind, content, **options)
            text = f"{name}: {acted} {'route' if acted == 1 else 'routes'} acted"
            common.print({"topic": name, "routes": acted}, text)
            return
        found = db.feed(name).publish(kind, content, **options, **asdict(times))
        end = db.feed(name).end()
    common.print({"feed": name, "id": found, "end": end}, f"published {found}; {name} ends at {end}")


@command(
    app,
    "read",
    "queue-db feeds read orders --limit 10",
    "queue-db feeds read orders --after 1f0c9a2e.1.184 --json",
    "queue-db feeds read orders --follow --json | jq .payload",
)
def read(
    feed: FeedArgument,
    *,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="POSITION",
            help="Begin after this position, at the start, or at the end. Default: start; with --follow: end.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Most messages to print. Default: 100; with --follow: any number.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new messages, until Ctrl-C.")] = False,
    on_trimmed: Annotated[
        str,
        typer.Option("--on-trimmed", metavar="raise|skip", help="If messages were trimmed before they were read: fail, or go on."),
    ] = "raise",
    common: CommonOptions,
) -> None:
    """Print messages in their order. Reading takes nothing away.

    Each line begins with the position after the message: --after continues there.

    With --follow: when the database is away, this is logged once; the command goes on when it is back. The exit status is 130 after
    Ctrl-C.
    """
    with common.open() as db:
        opened = existing(db, feed)
        position = position_of(opened, after)
        if follow:
            with log_to_stderr(common.url, "text", verbose=False):
                _follow(opened, position or opened.end(), limit, cast("OnTrimmed", on_trimmed), common)
            return
        page = opened.read(position, limit or _LIMIT, on_trimmed=cast("OnTrimmed", on_trimmed))
        print_messages(page.messages, common)
    if page.behind and not common.as_json:
        output.note(f"{page.behind:,} more after {page.position}")


def _follow(feed: Feed, position: str, limit: int | None, on_trimmed: OnTrimmed, common: CommonOptions) -> None:
    """Print messages after a position as they come, at most so many."""

    def pages() -> Iterator[Page]:
        nonlocal position, limit
        with Waiting(feed.core, feed.name) as waiting:
            while limit != 0:
                page = feed.read(position, _LIMIT if limit is None else min(limit, _LIMIT), on_trimmed=on_trimmed)
                position = page.position
                if limit is not None:
                    limit -= len(page.messages)
                yield page
                if page.messages:
                    waiting.found()
                else:
                    waiting.wait()

    for page in lasting(f"reading feed {feed.name!r}", pages):
        print_messages(page.messages, common)


@command(
    app,
    "set",
    "queue-db feeds set orders --keep-for 604800 --keep-rows 1000000",
    "queue-db feeds set audit --ordering counter --keep-for 0",
    "queue-db feeds set mail --claims --max-attempts 5 --keep-for 0",
)
def set_feed(
    feed: FeedArgument,
    *,
    ordering: Annotated[str | None, typer.Option("--ordering", help="Of a new feed: ranked or counter.")] = None,
    keep_for: Annotated[float | None, typer.Option("--keep-for", help="Seconds for which messages are kept; 0: no limit.")] = None,
    keep_rows: Annotated[int | None, typer.Option("--keep-rows", help="Number of messages that are kept; 0: no limit.")] = None,
    keep_unread: Annotated[
        int | None, typer.Option("--keep-unread", help="Most messages kept longer for cursors that are behind.")
    ] = None,
    times: ClaimOptions,
    common: CommonOptions,
) -> None:
    """Create a feed, or change its settings. What is not given stays as it is."""
    retention: dict[str, Any] = {"keep_for": keep_for, "keep_rows": keep_rows, "keep_unread": keep_unread}
    settings = operations.Settings(ordering=cast("FeedOrdering | None", ordering), **retention, **asdict(times))
    with common.open() as db:
        operations.set(db, user(), feed, settings)
    common.print_state({"feed": feed}, "set")


@command(app, "purge", "queue-db feeds purge orders --yes", "queue-db feeds purge orders --retained")
def purge(
    feed: FeedArgument,
    *,
    retained: Annotated[
        bool, typer.Option("--retained", help="Delete only what the feed's retention does not keep; positions stay valid.")
    ] = False,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Delete all messages of a feed. Cursors go on after them; positions kept elsewhere are refused from then on.

    With --retained: what workers do once a minute, and publishers, but not those that publish in transactions of their own program
    only.
    """
    with common.open() as db:
        existing(db, feed)
        if not retained:
            profiles.confirm_loss(f"All messages of feed {feed} in {db.url} will be deleted.", yes=yes)
        gone = operations.purge(db, user(), feed, retained=retained)
    common.print({"feed": feed, "purged": gone}, f"{feed}: {gone:,} messages deleted")


@command(app, "remove", "queue-db feeds remove orders --yes")
def remove(feed: FeedArgument, *, yes: YesOption = False, common: CommonOptions) -> None:
    """Delete a feed with its messages and cursors. A program that publishes to it later creates a new feed with this name."""
    with common.open() as db:
        existing(db, feed)
        profiles.confirm_loss(f"Feed {feed} in {db.url} will be deleted with its messages and cursors.", yes=yes)
        removed = operations.remove(db, user(), feed)
    common.print_state({"feed": feed}, "removed", there=removed)


@command(app, "restored", "queue-db feeds restored --yes")
def restored(*, yes: YesOption = False, common: CommonOptions) -> None:
    """Run this once after the database was restored from a backup: cursors lose their holders, earlier positions are refused.

    Without it a reader whose position is newer than the backup would miss the messages that take the same numbers again.
    """
    with common.open() as db:
        profiles.confirm_loss(f"Positions of all feeds in {db.url} that readers keep elsewhere will be refused.", yes=yes)
        count = operations.restored(db, user())
    common.print({"feeds": count}, f"{count:,} feeds: earlier positions are refused")


def existing(db: QueueDB, name: str) -> Feed:
    """The feed, if there is one: a mistyped name creates none."""
    rights.feed(db, name)
    return db.feed(name)


def print_messages(messages: Iterable[Message], common: CommonOptions) -> None:
    """Print messages, each with its position."""
    for message in messages:
        key = "" if message.key is None else f" [{message.key}]"
        text = f"{message.position}  {output.moment(message.published_at)}  {message.kind}{key}  {message.payload_text}"
        common.print(message_record(message), text)


def message_record(message: Message) -> dict[str, Any]:
    """A message for JSON."""
    return {
        "position": message.position,
        "kind": message.kind,
        "key": message.key,
        "payload": message.payload,
        "headers": dict(message.headers),
        "client": message.client,
        "published_at": message.published_at,
    }


def position_of(feed: Feed, text: str | None) -> str | None:
    """The position that a word or a text names.

    :raises ArgumentError: it is neither.
    """
    if text in {"start", "end"}:
        return feed.start() if text == "start" else feed.end()
    if text is not None:
        Position.parse(text)
    return text
