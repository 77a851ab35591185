"""Spans of the verbs of a feed: publish, read or claim, and the end of what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import SpanKind

from queue_db.errors import LeaseLostError
from queue_db.instrumentation.messaging import Attributes, Place, Telemetry, of_messages
from queue_db.model import Verdict
from queue_db.slices import type_hint

if TYPE_CHECKING:
    from queue_db.feeds import Cursor, Feed, Message, MessageClaim, SharedCursor, Span
else:
    Cursor, Feed, Message = (type_hint("queue_db.feeds", name) for name in ("Cursor", "Feed", "Message"))
    MessageClaim, SharedCursor, Span = (type_hint("queue_db.feeds", name) for name in ("MessageClaim", "SharedCursor", "Span"))

_T = TypeVar("_T")


def watch_feed(telemetry: Telemetry, feed: Feed) -> None:
    """Make spans of the verbs of this feed, and of the cursors, spans and claims that it opens."""
    _Watch(telemetry, feed)


class _Watch:
    """The verbs that are called in place of those of a feed. Each gets the verb of the feed as its first argument."""

    def __init__(self, telemetry: Telemetry, feed: Feed) -> None:
        self._telemetry = telemetry
        self._name = feed.name
        place = Place(feed.name)
        _replace(feed, publish_many=self._publish, delete=partial(self._delete, place))
        _replace(feed, read=self._reading("read", place, lambda page: page.messages), pop=self._reading("pop", place, list))
        _replace(feed, claim=self._claiming("claim", place, self._claim), find_claim=self._found(self._claim))
        _replace(feed, cursor=self._found(self._cursor), resume=self._found(self._cursor), shared=self._found(self._shared))

    # --- publish ----------------------------------------------------------------------------------------------------

    def _publish(self, publish: Callable[..., list[str]], messages: Any, **options: Any) -> list[str]:
        place, sort = Place(self._name), "send" if options.get("using") is None else "create"
        number = len(messages) if isinstance(messages, list | tuple) else 0
        about: Attributes = {}
        if number == 1 and isinstance(messages[0], list | tuple) and messages[0] and isinstance(messages[0][0], str):
            about["queue_db.kind"] = messages[0][0]
        operation = None
        try:
            with self._telemetry.operation("publish", sort, place, SpanKind.PRODUCER, about) as operation:
                ids = publish(messages, **options)
                number = len(ids)
                if number == 1:
                    operation.note(messaging__message__id=ids[0])
                else:
                    operation.note(messaging__batch__message_count=number)
            return ids
        finally:
            if sort == "send":
                self._telemetry.sent("publish", place, number, None if operation is None else operation.error)

    # --- receive ----------------------------------------------------------------------------------------------------

    def _reading(self, name: str, place: Place, messages: Callable[[Any], Sequence[Message]]) -> Callable[..., Any]:
        def read(verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
            return self._telemetry.receive(name, place, partial(verb, *args, **options), messages)

        return read

    def _claiming(self, name: str, place: Place, watch: Callable[[Any], None]) -> Callable[..., Any]:
        read = self._reading(name, place, lambda claimed: [] if claimed is None else claimed.messages)
        return self._found(watch, read)

    @staticmethod
    def _found(watch: Callable[[Any], None], call: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """What a verb returns is watched, too."""

        def found(verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
            answer = verb(*args, **options) if call is None else call(verb, *args, **options)
            if answer is not None:
                watch(answer)
            return answer

        return found

    def _cursor(self, cursor: Cursor) -> None:
        place = Place(self._name, cursor.name)
        _replace(cursor, read=self._reading("read", place, list), ack=partial(self._ack, place))
        _replace(cursor, transfer=partial(self._transfer, place))

    def _shared(self, cursor: SharedCursor) -> None:
        _replace(cursor, claim=self._claiming("claim", Place(self._name, cursor.name), self._span))

    # --- settle -----------------------------------------------------------------------------------------------------

    def _ack(self, place: Place, ack: Callable[..., Verdict], upto: Message | str, **options: Any) -> Verdict:
        about: Attributes = {"messaging.message.id": upto} if isinstance(upto, str) else of_messages([upto])
        return self._settle("ack", place, about, [upto], partial(ack, upto, **options))

    def _transfer(self, place: Place, transfer: Callable[..., Any], messages: Sequence[Message], change: Any) -> Any:
        return self._settle("ack", place, of_messages(messages), messages, partial(transfer, messages, change))

    def _span(self, span: Span) -> None:
        place = Place(self._name, span.cursor.name)
        _replace(span, settle=partial(self._settle_span, place, span), release=partial(self._release, place, span.messages))

    def _settle_span(
        self,
        place: Place,
        span: Span,
        settle: Callable[..., Verdict],
        seqs: Sequence[int] | None,
        failures: Sequence[Any] = (),
        **options: Any,
    ) -> Verdict:
        """A worker settles what is done and what has failed of a span in one transaction, and this is one span of a trace."""
        some = None if seqs is None else {*seqs, *(failure.message.seq for failure in failures)}
        messages = [message for message in span.messages if some is None or message.seq in some]
        name = "fail" if failures else "complete" if messages else "release"
        return self._settle(name, place, of_messages(messages), messages, partial(settle, seqs, failures, **options))

    def _claim(self, claim: MessageClaim) -> None:
        place = Place(self._name)
        _replace(claim, delete=partial(self._delete_claimed, place, claim), release=partial(self._release, place, claim.messages))

    def _delete(self, place: Place, delete: Callable[..., int], messages: Any, **options: Any) -> int:
        given = messages if isinstance(messages, list | tuple) else [messages]
        about: Attributes = of_messages(given)
        return self._settle("delete", place, about, given, partial(delete, messages, **options))

    def _delete_claimed(
        self, place: Place, claim: MessageClaim, delete: Callable[..., int], messages: Any = None, **options: Any
    ) -> int:
        if messages is not None:
            return delete(messages, **options)  # calls the feed's
        about = of_messages(claim.messages)
        return self._settle("delete", place, about, claim.messages, partial(delete, **options))

    def _release(self, place: Place, messages: Sequence[Message], release: Callable[[], Any]) -> Any:
        return self._settle("release", place, of_messages(messages), messages, release)

    def _settle(self, name: str, place: Place, about: Attributes, messages: Sequence[Any], settle: Callable[[], _T]) -> _T:
        with self._telemetry.operation(name, "settle", place, SpanKind.CLIENT, about, self._telemetry.links(messages)) as operation:
            answer = settle()
            if answer is Verdict.LOST:
                operation.fail(LeaseLostError.__qualname__, "the lease was lost")
            return answer


def _replace(of: object, **verbs: Callable[..., Any]) -> None:
    """Let these functions be called in place of verbs of an object. Each gets the verb first, and then the arguments."""
    for name, function in verbs.items():
        setattr(of, name, _instead(getattr(type(of), name).__get__(of), function))


def _instead(verb: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def call(*args: Any, **options: Any) -> Any:
        return function(verb, *args, **options)

    return call
