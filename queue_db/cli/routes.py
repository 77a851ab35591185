"""``queue-db routes`` and ``queue-db topics``: where messages go by the topic that they are published to."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, cast

import typer

from queue_db import arguments
from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.feeds import (
    ClientOption,
    FeedArgument,
    FollowOption,
    ForwarderArgument,
    HeadersOption,
    HoldOptions,
    IdempotencyOption,
    KeyOption,
    MessageKindArgument,
    PayloadArgument,
    existing,
)
from queue_db.cli.options import CommonOptions, YesOption, decoded
from queue_db.cli.recording import record
from queue_db.errors import ArgumentError
from queue_db.routes import Step
from queue_db.routes.conditions import EXAMPLE
from queue_db.routes.patterns import PatternForm
from queue_db.routes.registry import followed
from queue_db.routes.router import Router
from queue_db.store.schema import TOPIC_LENGTH

NameArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="Name of the route.")]
PatternArgument = Annotated[str, typer.Argument(metavar="PATTERN", help="Which topics match.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
CounterArgument = Annotated[str, typer.Argument(metavar="COUNTER", help="Name of the counter.")]
FormOption = Annotated[str, typer.Option("--form", help="Form of the pattern: glob, amqp, exact or headers.")]

_SHOWN = 12

# Options that are arguments of db.routes.set as they are.
_GIVEN = ("feed", "group", "forward", "webhook", "count", "by", "drop", "where", "matched")

app = typer.Typer(
    name="routes",
    help="Where messages go by the topic that they are published to.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)

topics = typer.Typer(
    name="topics",
    help="Names to publish to; routes decide where the messages go.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@dataclass(frozen=True)
class ActionOptions:
    """What a route does: one of them."""

    feed: Annotated[str | None, typer.Option("--feed", help="Publish the message to this feed.", show_default=False)] = None
    enqueue: Annotated[str | None, typer.Option("--enqueue", help="Enqueue a job in this queue.", show_default=False)] = None
    kind: Annotated[
        str | None, typer.Option("--kind", help="With --enqueue: kind of the job, if not the message's.", show_default=False)
    ] = None
    group: Annotated[bool, typer.Option("--group", help="With --enqueue: the message's key is the job's group.")] = False
    forward: Annotated[
        str | None, typer.Option("--forward", help="Route the message as one of this topic.", show_default=False)
    ] = None
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="Send the message to this address.", show_default=False)
    ] = None
    count: Annotated[str | None, typer.Option("--count", help="Add 1 to this counter.", show_default=False)] = None
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="JMESPATH", help="With --count: a count for each value of this, such as topic.", show_default=False
        ),
    ] = None
    drop: Annotated[bool, typer.Option("--drop", help="Do nothing.")] = False
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="JMESPATH", help=f"Only for messages for which this holds, such as {EXAMPLE}", show_default=False
        ),
    ] = None
    matched: Annotated[
        bool, typer.Option("--matched", help="Write the patterns that matched into the header 'matched' of what the route makes.")
    ] = False

    def action(self) -> dict[str, Any]:
        """The arguments of ``db.routes.set``."""
        if self.kind is not None and self.enqueue is None:
            raise ArgumentError("--kind is the kind of jobs: give it with --enqueue")
        if self.by is not None and self.count is None:
            raise ArgumentError("--by is what a counter counts by: give it with --count")
        if self.group and self.enqueue is None:
            raise ArgumentError("--group makes groups of jobs: give it with --enqueue")
        enqueue = self.enqueue if self.enqueue is None or self.kind is None else (self.enqueue, self.kind)
        return {
            "enqueue": enqueue,
            **{name: getattr(self, name) for name in _GIVEN},
        }


@command(app, "list", "queue-db routes list", "queue-db routes list --json | jq .patterns")
def list_routes(*, common: CommonOptions) -> None:
    """List the routes with what they do and their patterns.

    messages: how many a route with the action count has counted.
    """
    with common.open() as db:
        found = db.routes.list()
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"changed_at": one.changed_at.isoformat()})
        return
    output.table(
        (
            "route",
            "action",
            "target",
            "kind",
            "group",
            "where",
            "matched",
            "patterns",
            "state",
            "version",
            "messages",
            "definition",
        ),
        [
            (
                one.name,
                one.action,
                one.target if one.by is None else f"{one.target} by {one.by}",
                one.kind or "",
                one.group if isinstance(one.group, str) else "by key" if one.group else "",
                one.where or "",
                "yes" if one.matched else "",
                " ".join(text if form == "glob" else f"{form}:{text}" for form, text in one.patterns),
                "paused" if one.paused else "",
                one.version,
                "" if one.messages is None else one.messages,
                one.definition[:_SHOWN],
            )
            for one in found
        ],
    )


@command(app, "definitions", "queue-db routes definitions")
def definitions(*, common: CommonOptions) -> None:
    """List the definitions that routes can be pointed at, oldest first."""
    with common.open() as db:
        found = db.routes.definitions()
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"created_at": one.created_at.isoformat()})
        return
    output.table(
        ("definition", "action", "target", "kind", "where", "matched", "created"),
        [
            (
                one.sha[:_SHOWN],
                one.action,
                one.target if one.by is None else f"{one.target} by {one.by}",
                one.kind or "",
                one.where or "",
                "yes" if one.matched else "",
                output.moment(one.created_at),
            )
            for one in found
        ],
    )


@command(
    app,
    "set",
    "queue-db routes set archive --feed readings",
    "queue-db routes set check --enqueue alarms --kind check --group",
    "queue-db routes set shop --webhook https://shop.example/orders",
    "queue-db routes set hot --enqueue alarms --where 'payload.celsius > `70`'",
    "queue-db routes set customers --count orders --by payload.customer",
    "queue-db routes set archive --drop",
)
def set_route(name: NameArgument, *, action: ActionOptions, common: CommonOptions) -> None:
    """Create a route, or assign what it does from now on."""
    with common.open() as db:
        sha = db.routes.set(name, **action.action())
        record(db, "set", f"route {name}", detail={"definition": sha})
    common.print({"route": name, "definition": sha}, f"{name}: {sha[:_SHOWN]}")


@command(app, "assign", "queue-db routes assign archive 5feceb66ffc8")
def assign(
    name: NameArgument,
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="SHA-256 of a definition, or its first digits.")],
    *,
    common: CommonOptions,
) -> None:
    """Point a route at a definition that is stored."""
    with common.open() as db:
        db.routes.assign(name, definition)
        record(db, "assign", f"route {name}", detail={"definition": definition})
    common.print({"route": name, "definition": definition}, f"{name}: {definition[:_SHOWN]}")


@command(
    app,
    "subscribe",
    "queue-db routes subscribe 'sensor.*' archive",
    "queue-db routes subscribe 'sensor.#' archive --form amqp",
    """queue-db routes subscribe '{"topic": "reports", "format": "pdf"}' archive --form headers""",
)
def subscribe(pattern: PatternArgument, name: NameArgument, *, form: FormOption = "glob", common: CommonOptions) -> None:
    """Lead the messages of matching topics to a route."""
    with common.open() as db:
        added = db.routes.subscribe(pattern, name, form=cast("PatternForm", form))
        if added:
            record(db, "subscribe", f"route {name}", detail={"pattern": pattern, "form": form})
    for note in _doubts(pattern, form):
        output.note(f"note: {note}")
    state = "subscribed" if added else "already subscribed"
    common.print({"route": name, "pattern": pattern, "form": form, "state": state}, f"{name} {pattern}: {state}")


@command(app, "unsubscribe", "queue-db routes unsubscribe 'sensor.*' archive")
def unsubscribe(pattern: PatternArgument, name: NameArgument, *, form: FormOption = "glob", common: CommonOptions) -> None:
    """Take a subscription back."""
    with common.open() as db:
        removed = db.routes.unsubscribe(pattern, name, form=cast("PatternForm", form))
        if removed:
            record(db, "unsubscribe", f"route {name}", detail={"pattern": pattern, "form": form})
    state = "unsubscribed" if removed else "not found"
    common.print({"route": name, "pattern": pattern, "form": form, "state": state}, f"{name} {pattern}: {state}")
    output.found(removed)


@command(app, "pause", "queue-db routes pause archive")
def pause(name: NameArgument, *, common: CommonOptions) -> None:
    """Let a route do nothing until it is resumed. Messages that are published meanwhile are not kept for it."""
    with common.open() as db:
        db.routes.pause(name)
        record(db, "pause", f"route {name}")
    common.print({"route": name, "state": "paused"}, f"{name}: paused")


@command(app, "resume", "queue-db routes resume archive")
def resume(name: NameArgument, *, common: CommonOptions) -> None:
    """End a pause."""
    with common.open() as db:
        db.routes.resume(name)
        record(db, "resume", f"route {name}")
    common.print({"route": name, "state": "resumed"}, f"{name}: resumed")


@command(app, "remove", "queue-db routes remove archive")
def remove(name: NameArgument, *, common: CommonOptions) -> None:
    """Delete a route with its subscriptions."""
    with common.open() as db:
        removed = db.routes.remove(name)
        if removed:
            record(db, "remove", f"route {name}")
    state = "removed" if removed else "not found"
    common.print({"route": name, "state": state}, f"{name}: {state}")
    output.found(removed)


@command(app, "top", "queue-db routes top orders", "queue-db routes top orders --limit 100 --json")
def top(
    counter: CounterArgument,
    *,
    limit: Annotated[int, typer.Option("--limit", help="Most keys.")] = 10,
    common: CommonOptions,
) -> None:
    """Show the keys that a counter has counted most, the largest first."""
    with common.open() as db:
        found = db.routes.top(counter, limit=limit)
    if common.as_json:
        for key, messages in found:
            output.record({"key": key, "messages": messages})
        return
    output.table(("key", "messages"), found)


@command(app, "reset", "queue-db routes reset orders --yes", "queue-db routes reset orders --key eu --yes")
def reset(
    counter: CounterArgument,
    *,
    key: Annotated[str | None, typer.Option("--key", help="Delete the count of this key alone.", show_default=False)] = None,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Delete a counter; it begins at 0 again."""
    with common.open() as db:
        what = f"Counter {counter}" if key is None else f"The count of {key} by counter {counter}"
        output.confirm(f"{what} in {db.url} will be deleted.", yes=yes)
        done = db.routes.reset(counter, key=key)
        if done:
            record(db, "reset", f"counter {counter}", detail=None if key is None else {"key": key})
    state = "reset" if done else "not found"
    common.print({"counter": counter, "key": key, "state": state}, f"{counter}: {state}")
    output.found(done)


@command(app, "run", "queue-db routes run archive reading '{\"celsius\": 21}'")
def run_route(
    name: NameArgument,
    kind: MessageKindArgument,
    payload: PayloadArgument = "null",
    *,
    key: KeyOption = None,
    headers: HeadersOption = None,
    client: ClientOption = None,
    common: CommonOptions,
) -> None:
    """Let one route act for a message, whatever its patterns are, and print how many routes acted."""
    content, given = decoded("the payload is", payload), decoded("the headers are", headers)
    with common.open() as db:
        acted = db.routes.run(name, kind, content, key=key, headers=given, client=client)
    common.print({"route": name, "routes": acted}, f"{name}: {acted} {'route' if acted == 1 else 'routes'} acted")


@command(app, "test", "queue-db routes test sensor.7", "queue-db routes test sensor.7 --payload '{\"celsius\": 71}'")
def dry_run(
    topic: TopicArgument,
    *,
    kind: Annotated[str, typer.Option("--kind", help="Kind of the message.")] = "message",
    payload: Annotated[str | None, typer.Option("--payload", help="Its payload, JSON.", show_default=False)] = None,
    key: KeyOption = None,
    headers: HeadersOption = None,
    client: ClientOption = None,
    common: CommonOptions,
) -> None:
    """Show what a publish to a topic would do. Nothing is done.

    hops: forwards before. cut: why a route does not act: loop (it leads back to where the message has been), hops (the limit of
    forwards is reached), paused, again (the route has acted on a shorter way), condition (it does not hold, or there is no key),
    error (it cannot be evaluated for this message).
    """
    content, given = decoded("the payload is", payload), decoded("the headers are", headers)
    with common.open() as db:
        found = db.routes.test(topic, kind=kind, payload=content, key=key, client=client, headers=given)
    if common.as_json:
        for step in found.steps:
            output.record(asdict(step))
        return
    if not found.steps:
        output.note(f"{topic}: no route")
        return
    output.table(
        ("hops", "topic", "route", "patterns", "action", "target", "cut", "definition"),
        [_line(step) for step in found.steps],
    )


@command(app, "relay", "queue-db routes relay orders router", "queue-db routes relay orders router --follow")
def relay(
    feed: FeedArgument,
    cursor: ForwarderArgument,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Topic of the messages, if not their own.", show_default=False)
    ] = None,
    wait: FollowOption = False,
    hold: HoldOptions,
    common: CommonOptions,
) -> None:
    """Route the messages of a feed after the cursor's position, each once.

    With --follow: when the database is away, this is logged once; the command goes on when it is back. Ctrl-C and SIGTERM
    print how many messages were routed; the exit status is 130 after Ctrl-C, and 0 after SIGTERM and SIGHUP.
    """
    if topic is not None:
        arguments.name("topic", topic, TOPIC_LENGTH)

    def report(count: int) -> None:
        common.print({"feed": feed, "cursor": cursor, "routed": count}, f"{feed} {cursor}: {count:,} messages routed")

    with common.open() as db:
        opened, router = existing(db, feed), Router(db.core, db.feed)
        hold.follow(opened, cursor, partial(followed, router, feed, cursor, topic), report, common, follow=wait)


@command(topics, "publish", "queue-db topics publish sensor.7 reading '{\"celsius\": 21}'")
def publish(
    topic: TopicArgument,
    kind: MessageKindArgument,
    payload: PayloadArgument = "null",
    *,
    key: KeyOption = None,
    headers: HeadersOption = None,
    client: ClientOption = None,
    idempotency_key: IdempotencyOption = None,
    common: CommonOptions,
) -> None:
    """Publish one message, and print how many routes acted."""
    content, given = decoded("the payload is", payload), decoded("the headers are", headers)
    with common.open() as db:
        topic_of = db.topic(topic)
        acted = topic_of.publish(kind, content, key=key, headers=given, client=client, idempotency_key=idempotency_key)
    common.print({"topic": topic, "routes": acted}, f"{topic}: {acted} {'route' if acted == 1 else 'routes'} acted")


def _doubts(pattern: str, form: str) -> list[str]:
    """What of a pattern may be meant otherwise."""
    found = []
    if form == "glob" and "#" in pattern:
        found.append("# is a wildcard only with --form amqp; here it stands for itself")
    if form == "glob" and re.search(r"\[[^\]]*\Z", re.sub(r"\\.", "", pattern)):
        found.append("[ has no ]: the class of characters goes to the end of the pattern")
    if form == "amqp" and any(len(word) > 1 and set(word) & {"*", "#"} for word in pattern.split(".")):
        found.append("* and # are wildcards only as whole words between dots; within a word they stand for themselves")
    return found


def _line(step: Step) -> tuple[Any, ...]:
    patterns = " ".join(step.patterns)
    target = step.target if step.counted is None else f"{step.target} {step.counted}"
    return step.hops, step.topic, step.route, patterns, step.action, target, step.cut, step.definition[:_SHOWN]
