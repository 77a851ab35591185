"""``queue-db feeds``: ordered messages for any number of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, repeat
from typing import Annotated, Any, cast

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.lasting import Interrupts, Terminated, lasting
from queue_db.cli.logs import log_to_stderr
from queue_db.cli.options import CommonOptions, YesOption, decoded
from queue_db.cli.recording import record
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, FeedError
from queue_db.feeds import Feed, FeedInfo, Message, Page
from queue_db.feeds.forwarding import JobTemplate, forwarded
from queue_db.feeds.position import Position
from queue_db.feeds.settings import OnTrimmed
from queue_db.feeds.waiting import Waiting

FeedArgument = Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")]
MessageKindArgument = Annotated[str, typer.Argument(metavar="KIND", help="Kind of the message.")]
PayloadArgument = Annotated[str, typer.Argument(metavar="[JSON]", help="Payload as JSON.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="What it is about, such as order-7.", show_default=False)]
ForwarderArgument = Annotated[str, typer.Argument(metavar="CURSOR", help="Name of the cursor. One process at a time uses it.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Wait for new messages until Ctrl-C.")]
AfterOption = Annotated[
    str | None,
    typer.Option("--after", metavar="POSITION", help="Begin after this position, at the start, or at the end.", show_default=False),
]
TrimmedOption = Annotated[
    str,
    typer.Option("--on-trimmed", metavar="raise|skip", help="If messages were trimmed before they were read: fail, or go on."),
]

HeadersOption = Annotated[
    str | None, typer.Option("--headers", metavar="JSON", help="Headers of the message, a JSON object.", show_default=False)
]
ClientOption = Annotated[str | None, typer.Option("--client", help="Who publishes it.", show_default=False)]
IdempotencyOption = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Names this publish: a second one with the same key within a day does nothing.",
        show_default=False,
    ),
]
DelayOption = Annotated[
    float | None, typer.Option("--delay", help="Seconds before which it cannot be claimed; 0: none.", show_default=False)
]
LifetimeOption = Annotated[
    float | None, typer.Option("--expires-in", help="Seconds after which it expires; 0: never.", show_default=False)
]


@dataclass(frozen=True)
class ClaimOptions:
    """The settings of a feed whose messages can be claimed."""

    claims: Annotated[
        bool | None, typer.Option("--claims", help="Of a new feed: consumers can claim its messages.", show_default=False)
    ] = None
    max_attempts: Annotated[
        int | None,
        typer.Option("--max-attempts", help="With claims: a message claimed this often becomes a dead job.", show_default=False),
    ] = None
    delay: Annotated[
        float | None,
        typer.Option("--delay", help="With claims: delay of messages that have none of their own; 0: none.", show_default=False),
    ] = None
    expires_in: Annotated[
        float | None,
        typer.Option(
            "--expires-in", help="With claims: lifetime of messages that have none of their own; 0: no limit.", show_default=False
        ),
    ] = None


@dataclass(frozen=True)
class HoldOptions:
    """How a command opens its cursor."""

    take_over: Annotated[
        bool, typer.Option("--take-over", help="Open the cursor although another process holds it; that one ends with an error.")
    ] = False
    on_trimmed: TrimmedOption = "raise"

    def follow(
        self,
        feed: Feed,
        cursor: str,
        pages: Callable[..., Iterator[int]],
        report: Callable[[int], None],
        common: CommonOptions,
        *,
        follow: bool,
    ) -> None:
        """Run ``pages``, and report how many messages it committed; with ``follow`` until Ctrl-C or SIGTERM."""
        count = 0

        @contextmanager
        def committing(number: int) -> Iterator[None]:
            nonlocal count
            with interrupts.masked():
                yield
                count += number

        def run(again: bool) -> Iterator[int]:
            take_over = self.take_over if not again else held_here(feed, cursor)
            return pages(idle=None if follow else 0.0, take_over=take_over, on_trimmed=self.on_trimmed, committing=committing)

        try:
            with (
                Interrupts() as interrupts,
                log_to_stderr(common.url, "text", verbose=False),
                closing(lasting(f"following feed {feed.name!r}", run, retry=follow)) as numbers,  # type: ignore[type-var]
            ):
                for _ in numbers:
                    pass
        except Terminated:
            pass
        except KeyboardInterrupt:
            report(count)
            raise
        report(count)


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
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"created_at": one.created_at.isoformat()})
        return
    output.table(
        ("feed", "ordering", "messages", "waiting", "keep for", "keep rows", "unread", "claims", "end"),
        [
            (
                one.name,
                one.ordering,
                one.messages,
                one.waiting,
                output.span(one.keep_for),
                "" if one.keep_rows is None else one.keep_rows,
                one.keep_unread,
                _claims(one),
                one.end,
            )
            for one in found
        ],
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
)
def publish(
    feed: FeedArgument,
    kind: MessageKindArgument,
    payload: PayloadArgument = "null",
    *,
    key: KeyOption = None,
    headers: HeadersOption = None,
    client: ClientOption = None,
    delay: DelayOption = None,
    expires_in: LifetimeOption = None,
    idempotency_key: IdempotencyOption = None,
    common: CommonOptions,
) -> None:
    """Publish one message, and print its id. The feed is created if there is none.

    --delay and --expires-in are for feeds with claims: without them the message has those of the feed.
    """
    content, given = decoded("the payload is", payload), decoded("the headers are", headers)
    with common.open() as db:
        with usage():
            options: dict[str, Any] = {"delay": delay, "expires_in": expires_in, "idempotency_key": idempotency_key}
            found = db.feed(feed).publish(kind, content, key=key, headers=given, client=client, **options)
        end = db.feed(feed).end()
    common.print({"feed": feed, "id": found, "end": end}, f"published {found}; {feed} ends at {end}")


@command(app, "read", "queue-db feeds read orders --limit 10", "queue-db feeds read orders --after 1f0c9a2e.1.184 --json")
def read(
    feed: FeedArgument,
    *,
    after: AfterOption = None,
    limit: Annotated[int, typer.Option("--limit", help="Most messages to print.")] = 100,
    on_trimmed: TrimmedOption = "raise",
    common: CommonOptions,
) -> None:
    """Print messages in their order. Reading takes nothing away.

    Each line begins with the position after the message: --after continues there.
    """
    with common.open() as db:
        opened = existing(db, feed)
        page = opened.read(position_of(opened, after), limit, on_trimmed=cast("OnTrimmed", on_trimmed))
        print_messages(page.messages, common)
    if page.behind and not common.as_json:
        output.note(f"{page.behind:,} more after {page.position}")


@command(app, "tail", "queue-db feeds tail orders", "queue-db feeds tail orders --json | jq .payload")
def tail(
    feed: FeedArgument,
    *,
    after: AfterOption = None,
    on_trimmed: TrimmedOption = "raise",
    common: CommonOptions,
) -> None:
    """Print new messages as they come, until Ctrl-C. With --after, first those after a position.

    When the database is away, this is logged once; the tail goes on when it is back. The exit status is 130 after Ctrl-C.
    """
    with common.open() as db, log_to_stderr(common.url, "text", verbose=False):
        reader = existing(db, feed)
        position = position_of(reader, after) or reader.end()

        def pages(_again: bool) -> Iterator[Page]:
            nonlocal position
            with Waiting(db.core, feed) as waiting:
                while True:
                    page = reader.read(position, on_trimmed=cast("OnTrimmed", on_trimmed))
                    position = page.position
                    yield page
                    if page.messages:
                        waiting.found()
                    else:
                        waiting.wait()

        for page in lasting(f"reading feed {feed!r}", pages):
            print_messages(page.messages, common)


@command(
    app, "forward", "queue-db feeds forward orders invoicing invoices", "queue-db feeds forward orders invoicing invoices --follow"
)
def forward(
    feed: FeedArgument,
    cursor: ForwarderArgument,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where the jobs go.")],
    *,
    kind: Annotated[str | None, typer.Option("--kind", help="Kind of the jobs, if not the message's.", show_default=False)] = None,
    group: Annotated[bool, typer.Option("--group", help="Messages with the same key become one group of jobs.")] = False,
    follow: FollowOption = False,
    hold: HoldOptions,
    common: CommonOptions,
) -> None:
    """Enqueue a job for each message after the cursor's position, each once.

    With --follow: when the database is away, this is logged once; the command goes on when it is back. Ctrl-C and SIGTERM
    print how many messages were forwarded; the exit status is 130 after Ctrl-C, and 0 after SIGTERM and SIGHUP.
    """

    def report(count: int) -> None:
        common.print(
            {"feed": feed, "cursor": cursor, "forwarded": count}, f"{feed} {cursor}: {count:,} messages forwarded to {queue}"
        )

    with common.open() as db:
        opened, template = existing(db, feed), JobTemplate(queue, kind, group)
        hold.follow(opened, cursor, partial(forwarded, opened, cursor, template), report, common, follow=follow)


@command(app, "trim", "queue-db feeds trim orders")
def trim(feed: FeedArgument, *, common: CommonOptions) -> None:
    """Delete the messages that the feed's retention does not keep, at once.

    Workers do so once a minute, and so do publishers, but not those that publish in transactions of their own program only.
    """
    with common.open() as db:
        gone = existing(db, feed).trim()
        if gone:
            record(db, "trim", f"feed {feed}", gone)
    common.print({"feed": feed, "trimmed": gone}, f"{feed}: {gone:,} messages trimmed")


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
    ordering: Annotated[
        str | None, typer.Option("--ordering", help="Of a new feed: ranked or counter.", show_default=False)
    ] = None,
    keep_for: Annotated[
        float | None, typer.Option("--keep-for", help="Seconds for which messages are kept; 0: no limit.", show_default=False)
    ] = None,
    keep_rows: Annotated[
        int | None, typer.Option("--keep-rows", help="Number of messages that are kept; 0: no limit.", show_default=False)
    ] = None,
    keep_unread: Annotated[
        int | None,
        typer.Option("--keep-unread", help="Most messages kept longer for cursors that are behind.", show_default=False),
    ] = None,
    times: ClaimOptions,
    common: CommonOptions,
) -> None:
    """Create a feed, or change its settings. What is not given stays as it is."""
    with common.open() as db:
        retention = {"keep_for": keep_for, "keep_rows": keep_rows, "keep_unread": keep_unread}
        with usage():
            db.feeds.set(feed, ordering=ordering, **retention, **asdict(times))  # type: ignore[arg-type]
        record(db, "set", f"feed {feed}", detail={"ordering": ordering, **retention, **asdict(times)})
    common.print({"feed": feed, "state": "set"}, f"{feed}: set")


@command(app, "purge", "queue-db feeds purge orders --yes")
def purge(feed: FeedArgument, *, yes: YesOption = False, common: CommonOptions) -> None:
    """Delete all messages of a feed. Cursors go on after them; positions kept elsewhere are refused from then on."""
    with common.open() as db:
        existing(db, feed)
        output.confirm(f"All messages of feed {feed} in {db.url} will be deleted.", yes=yes)
        gone = db.feeds.purge(feed)
        record(db, "purge", f"feed {feed}", gone)
    common.print({"feed": feed, "purged": gone}, f"{feed}: {gone:,} messages deleted")


@command(app, "delete", "queue-db feeds delete orders --yes")
def delete(feed: FeedArgument, *, yes: YesOption = False, common: CommonOptions) -> None:
    """Delete a feed with its messages and cursors. A program that publishes to it later creates a new feed with this name."""
    with common.open() as db:
        existing(db, feed)
        output.confirm(f"Feed {feed} in {db.url} will be deleted with its messages and cursors.", yes=yes)
        removed = db.feeds.delete(feed)
        if removed:
            record(db, "delete", f"feed {feed}")
    state = "deleted" if removed else "not found"
    common.print({"feed": feed, "state": state}, f"{feed}: {state}")
    output.found(removed)


@command(app, "restored", "queue-db feeds restored --yes")
def restored(*, yes: YesOption = False, common: CommonOptions) -> None:
    """Run this once after the database was restored from a backup: cursors lose their holders, earlier positions are refused.

    Without it a reader whose position is newer than the backup would miss the messages that take the same numbers again.
    """
    with common.open() as db:
        output.confirm(f"Positions of all feeds in {db.url} that readers keep elsewhere will be refused.", yes=yes)
        count = db.feeds.restored()
        record(db, "restored", "all feeds", count)
    common.print({"feeds": count}, f"{count:,} feeds: earlier positions are refused")


def existing(db: QueueDB, name: str) -> Feed:
    """The feed, if there is one: a mistyped name creates none."""
    known = [info.name for info in db.feeds.list()]
    if name not in known:
        raise FeedError(f"there is no feed {name!r}; known: {', '.join(known) or 'none'}")
    return db.feed(name)


def print_messages(messages: Iterable[Message], common: CommonOptions, attempts: Iterable[int] = ()) -> None:
    """Print messages, each with its position, and with how often it was claimed if that is more than once."""
    for message, claimed in zip(messages, chain(attempts, repeat(1)), strict=False):
        key = "" if message.key is None else f" [{message.key}]"
        text = f"{message.position}  {output.moment(message.published_at)}  {message.kind}{key}  {message.payload_text}"
        text += f"  (attempt {claimed})" if claimed > 1 else ""
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
        "published_at": message.published_at.isoformat(),
    }


@contextmanager
def usage() -> Iterator[None]:
    """Settings that a feed cannot have are wrong usage; no item is missing."""
    try:
        yield
    except FeedError as error:
        raise ArgumentError(str(error), cli=error.cli) from error


def position_of(feed: Feed, text: str | None) -> str | None:
    """The position that a word or a text names.

    :raises ArgumentError: it is neither.
    """
    if text in {"start", "end"}:
        return feed.start() if text == "start" else feed.end()
    if text is not None:
        Position.parse(text)
    return text


def held_here(feed: Feed, cursor: str) -> bool:
    """Whether this process holds the cursor: its last hold could not be ended because the database was away."""
    return any(info.name == cursor and info.holder == feed.core.worker for info in feed.cursors())
