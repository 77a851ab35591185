"""``queue-db routes``: where messages go by the topic that they are published to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

from queue_db import arguments
from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.feeds import MessageOptions
from queue_db.cli.options import CommonOptions, YesOption, decoded
from queue_db.cli.recording import user
from queue_db.cli.statuses import NegativeError
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, RouteError
from queue_db.operations import routes as operations
from queue_db.routes import RouteInfo, Step, store
from queue_db.routes.conditions import EXAMPLE
from queue_db.routes.definition import ACTIONS, Definition
from queue_db.routes.patterns import PatternForm
from queue_db.routes.tables import COUNTER_LENGTH

NameArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="Name of the route.")]
PatternArgument = Annotated[str, typer.Argument(metavar="PATTERN", help="Which topics match.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
FormOption = Annotated[str, typer.Option("--form", help="Form of the pattern: glob, amqp, exact or headers.")]

_SHOWN = 12

app = typer.Typer(
    name="routes",
    help="Where messages go by the topic that they are published to, and counters of messages.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@dataclass(frozen=True)
class ActionOptions:
    """What a route does: one of them."""

    feed: Annotated[str | None, typer.Option("--feed", help="Publish the message to this feed.")] = None
    enqueue: Annotated[str | None, typer.Option("--enqueue", help="Enqueue a job in this queue.")] = None
    kind: Annotated[str | None, typer.Option("--kind", help="With --enqueue: kind of the job, if not the message's.")] = None
    group: Annotated[bool, typer.Option("--group", help="With --enqueue: the message's key is the job's group.")] = False
    forward: Annotated[str | None, typer.Option("--forward", help="Route the message as one of this topic.")] = None
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="URL", help="Send the message to this address.")] = None
    count: Annotated[str | None, typer.Option("--count", help="Add 1 to this counter.")] = None
    by: Annotated[
        str | None, typer.Option("--by", metavar="JMESPATH", help="With --count: a count for each value of this, such as topic.")
    ] = None
    drop: Annotated[bool, typer.Option("--drop", help="Do nothing.")] = False
    where: Annotated[
        str | None, typer.Option("--where", metavar="JMESPATH", help=f"Only for messages for which this holds, such as {EXAMPLE}")
    ] = None
    matched: Annotated[
        bool, typer.Option("--matched", help="Write the patterns that matched into the header 'matched' of what the route makes.")
    ] = False

    def given(self) -> list[str]:
        """The actions that are given, as they are spelled."""
        return [one for one in ACTIONS if getattr(self, one) not in {None, False}]

    def action(self) -> operations.RouteAction:
        """What the route does."""
        chosen = self.given()
        if len(chosen) != 1:
            raise ArgumentError(f"give one action of --{', --'.join(ACTIONS)}")
        if self.kind is not None and self.enqueue is None:
            raise ArgumentError("--kind is the kind of jobs: give it with --enqueue")
        if self.by is not None and self.count is None:
            raise ArgumentError("--by is what a counter counts by: give it with --count")
        if self.group and self.enqueue is None:
            raise ArgumentError("--group makes groups of jobs: give it with --enqueue")
        target = "" if self.drop else getattr(self, chosen[0])
        return operations.RouteAction(chosen[0], target, self.kind, self.group, self.where, self.by, self.matched)


@command(
    app,
    "list",
    "queue-db routes list",
    "queue-db routes list --json | jq .patterns",
    "queue-db routes list --definitions",
    "queue-db routes list --counter orders --limit 100",
)
def list_routes(
    *,
    definitions: Annotated[
        bool, typer.Option("--definitions", help="All definitions instead that routes can be pointed at, oldest first.")
    ] = False,
    counter: Annotated[
        str | None, typer.Option("--counter", metavar="COUNTER", help="The keys that this counter has counted most.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", show_default="10", help="With --counter: at most N keys.")
    ] = None,
    common: CommonOptions,
) -> None:
    """List the routes with what they do, their patterns and what they have counted.

    messages: how many a route with the action count has counted. definition: what "routes set --definition" points a route at.
    """
    if definitions and counter is not None:
        raise ArgumentError("--definitions and --counter exclude each other: give one of them")
    if limit is not None and counter is None:
        raise ArgumentError("--limit is for the keys of a counter: give it with --counter")
    with common.open() as db:
        if definitions:
            stored = db.routes.definitions()
            common.print_all(stored, ("definition", *_DOES, "created"), lambda one: (one.sha[:_SHOWN], *_does(one), one.created_at))
            return
        if counter is not None:
            counted, columns = db.routes.top(counter, limit=limit or 10), ("key", "messages")
            if not counted and counter not in [one.target for one in db.routes.list() if one.action == "count"]:
                _check_counter(db, counter)
            common.print_all(counted, columns, lambda one: one, lambda one: dict(zip(columns, one, strict=True)))
            return
        found = db.routes.list()
    common.print_all(
        found,
        ("route", *_DOES, "group", "patterns", "state", "version", "messages", "definition"),
        lambda one: (
            *(one.name, *_does(one)),
            one.group if isinstance(one.group, str) else "by key" if one.group else "",
            " ".join(text if form == "glob" else f"{form}:{text}" for form, text in one.patterns),
            "paused" if one.paused else "",
            one.version,
            "" if one.messages is None else one.messages,
            one.definition[:_SHOWN],
        ),
    )


_DOES = ("action", "target", "kind", "where", "matched")


def _does(one: RouteInfo | Definition) -> tuple[str, ...]:
    target = one.target if one.by is None else f"{one.target} by {one.by}"
    return one.action, target, one.kind or "", one.where or "", "yes" if one.matched else ""


@command(
    app,
    "set",
    "queue-db routes set archive --feed readings",
    "queue-db routes set check --enqueue alarms --kind check --group",
    "queue-db routes set shop --webhook https://shop.example/orders",
    "queue-db routes set hot --enqueue alarms --where 'payload.celsius > `70`'",
    "queue-db routes set customers --count orders --by payload.customer",
    "queue-db routes set archive --drop",
    "queue-db routes set archive --definition 5feceb66ffc8",
)
def set_route(
    name: NameArgument,
    *,
    definition: Annotated[
        str | None,
        typer.Option(
            "--definition",
            metavar="SHA",
            help="Instead of an action: point an existing route at this stored definition, its SHA-256 or the first digits.",
        ),
    ] = None,
    action: ActionOptions,
    common: CommonOptions,
) -> None:
    """Create a route, or assign what it does from now on."""
    if definition is not None and action != ActionOptions():
        raise ArgumentError("--definition says all that the route does: give it alone")
    does = None if definition is not None else action.action()
    with common.open() as db:
        if definition is not None:
            operations.assign(db, user(), name, definition)
        if does is not None:
            definition = operations.set(db, user(), name, does)
    common.print({"route": name, "definition": definition}, f"{name}: {(definition or '')[:_SHOWN]}")


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
        added = operations.subscribe(db, user(), name, pattern, cast("PatternForm", form))
    for note in _doubts(pattern, form):
        output.note(f"note: {note}")
    state = "subscribed" if added else "already subscribed"
    common.print_state({"route": name, "pattern": pattern, "form": form}, state)


@command(app, "unsubscribe", "queue-db routes unsubscribe 'sensor.*' archive")
def unsubscribe(pattern: PatternArgument, name: NameArgument, *, form: FormOption = "glob", common: CommonOptions) -> None:
    """Take a subscription back."""
    with common.open() as db:
        removed = operations.unsubscribe(db, user(), name, pattern, cast("PatternForm", form))
    common.print_state(
        {"route": name, "pattern": pattern, "form": form}, "unsubscribed", there=removed, code="no_such_subscription"
    )


@command(app, "pause", "queue-db routes pause archive")
def pause(name: NameArgument, *, common: CommonOptions) -> None:
    """Let a route do nothing until it is resumed. Messages that are published meanwhile are not kept for it."""
    with common.open() as db:
        operations.pause(db, user(), name)
    common.print_state({"route": name}, "paused")


@command(app, "resume", "queue-db routes resume archive")
def resume(name: NameArgument, *, common: CommonOptions) -> None:
    """End a pause."""
    with common.open() as db:
        operations.resume(db, user(), name)
    common.print_state({"route": name}, "resumed")


@command(app, "remove", "queue-db routes remove archive")
def remove(name: NameArgument, *, common: CommonOptions) -> None:
    """Delete a route with its subscriptions."""
    with common.open() as db:
        removed = operations.remove(db, user(), name)
    common.print_state({"route": name}, "removed", there=removed, code=RouteError.code)


@command(app, "reset", "queue-db routes reset orders", "queue-db routes reset orders --key eu --yes")
def reset(
    counter: Annotated[str, typer.Argument(metavar="COUNTER", help="Name of the counter.")],
    *,
    key: Annotated[str | None, typer.Option("--key", help="Delete the count of this key alone.")] = None,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Delete what a counter has counted: it begins at 0 again."""
    what = f"Counter {counter}" if key is None else f"The count of {key} by counter {counter}"
    with common.open() as db:
        _check_counter(db, counter, key)
        profiles.confirm_loss(f"{what} in {db.url} will be deleted.", yes=yes)
        done = operations.reset(db, user(), counter, key)
    common.print_state({"counter": counter, "key": key}, "reset", there=done)


@command(app, "test", "queue-db routes test sensor.7", "queue-db routes test sensor.7 --payload '{\"celsius\": 71}'")
def dry_run(
    topic: TopicArgument,
    *,
    kind: Annotated[str, typer.Option("--kind", help="Kind of the message.")] = "message",
    payload: Annotated[str | None, typer.Option("--payload", help="Its payload, JSON.")] = None,
    message: MessageOptions,
    common: CommonOptions,
) -> None:
    """Show what a publish to a topic would do. Nothing is done.

    hops: forwards before. cut: why a route does not act: loop (it leads back to where the message has been), hops (the limit of
    forwards is reached), paused, again (the route has acted on a shorter way), condition (it does not hold, or there is no key),
    error (it cannot be evaluated for this message).
    """
    content, headers = decoded("the payload is", payload), decoded("the headers are", message.headers)
    with common.open() as db:
        found = db.routes.test(topic, kind=kind, payload=content, key=message.key, client=message.client, headers=headers)
    if not found.steps:
        output.note(f"{topic}: no route")
    else:
        common.print_all(found.steps, ("hops", "topic", "route", "patterns", "action", "target", "cut", "definition"), _line)


def _check_counter(db: QueueDB, counter: str, key: str | None = None) -> None:
    """Raise unless the counter, or its key, has counted something."""
    arguments.name("counter", counter, COUNTER_LENGTH)
    if not db.core.read("routes.counted", store.counted, counter, key):
        of_key = "" if key is None else f" {key}"
        raise NegativeError(f"{counter}{of_key}: not found", "no_such_counter")


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
