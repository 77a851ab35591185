"""Feeds with publishers and readers on all nodes, which read without waiting for what other nodes have committed."""

from __future__ import annotations

from collections import Counter

import pytest

from queue_db import QueueDB
from queue_db.feeds.store import rows
from tests.clusters.conftest import catch_up
from tests.feeds.conftest import ORDERINGS
from tests.races.interleaving import at_once, between

MESSAGES = 40  # of each publisher


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_readers_on_all_nodes_read_each_message_once_in_one_order(
    nodes: list[QueueDB], urls: list[str], name: str, ordering: str
) -> None:
    nodes[0].feeds.set(name, ordering=ordering)
    for url in urls:
        catch_up(url)
    start = nodes[0].feed(name).start()

    def publish(node: int) -> list[list[int]]:
        for number in range(MESSAGES):
            nodes[node].feed(name).publish("n", [node, number])
        return []

    def read(node: int) -> list[list[int]]:
        feed, position, seen = nodes[node].feed(name), start, list[list[int]]()
        while len(seen) < MESSAGES * len(nodes):
            page = feed.read(position, limit=7)
            position = page.position
            seen += [message.payload for message in page.messages]
        return seen

    places = range(len(nodes))
    answers = at_once(*(lambda n=n, do=do: do(n) for do in (publish, read) for n in places))
    assert not [one for one in answers if isinstance(one, Exception)], answers
    *_, first, second, third = answers
    assert first == second == third
    for node in places:
        assert [number for sender, number in first if sender == node] == list(range(MESSAGES))  # type: ignore[union-attr]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_consumers_on_all_nodes_share_the_messages(nodes: list[QueueDB], urls: list[str], name: str, ordering: str) -> None:
    nodes[0].feeds.set(name, ordering=ordering)
    nodes[0].feed(name).shared("workers")
    for url in urls:
        catch_up(url)
    total = 3 * MESSAGES
    nodes[1].feed(name).publish_many([("n", number) for number in range(total)])
    for url in urls:
        catch_up(url)

    def consume(db: QueueDB) -> list[int]:
        shared, done = db.feed(name).shared("workers"), list[int]()
        while span := shared.claim(limit=5):
            payloads = [message.payload for message in span.messages]
            if span.complete():
                done += payloads
        return done

    answers = at_once(*(lambda db=db: consume(db) for db in nodes))
    assert not [one for one in answers if isinstance(one, Exception)], answers
    assert Counter(number for done in answers for number in done) == Counter(range(total))  # type: ignore[union-attr]


def test_two_publishes_with_one_key_on_two_nodes_are_one(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    nodes[0].feeds.set(name, ordering="counter")
    for url in urls:
        catch_up(url)
    for number in range(10):
        ids = at_once(*(lambda db=db, k=f"k{number}": db.feed(name).publish("n", 1, idempotency_key=k) for db in nodes))
        assert len(set(map(str, ids))) == 1, ids


def test_no_message_stays_of_a_feed_that_was_deleted_meanwhile(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    nodes[0].feeds.set(name, ordering="ranked")
    catch_up(urls[1])
    feed = nodes[1].core.read("find", rows.find_feed, name)
    assert feed is not None

    def publish() -> None:
        with nodes[0].database.begin() as connection:  # nothing follows this commit
            nodes[0].feed(name).publish("n", using=connection)
        catch_up(urls[1])

    with between(nodes[1].database.engine, "DELETE FROM JOBS_MESSAGES", publish) as published:
        assert nodes[1].feeds.delete(name)
    assert published
    assert nodes[1].core.read("left", rows.waiting, [feed.id]) == {feed.id: 0}
