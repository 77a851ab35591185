"""Triggers of assets: each message to each trigger, one reader, nothing lost when a triggerer dies."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
import triggerer
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome
from sqlalchemy import Engine, event
from triggerer import PATIENCE, Triggerer, until

from queue_db import QueueDB
from queue_db.aio import AsyncFeed
from queue_db.contrib.airflow.connections import database
from queue_db.contrib.airflow.feed_stream import MOST_PAGES, PAGE, Broadcast, FeedReader, Watchers, watchers_of
from queue_db.contrib.airflow.triggers import FeedTrigger
from queue_db.errors import ArgumentError, FeedError, TransientStorageError
from queue_db.feeds import Feed

# One process imports Airflow, which takes seconds, and is copied for each triggerer.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["triggerer"])


def trigger(feed: Feed, cursor: str, **options: Any) -> FeedTrigger:
    return FeedTrigger(feed=feed.name, cursor=cursor, **{"poll": 0.01, **options})


# Publishes on an event loop are made in a thread: on SQLite they wait for a transaction of the loop.


def behind(feed: Feed) -> dict[str, int]:
    return {info.name: info.behind for info in feed.cursors()}


def test_each_message_reaches_each_trigger_once_in_order(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer()
        airflow.start(trigger(feed, "all"))
        airflow.start(trigger(feed, "paid", kinds=["paid"]))
        airflow.start(trigger(feed, "lists", kinds=["sent"], batch=True))
        for part in range(3):
            await asyncio.to_thread(
                feed.publish_many, [("paid" if number % 2 else "sent", number) for number in range(100 * part, 100 * part + 100)]
            )
            await until(lambda: len(airflow.payloads("all")) == 100 * part + 100)  # noqa: B023
            airflow.store()
        await until(lambda: len(airflow.payloads("paid")) == len(airflow.payloads("lists")) == 150)
        assert airflow.payloads("all") == list(range(300))
        assert airflow.payloads("paid") == list(range(1, 300, 2))
        assert airflow.payloads("lists") == list(range(0, 300, 2))
        assert len(airflow.fired["lists"]) < 150
        airflow.store()
        await until(lambda: behind(feed) == {"all": 0, "lists": 0, "paid": 0}, f"acknowledged: {behind(feed)}")
        await airflow.stop_all()
        assert airflow.errors == {}

    asyncio.run(run())


def test_an_event_says_what_the_message_is(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer()
        airflow.start(trigger(feed, "c"))
        await asyncio.to_thread(feed.publish, "paid", {"order": 7}, key="order-7", headers={"trace": "t"})
        await until(lambda: airflow.fired["c"])
        await airflow.stop_all()
        (payload,) = airflow.fired["c"]
        assert json.loads(json.dumps(payload)) == payload
        (message,) = feed.get(payload["position"])
        assert payload == {
            "feed": feed.name,
            "position": message.position,
            "kind": "paid",
            "key": "order-7",
            "payload": {"order": 7},
            "headers": {"trace": "t"},
            "published_at": message.published_at.isoformat(),
        }

    asyncio.run(run())


class Reads:
    """The statements that are sent, and who reads feeds."""

    def __init__(self) -> None:
        self.statements = 0
        self.reads = 0
        self.readers: set[Any] = set()

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    counts = Reads()
    read = AsyncFeed.read

    def sent(*_: object) -> None:
        counts.statements += 1

    async def counting(self: AsyncFeed, *args: Any, **kwargs: Any) -> Any:
        page = await read(self, *args, **kwargs)
        counts.reads += 1
        counts.readers.add(asyncio.current_task())
        return page

    monkeypatch.setattr(AsyncFeed, "read", counting)
    event.listen(Engine, "before_cursor_execute", sent)
    try:
        yield counts
    finally:
        event.remove(Engine, "before_cursor_execute", sent)


async def polls(triggers: list[FeedTrigger], counts: Reads, readers: int) -> float:
    """Statements for each poll, while nothing is published."""
    airflow = Triggerer()
    for one in triggers:
        airflow.start(one)
    joined = [watchers_of(one.shared_stream_key()).by_cursor for one in triggers]
    await until(lambda: all(one.cursor in by_cursor for one, by_cursor in zip(triggers, joined, strict=True)))
    await until(lambda: len(counts.readers) == readers, f"{len(counts.readers)} readers")
    counts.clear()
    await until(lambda: counts.reads >= 20 and len(counts.readers) >= readers)
    assert len(counts.readers) == readers
    found = counts.statements / counts.reads
    await airflow.stop_all()
    counts.clear()
    return found


def test_twenty_triggers_poll_a_feed_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.start()

    async def run() -> None:
        with counted(monkeypatch) as counts:
            alone = await polls([trigger(feed, "alone")], counts, readers=1)
            together = await polls([trigger(feed, f"c{number}", kinds=[f"k{number}"]) for number in range(20)], counts, readers=1)
            assert alone >= 1
            assert round(together) == round(alone)
            # Triggers that differ in what the reader does have one each: this is what would be seen.
            assert await polls([trigger(feed, f"d{number}", poll=0.01 + number / 1e4) for number in range(20)], counts, readers=20)

    asyncio.run(run())


def test_a_trigger_that_comes_later_misses_nothing_and_nobody_gets_a_message_twice(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer()
        airflow.start(trigger(feed, "first"))
        await asyncio.to_thread(feed.publish_many, [("k", number) for number in range(5)])
        await until(lambda: len(airflow.fired["first"]) == 5)
        airflow.store()
        airflow.start(trigger(feed, "later"))
        await until(lambda: len(airflow.fired["later"]) == 5)
        airflow.store()
        await until(lambda: behind(feed) == {"first": 0, "later": 0})
        await airflow.stop("later")
        await asyncio.to_thread(feed.publish, "k", 5)
        await until(lambda: len(airflow.fired["first"]) == 6)
        airflow.store()
        await until(lambda: behind(feed) == {"first": 0, "later": 1})
        airflow.start(trigger(feed, "later"))
        await until(lambda: len(airflow.fired["later"]) == 6)
        await asyncio.to_thread(feed.publish, "k", 6)
        await until(lambda: len(airflow.fired["first"]) == len(airflow.fired["later"]) == 7)
        assert airflow.payloads("first") == airflow.payloads("later") == list(range(7))
        await airflow.stop_all()

    asyncio.run(run())


@pytest.mark.parametrize("careless", [False, True])
def test_a_trigger_that_joins_while_a_page_is_read_gets_the_earlier_messages(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, careless: bool
) -> None:
    """Careless: the page goes to those that are there when it arrives. The test would notice."""
    if careless:
        monkeypatch.setattr(Watchers, "established", lambda self: tuple(self.by_cursor.values()))

    async def run() -> list[Any]:
        read, held, go_on = AsyncFeed.read, asyncio.Event(), asyncio.Event()

        async def slow(self: AsyncFeed, *args: Any, **kwargs: Any) -> Any:
            page = await read(self, *args, **kwargs)
            if any(message.payload == "last" for message in page.messages):
                held.set()
                await go_on.wait()
            return page

        monkeypatch.setattr(AsyncFeed, "read", slow)
        airflow = Triggerer()
        await asyncio.to_thread(feed.publish_many, [("k", "one"), ("k", "two")])
        airflow.start(first := trigger(feed, "first"))
        await until(lambda: len(airflow.fired["first"]) == 2)
        airflow.store()
        await asyncio.to_thread(feed.publish, "k", "last")
        await held.wait()
        airflow.start(trigger(feed, "later"))
        await until(lambda: "later" in watchers_of(first.shared_stream_key()).by_cursor)
        go_on.set()
        await until(lambda: "last" in airflow.payloads("later"))
        assert airflow.payloads("first") == ["one", "two", "last"]
        await airflow.stop_all()
        return airflow.payloads("later")

    assert asyncio.run(run()) == (["last"] if careless else ["one", "two", "last"])


def test_no_more_is_read_than_airflow_has_stored(feed: Feed) -> None:
    number = (MOST_PAGES + 5) * PAGE
    feed.publish_many([("k", place) for place in range(number)])

    async def run() -> None:
        airflow = Triggerer(max_subscriber_queue=MOST_PAGES)
        airflow.start(trigger(feed, "c"))
        await until(lambda: len(airflow.fired["c"]) >= MOST_PAGES * PAGE)
        await asyncio.sleep(0.1)  # there is nothing to wait for
        assert len(airflow.fired["c"]) == MOST_PAGES * PAGE
        while len(airflow.fired["c"]) < number:
            airflow.store()
            await asyncio.sleep(0)
        assert airflow.payloads("c") == list(range(number))
        assert airflow.errors == {}
        await airflow.stop_all()

    asyncio.run(run())


def test_events_that_are_never_stored_are_not_acknowledged(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer(ack_timeout=0.05)
        airflow.start(trigger(feed, "c"))
        await asyncio.to_thread(feed.publish, "k", 1)
        await until(lambda: airflow.errors)
        airflow.store()  # too late
        airflow.start(trigger(feed, "c"))
        await until(lambda: len(airflow.fired["c"]) == 2)
        assert len(set(airflow.positions("c"))) == 1
        assert behind(feed) == {"c": 1}
        await airflow.stop_all()

    asyncio.run(run())


@pytest.mark.parametrize("stored", [0, 1, 20])
def test_a_trigger_that_is_cancelled_within_a_page_loses_nothing(feed: Feed, stored: int) -> None:
    """Airflow cancels a trigger whose asset is gone or changed, also between two events of a page."""
    feed.publish_many([("k", number) for number in range(PAGE)])

    async def run() -> None:
        airflow = Triggerer()
        airflow.start(trigger(feed, "c"))
        while not airflow.logging or len(airflow.fired["c"]) < stored:  # noqa: ASYNC110 - the very next turn
            await asyncio.sleep(0)
        airflow.store()
        await airflow.stop("c")
        assert len(airflow.fired["c"]) < PAGE
        airflow.start(trigger(feed, "c"))
        await until(lambda: PAGE - 1 in airflow.payloads("c"), f"behind: {behind(feed)}")
        await airflow.stop_all()
        assert set(airflow.payloads("c")) == set(range(PAGE))

    asyncio.run(run())


def test_what_is_stored_when_the_last_trigger_stops_is_acknowledged(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow may acknowledge it when the reader has ended."""

    async def run() -> None:
        ended, open_stream, advance = asyncio.Event(), FeedReader.open_stream, FeedReader.advance

        async def ending(self: FeedReader) -> Any:
            try:
                async with aclosing(open_stream(self)) as pages:  # type: ignore[type-var]
                    async for page in pages:
                        yield page
            finally:
                ended.set()

        async def late(self: FeedReader, batch: Any) -> None:
            await ended.wait()
            await advance(self, batch)

        monkeypatch.setattr(FeedReader, "open_stream", ending)
        monkeypatch.setattr(FeedReader, "advance", late)
        airflow = Triggerer()
        airflow.start(trigger(feed, "c"))
        await asyncio.to_thread(feed.publish_many, [("k", number) for number in range(50)])
        await until(lambda: len(airflow.fired["c"]) == 50)
        watchers = watchers_of(trigger(feed, "c").shared_stream_key())
        await until(lambda: watchers.by_cursor["c"].seen)
        airflow.store()
        await airflow.stop("c")
        assert await asyncio.to_thread(behind, feed) == {"c": 0}

    asyncio.run(run())


def test_a_lost_cursor_does_not_keep_the_others_back(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer()
        watchers = watchers_of(trigger(feed, "lost").shared_stream_key())
        for name in ("lost", "other"):  # in this order they are acknowledged
            airflow.start(trigger(feed, name))
            await until(lambda: name in watchers.by_cursor)  # noqa: B023
        await asyncio.to_thread(feed.cursor, "lost", take_over=True)
        await asyncio.to_thread(feed.publish_many, [("k", number) for number in range(PAGE)])
        await until(lambda: len(airflow.fired["lost"]) == len(airflow.fired["other"]) == PAGE)
        airflow.store()
        await until(lambda: len(airflow.errors) == 2)
        assert "cursor 'lost' of feed" in str(airflow.errors["other"])
        assert await asyncio.to_thread(behind, feed) == {"lost": PAGE, "other": 0}
        await airflow.stop_all()

    asyncio.run(run())


def test_pages_before_one_that_is_not_stored_are_acknowledged(feed: Feed) -> None:
    feed.publish_many([("k", number) for number in range(3)])

    async def run() -> None:
        async with database("queue_db_default") as opened:
            cursor = await opened.feed(feed.name).cursor("c", start="start")
            messages = await cursor.read(3)
            reader = FeedReader("stream", "queue_db_default", feed.name, 1)
            with watchers_of("stream").joined(cursor, "c") as watcher:
                pages = [Broadcast([message], [watcher]) for message in messages]
                for page in pages:
                    page.passed(watcher)
                outcomes = [AdvanceOutcome(1, 0), AdvanceOutcome(0, 1), AdvanceOutcome(1, 0)]
                with pytest.raises(FeedError, match="1 triggers have not stored"):
                    await reader.advance([AdvanceItem(*item) for item in zip(pages, outcomes, strict=True)])

    asyncio.run(run())
    assert behind(feed) == {"c": 2}


def test_a_reader_bears_a_database_that_is_away(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    read, away = AsyncFeed.read, []

    async def failing(self: AsyncFeed, *args: Any, **kwargs: Any) -> Any:
        if len(away) < 3:
            away.append(TransientStorageError("the server is away"))
            raise away[-1]
        return await read(self, *args, **kwargs)

    monkeypatch.setattr(AsyncFeed, "read", failing)
    feed.publish("k", 1)

    async def run() -> None:
        airflow = Triggerer()
        airflow.start(trigger(feed, "c"))
        await until(lambda: airflow.fired["c"] or airflow.errors)
        assert airflow.errors == {}
        assert len(away) == 3
        await airflow.stop_all()

    asyncio.run(run())


class Words:
    """A codec whose texts are not JSON."""

    def encode(self, payload: Any) -> str:
        return "".join(payload)

    def decode(self, text: str) -> Any:
        return text


def test_an_event_says_that_its_payload_cannot_be_read(feed: Feed) -> None:
    with QueueDB(os.environ["QUEUE_DB_TEST_URL"], codec=Words()) as other:
        other.feed(feed.name).publish("k", "no JSON")

    async def run() -> None:
        stream = trigger(feed, "c").run()
        found = (await anext(stream)).payload
        await stream.aclose()  # type: ignore[attr-defined]
        assert found["payload"] is None
        assert "cannot be decoded" in found["error"]

    asyncio.run(run())


def test_two_triggers_with_one_cursor_are_told(feed: Feed) -> None:
    async def run() -> None:
        airflow = Triggerer()
        airflow.start(one := trigger(feed, "c", kinds=["one"]))
        watchers = watchers_of(one.shared_stream_key())
        await until(lambda: "c" in watchers.by_cursor)
        before = watchers.by_cursor["c"]
        airflow.start(trigger(feed, "c", kinds=["two"]))
        await until(lambda: watchers.by_cursor["c"] is not before)
        await asyncio.to_thread(feed.publish, "one", 1)
        await until(lambda: airflow.errors)
        assert "give each one a cursor of its own" in str(airflow.errors["c"])
        await airflow.stop_all()

    asyncio.run(run())


# --- triggerers in processes of their own --------------------------------------------------------------------------


class Process:
    """A triggerer in a process of its own."""

    def __init__(self, *triggers: FeedTrigger, early: bool) -> None:
        self._pipe, theirs = FORK.Pipe()
        arguments = [one.serialize()[1] for one in triggers]
        self._process = FORK.Process(target=triggerer.main, args=(theirs, arguments), kwargs={"early": early}, daemon=True)
        self._process.start()
        theirs.close()

    def line(self) -> dict[str, Any]:
        assert self._pipe.poll(PATIENCE), "the triggerer says nothing"
        found: dict[str, Any] = self._pipe.recv()
        return found

    def payload(self) -> Any:
        return self.line()["event"]["payload"]

    def store(self) -> None:
        self._pipe.send("store")

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def process(*triggers: FeedTrigger, early: bool = False) -> Iterator[Process]:
    started = Process(*triggers, early=early)
    try:
        yield started
    finally:
        started.kill()


@pytest.mark.parametrize("early", [False, True])
def test_a_triggerer_that_is_killed_before_the_event_is_stored_loses_nothing(feed: Feed, early: bool) -> None:
    """Early: the reader acknowledges before the event is stored. The test would notice."""
    feed.publish_many([("k", 1), ("k", 2)])
    with process(trigger(feed, "c"), early=early) as first:
        assert [first.payload(), first.payload()] == [1, 2]
    feed.publish("k", 3)
    with process(trigger(feed, "c")) as second:
        assert second.payload() == (3 if early else 1)
        if not early:
            assert [second.payload(), second.payload()] == [2, 3]
            second.store()
            asyncio.run(until(lambda: behind(feed) == {"c": 0}))
    feed.publish("k", 4)
    with process(trigger(feed, "c")) as third:
        assert third.payload() == (4 if not early else 3)


def test_a_second_triggerer_takes_a_cursor_over_and_the_first_one_ends(feed: Feed) -> None:
    feed.publish("k", 1)
    with process(trigger(feed, "c")) as first:
        assert first.payload() == 1
        with process(trigger(feed, "c")) as second:
            assert second.payload() == 1  # it was not stored: at least once
            first.store()
            assert "was lost" in first.line()["error"]
            feed.publish("k", 2)
            assert second.payload() == 2
            second.store()
            asyncio.run(until(lambda: behind(feed) == {"c": 0}))


# --- by hand -------------------------------------------------------------------------------------------------------


def test_run_hands_a_message_out_again_unless_the_next_one_was_asked_for(feed: Feed) -> None:
    feed.publish_many([("k", 1), ("k", 2)])

    async def first(number: int) -> list[Any]:
        found = []
        stream = trigger(feed, "c").run()
        while len(found) < number:
            found.append((await anext(stream)).payload["payload"])
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    assert asyncio.run(first(2)) == [1, 2]
    feed.publish("k", 3)
    assert asyncio.run(first(3)) == [1, 2, 3]


@pytest.mark.parametrize(("wrong", "named"), [({"kinds": "paid"}, "kinds"), ({"poll": 0}, "poll")])
def test_wrong_arguments_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        FeedTrigger(feed="f", cursor="c", **wrong)
