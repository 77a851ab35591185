"""A process keeps a limited number of queues, however many names clients ask for."""

from __future__ import annotations

import gc

import pytest

from queue_db import Adaptive, QueueDB
from queue_db.concurrency import keyed_cache
from queue_db.concurrency.keyed_cache import KeyedCache


class Thing:
    """Something that can be forgotten."""


def test_a_name_has_the_same_object_as_long_as_anyone_has_it() -> None:
    things: KeyedCache[Thing] = KeyedCache(lambda _: Thing(), most=3)
    held = things["held"]
    for number in range(10):
        assert things[str(number)] is things[str(number)]
    assert len(things) == 4  # the last three, and the one that is held
    assert things["held"] is held
    assert len(things) == 3  # it was the last one asked for
    last = things["9"]
    new = things["new"]
    assert things["9"] is last
    assert things.get("new") is new
    assert things.get("never asked for") is None


def test_names_of_queues_are_forgotten() -> None:
    with QueueDB("sqlite://") as db:
        db.migrate()
        held = db.queue("held")
        for number in range(keyed_cache.MOST + 500):
            db.queue(f"q{number}").core.marks[f"q{number}"].ranges()
        gc.collect()
        assert db.queue("held") is held
        assert len(db._queues) <= keyed_cache.MOST + 1
        assert len(db.core.marks) <= keyed_cache.MOST + 1  # and those of the queue that is held


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_what_is_measured_of_queues_is_forgotten(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queues without jobs, and of those with some."""
    monkeypatch.setattr("queue_db.strategies.adaptive.MOST", 5)
    strategy = Adaptive()
    with QueueDB(fresh_url, strategy=strategy) as db:
        db.migrate()
        for number in range(10):
            queue = db.queue(f"q{number}")
            assert queue.claim() == []
            queue.enqueue("k")
            queue.complete_many(queue.claim())
        assert len(strategy._controls) == 5
        assert [strategy._controls.get(f"q{number}") is None for number in range(10)] == [True] * 5 + [False] * 5


def test_each_object_is_given_to_a_hook_once() -> None:
    things: KeyedCache[Thing] = KeyedCache(lambda _: Thing(), most=1)
    first, seen = things["a"], []
    things.each(seen.append)
    assert seen == [first]
    second = things["b"]
    assert (things["a"], things["b"]) == (first, second)  # "a" was put out of the last ones, and is still there
    assert seen == [first, second]


def test_a_hook_may_ask_for_its_object_and_for_others() -> None:
    things: KeyedCache[Thing] = KeyedCache(lambda _: Thing())
    names: dict[Thing, str] = {}

    def hook(thing: Thing) -> None:
        name = names[thing] = "abc"[len(names)]
        assert things[name] is thing
        if name < "c":
            things["abc"[len(names)]]

    first = things["a"]
    things.each(hook)
    assert names == {first: "a", things["b"]: "b", things["c"]: "c"}


def test_a_hook_that_raises_gets_the_next_object_of_the_name() -> None:
    things: KeyedCache[Thing] = KeyedCache(lambda _: Thing())
    there, seen = things["a"], []

    def hook(thing: Thing) -> None:
        seen.append(thing)
        if len(seen) in {1, 3}:
            raise LookupError("not now")

    with pytest.raises(LookupError):
        things.each(hook)
    new = things["b"]
    assert seen == [there]  # it is not called again
    things.each(lambda thing: None if thing in {there, new} else hook(thing))
    assert things["c"] is seen[1]
    with pytest.raises(LookupError):
        things["d"]
    assert things["d"] is seen[-1]
    assert len(seen) == 4
