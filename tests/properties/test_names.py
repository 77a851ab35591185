"""A process keeps a limited number of queues, however many names clients ask for."""

from __future__ import annotations

import gc

from queue_db import QueueDB
from queue_db.concurrency import named
from queue_db.concurrency.named import Named


class Thing:
    """Something that can be forgotten."""


def test_a_name_has_the_same_object_as_long_as_anyone_has_it() -> None:
    things: Named[Thing] = Named(lambda _: Thing(), most=3)
    held = things["held"]
    for number in range(10):
        assert things[str(number)] is things[str(number)]
    assert len(things) == 4  # the last three, and the one that is held
    assert things["held"] is held
    assert len(things) == 3  # it was the last one asked for
    last = things["9"]
    things["new"] = held
    assert things["new"] is held
    assert things["9"] is last


def test_names_of_queues_are_forgotten() -> None:
    with QueueDB("sqlite://") as db:
        db.migrate()
        held = db.queue("held")
        for number in range(named.MOST + 500):
            db.queue(f"q{number}").core.marks[f"q{number}"].ranges()
        gc.collect()
        assert db.queue("held") is held
        assert len(db._queues) <= named.MOST + 1
        assert len(db.core.marks) <= named.MOST
