"""Spans of the verbs of a feed: publish, read or claim, and the end of what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry.trace import SpanKind

from queue_db.instrumentation.messaging import Attributes, Place, Telemetry, of_messages
from queue_db.instrumentation.watching import Watcher
from queue_db.model import Verdict
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from queue_db.feeds import Cursor, Feed, Message, MessageClaim, SharedCursor, Span
else:
    Cursor, Feed, Message = (type_hint("queue_db.feeds", name) for name in ("Cursor", "Feed", "Message"))
    MessageClaim, SharedCursor, Span = (type_hint("queue_db.feeds", name) for name in ("MessageClaim", "SharedCursor", "Span"))

_T = TypeVar("_T")


class FeedWatch:
    """Makes spans of the verbs of feeds, and of the cursors, spans and claims that they open.

    :ivar feed: call it with each feed.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._numbered: WeakKeyDictionary[Span, dict[int, Message]] = WeakKeyDictionary()
        span = Watcher(settle=self._settle_span, release=self._release_span)
        claim = Watcher(delete=self._delete_claimed, release=self._release_claim)
        cursor = Watcher(read=self._reading("read", _of_cursor, list), ack=self._ack, transfer=self._transfer)
        shared = Watcher(claim=_found(span, self._reading("claim", _of_cursor, _claimed)))
        self.feed = Watcher(
            publish_many=self._publish,
            read=self._reading("read", _of_feed, lambda page: page.messages),
            pop=self._reading("pop", _of_feed, list),
            claim=_found(claim, self._reading("claim", _of_feed, _claimed)),
            find_claim=_found(claim),
            delete=self._delete,
            cursor=_found(cursor),
            resume=_found(cursor),
            shared=_found(shared),
        )

    # --- publish ----------------------------------------------------------------------------------------------------

    def _publish(self, feed: Feed, publish: Callable[..., list[str]], messages: Any, **options: Any) -> list[str]:
        given = _listed(messages)
        number = len(given) if isinstance(given, list | tuple) else 0
        if isinstance(given, list | tuple) and not given:
            return publish(given, **options)
        place, sort = _of_feed(feed), "send" if options.get("using") is None else "create"
        about: Attributes = {}
        if number == 1 and isinstance(given[0], list | tuple) and given[0] and isinstance(given[0][0], str):
            about["queue_db.kind"] = given[0][0]
        operation = None
        try:
            with self._telemetry.operation("publish", sort, place, SpanKind.PRODUCER, about) as operation:
                ids = publish(given, **options)
                number = len(ids)
                if number > 1:
                    operation.note(messaging__batch__message_count=number)
                # A message without a number has no position yet, and the position is what readers see.
                elif load("feeds.position", "Unnumbered").parse(ids[0]) is None:
                    operation.note(messaging__message__id=ids[0])
            return ids
        finally:
            if sort == "send":
                self._telemetry.sent("publish", place, number, None if operation is None else operation.error)

    # --- receive ----------------------------------------------------------------------------------------------------

    def _reading(
        self, name: str, place: Callable[[Any], Place], messages: Callable[[Any], Sequence[Message]]
    ) -> Callable[..., Any]:
        def read(of: Feed | Cursor | SharedCursor, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
            return self._telemetry.receive(name, place(of), partial(verb, *args, **options), messages)

        return read

    # --- settle -----------------------------------------------------------------------------------------------------

    def _ack(self, cursor: Cursor, ack: Callable[..., Verdict], upto: Message | str, **options: Any) -> Verdict:
        about: Attributes = {"messaging.message.id": upto} if isinstance(upto, str) else of_messages([upto])
        return self._settle("ack", _of_cursor(cursor), about, [upto], partial(ack, upto, **options))

    def _transfer(self, cursor: Cursor, transfer: Callable[..., Any], messages: Sequence[Message], change: Any) -> Any:
        return self._settle("ack", _of_cursor(cursor), of_messages(messages), messages, partial(transfer, messages, change))

    def _settle_span(
        self,
        span: Span,
        settle: Callable[..., Verdict],
        seqs: Sequence[int] | None,
        failures: Sequence[Any] = (),
        **options: Any,
    ) -> Verdict:
        """A worker settles what is done and what has failed of a span in one transaction, and this is one span of a trace."""
        name = "fail" if failures else "release" if options.get("release") else "complete"
        messages: Sequence[Message] = span.messages
        if seqs is not None and name != "release":
            # Not a search for each: a span may have thousands, and each of them may be settled by itself.
            numbered = self._numbered.get(span)
            if numbered is None:
                numbered = self._numbered[span] = {message.seq: message for message in span.messages}
            messages = [*(numbered[seq] for seq in seqs if seq in numbered), *(failure.message for failure in failures)]
        about = of_messages(messages)
        return self._settle(name, _of_cursor(span.cursor), about, messages, partial(settle, seqs, failures, **options))

    def _release_span(self, span: Span, release: Callable[[], Verdict]) -> Verdict:
        return self._settle("release", _of_cursor(span.cursor), of_messages(span.messages), span.messages, release)

    def _delete(self, feed: Feed, delete: Callable[..., int], messages: Any, **options: Any) -> int:
        given = _listed(messages)
        some: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        return self._settle("delete", _of_feed(feed), of_messages(some), some, partial(delete, given, **options), counts=True)

    def _delete_claimed(self, claim: MessageClaim, delete: Callable[..., int], messages: Any = None, **options: Any) -> int:
        if messages is not None:
            return delete(messages, **options)  # calls the feed's
        return self._settle_claim("delete", claim, partial(delete, **options))

    def _release_claim(self, claim: MessageClaim, release: Callable[[], int]) -> int:
        return self._settle_claim("release", claim, release)

    def _settle_claim(self, name: str, claim: MessageClaim, settle: Callable[[], int]) -> int:
        return self._settle(name, _of_feed(claim.feed), of_messages(claim.messages), claim.messages, settle, counts=True)

    def _settle(
        self,
        name: str,
        place: Place,
        about: Attributes,
        messages: Sequence[Any],
        settle: Callable[[], _T],
        *,
        counts: bool = False,
    ) -> _T:
        """Settle messages in a span.

        :param counts: the answer is the number of messages: some may have been gone before.
        """
        with self._telemetry.operation(name, "settle", place, SpanKind.CLIENT, about, self._telemetry.links(messages)) as operation:
            answer = settle()
            if answer is Verdict.LOST:
                operation.lose("the lease was lost")
            if counts and isinstance(answer, int) and "messaging.message.id" not in about:
                operation.note(messaging__batch__message_count=answer)
            return answer


def _of_feed(feed: Feed) -> Place:
    return Place(feed.name)


def _of_cursor(cursor: Cursor | SharedCursor) -> Place:
    return Place(cursor.feed.name, cursor.name)


def _claimed(claimed: Span | MessageClaim | None) -> Sequence[Message]:
    return () if claimed is None else claimed.messages


def _found(watcher: Watcher, call: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """What a verb returns is watched, too."""

    def found(of: object, verb: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        answer = verb(*args, **options) if call is None else call(of, verb, *args, **options)
        if answer is not None:
            watcher(answer)
        return answer

    return found


def _listed(given: Any) -> Any:
    """What is given as an iterable, as a list: a generator can be read once."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, list | tuple | str | bytes | Mapping) else given
