"""Routes, their subscriptions to topics, and topics. A route that is set to an HTTP address is a webhook."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from queue_db.db import QueueDB
from queue_db.errors import RouteError
from queue_db.operations import routes as operations
from queue_db.routes import RouteInfo, Topic
from queue_db.routes.conditions import CONDITION_LENGTH, EXAMPLE
from queue_db.routes.patterns import PatternForm
from queue_db.routes.tables import COUNTED_KEY_LENGTH, PATTERN_LENGTH
from queue_db.service.api import shapes
from queue_db.service.api.feed_shapes import ClientId, IdempotencyKey, NewMessages, keyed
from queue_db.service.http.paths import Name, NewName, visible
from queue_db.service.http.pressure import Admission
from queue_db.service.http.refusals import invalid, missing
from queue_db.service.http.requests import Db, Enqueuer, Manager, Reader
from queue_db.service.http.times import Time
from queue_db.store.schema import KEY_LENGTH, KIND_LENGTH, TOPIC_LENGTH

router = APIRouter(tags=["routes"])

Pattern = Annotated[str, Query(min_length=1, max_length=PATTERN_LENGTH, description="A pattern of topics, or of headers.")]

KeyToReset = Annotated[
    str | None, Query(min_length=1, max_length=COUNTED_KEY_LENGTH, description="Delete the count of this key alone.")
]


_Kind = Annotated[str, Field(min_length=1, max_length=KIND_LENGTH)]
_Key = Annotated[str, Field(min_length=1, max_length=KEY_LENGTH)]
_Expression = Annotated[str, Field(min_length=1, max_length=CONDITION_LENGTH)]


class Subscription(BaseModel):
    """Topics whose messages a route gets."""

    pattern: str
    form: str


class RouteView(shapes.View):
    """A route: a name for a definition, with its subscriptions."""

    name: str
    definition: str = Field(description="SHA-256 of what it does.")
    action: str
    target: str
    kind: str | None
    group: bool | str
    where: str | None = Field(description="The condition under which it acts. Null: always.")
    matched: bool = Field(description="Whether what it makes has the header `matched`.")
    version: str = Field(description="Grows each time that the route is pointed at a definition.")
    paused: bool
    subscriptions: list[Subscription]
    messages: str | None = Field(description="Counted by the action `count`.")
    by: str | None = Field(description="What the action `count` counts by. Null: all messages together.")
    changed_at: Time


class RouteList(BaseModel):
    """The routes by name."""

    routes: list[RouteView]


class RouteAction(shapes.Request):
    """What a route does with a message."""

    action: Literal["feed", "enqueue", "forward", "webhook", "count", "drop"]
    target: Annotated[
        str, Field(max_length=TOPIC_LENGTH, description="The feed, queue, topic, address or counter."), AfterValidator(visible)
    ] = ""
    kind: Annotated[_Kind | None, Field(description="Of the jobs (`enqueue`).")] = None
    group: bool | _Key = False
    where: Annotated[_Expression | None, Field(description=f"Act only where this holds, as `{EXAMPLE}`.")] = None
    by: Annotated[
        _Expression | None, Field(description="A count for each value of this JMESPath expression, such as `topic` (`count`).")
    ] = None
    matched: Annotated[bool, Field(description="Write the patterns that matched into the header `matched`.")] = False


class RouteDefinition(shapes.Request):
    """A definition that is stored."""

    definition: Annotated[str, Field(pattern="^[0-9a-f]{6,64}$", description="Its SHA-256, or the first digits.")]


class NewSubscription(shapes.Request):
    """Topics whose messages a route shall get."""

    pattern: Annotated[str, Field(min_length=1, max_length=PATTERN_LENGTH)]
    form: PatternForm = "glob"


class TopicTestStep(shapes.View):
    """A route on the way of a message."""

    hops: int
    topic: str
    route: str
    patterns: list[str]
    definition: str
    version: str
    action: str
    target: str
    kind: str | None
    cut: str = Field(description="Why it does nothing: `loop`, `hops`, `paused`, `again`, `condition`, `error`. Empty: it acts.")
    counted: str | None = Field(description="The key that it counts.")


class TopicTestResult(BaseModel):
    """What a publish to a topic would do."""

    topic: str
    steps: list[TopicTestStep]


class TopicTest(shapes.Request):
    """A message, as conditions see it."""

    kind: _Kind = "message"
    payload: Any = None
    key: _Key | None = None
    headers: dict[str, Any] | None = None


class CountedKey(BaseModel):
    """A key of a counter."""

    key: str
    messages: str


class CountedKeys(BaseModel):
    """Keys of a counter, the largest count first."""

    keys: list[CountedKey]


class PublishedToTopic(BaseModel):
    """What a publish has done."""

    acted: int = Field(description="Number of routes that acted, over all messages; 0: no route has them.")


@router.get("/routes")
def list_routes(db: Db, who: Reader) -> RouteList:
    """List the routes."""
    return RouteList(routes=[_view(one) for one in db.routes.list() if who.allows("read", one.name)])


@router.get("/routes/{route}")
def get_route(route: Name, db: Db, who: Reader) -> RouteView:
    """Get one route."""
    who.check("read", route)
    return _find(db, route)


@router.put("/routes/{route}", responses={201: {"model": RouteView, "description": "It is new."}})
def set_route(route: NewName, does: RouteAction, db: Db, who: Manager, response: Response) -> RouteView:
    """Create a route, or let it do something else from now on."""
    who.check("manage", route)
    if does.action != "enqueue" and (does.kind is not None or does.group is not False):
        raise invalid("kind and group are for the action enqueue")
    if all(one.name != route for one in db.routes.list()):
        response.status_code = 201
    operations.set(db, who, route, operations.RouteAction(**does.model_dump()))
    return _find(db, route)


@router.post("/routes/{route}/assign")
def point_route(route: Name, at: RouteDefinition, db: Db, who: Manager) -> RouteView:
    """Point a route at a definition that it or another route had before."""
    operations.assign(db, who, route, at.definition)
    return _find(db, route)


@router.post("/routes/{route}/pause")
def pause_route(route: Name, db: Db, who: Manager) -> RouteView:
    """Let a route do nothing; messages that are published meanwhile are not kept for it."""
    operations.pause(db, who, route)
    return _find(db, route)


@router.post("/routes/{route}/resume")
def resume_route(route: Name, db: Db, who: Manager) -> RouteView:
    """End a pause."""
    operations.resume(db, who, route)
    return _find(db, route)


@router.delete("/routes/{route}", status_code=204)
def delete_route(route: Name, db: Db, who: Manager) -> None:
    """Delete a route with its subscriptions."""
    if not operations.remove(db, who, route):
        raise _missing(route)


@router.get("/routes/{route}/subscriptions")
def list_subscriptions(route: Name, db: Db, who: Reader) -> list[Subscription]:
    """List the subscriptions of a route."""
    who.check("read", route)
    return _find(db, route).subscriptions


@router.post(
    "/routes/{route}/subscriptions", status_code=201, responses={200: {"model": RouteView, "description": "It had it already."}}
)
def subscribe_route(route: Name, to: NewSubscription, db: Db, who: Manager, response: Response) -> RouteView:
    """Lead the messages of matching topics to a route. One that it has already is not added again.

    Any form but `exact` needs a token for all queues: its pattern may match every topic.
    """
    if not operations.subscribe(db, who, route, to.pattern, to.form):
        response.status_code = 200
    return _find(db, route)


@router.delete("/routes/{route}/subscriptions", status_code=204)
def unsubscribe_route(route: Name, pattern: Pattern, db: Db, who: Manager, form: PatternForm = "glob") -> None:
    """Take a subscription back."""
    if not operations.unsubscribe(db, who, route, pattern, form):
        raise missing("subscription", f"route {route!r} has none with this pattern and form")


@router.get("/counters/{counter}/keys")
def list_counted_keys(counter: Name, db: Db, who: Reader, limit: Annotated[int, Query(ge=1, le=1000)] = 10) -> CountedKeys:
    """List the keys that a counter has counted most, the largest first."""
    who.check("read", counter)
    return CountedKeys(keys=[CountedKey(key=key, messages=str(messages)) for key, messages in db.routes.top(counter, limit=limit)])


@router.delete("/counters/{counter}", status_code=204)
def reset_counter(counter: Name, db: Db, who: Manager, key: KeyToReset = None) -> None:
    """Delete a counter, or the count of one of its keys; it begins at 0 again."""
    if not operations.reset(db, who, counter, key):
        raise missing("counter", f"counter {counter!r} has counted nothing")


@router.post("/topics/{topic}/messages", status_code=201)
def publish_to_topic(
    topic: NewName,
    messages: NewMessages,
    request: Request,
    db: Db,
    who: Enqueuer,
    client_id: ClientId = None,
    idempotency_key: IdempotencyKey = None,
) -> PublishedToTopic:
    """Publish messages to a topic, all or none: routes decide where they go.

    With an `Idempotency-Key` the request can be repeated safely when its response did not arrive.
    """
    who.check("enqueue", topic)
    listed = [(one.kind, one.payload, one.options()) for one in messages.messages]
    key = keyed(who, idempotency_key)
    with Admission(request) as admission:
        published = Topic(db.topic(topic).router, topic, admission.check)
        acted = published.publish_many(listed, client=client_id, idempotency_key=key)
    return PublishedToTopic(acted=acted)


@router.post("/topics/{topic}/test")
def test_topic(topic: Name, message: TopicTest, db: Db, who: Reader) -> TopicTestResult:
    """Show what a publish to a topic would do now, by routes that the token may read; nothing is done."""
    who.check("read", topic)
    way = db.routes.test(topic, kind=message.kind, payload=message.payload, key=message.key, headers=message.headers)
    steps = [TopicTestStep.of(one) for one in way.steps if who.allows("read", one.route)]
    return TopicTestResult(topic=way.topic, steps=steps)


def _find(db: QueueDB, name: str) -> RouteView:
    """The route."""
    for one in db.routes.list():
        if one.name == name:
            return _view(one)
    raise _missing(name)


def _missing(name: str) -> RouteError:
    """The error that operations raise."""
    return RouteError(f"there is no route {name!r}")


def _view(info: RouteInfo) -> RouteView:
    subscriptions = [Subscription(form=form, pattern=pattern) for form, pattern in info.patterns]
    return RouteView.of({**asdict(info), "subscriptions": subscriptions})
