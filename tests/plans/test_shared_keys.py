"""A unique key is found, and a stream claims, without a look at the keys of the other queues."""

from __future__ import annotations

from queue_db import QueueDB
from tests.plans import planner
from tests.plans.touched import Touched, watch
from tests.spark.streams.conftest import open_stream

SHORT, LONG = 10, 1000


def touched_by(db: QueueDB, name: str, number: int) -> Touched:
    """By an enqueue with the key that jobs of ``number`` queues have, in a queue of ``number`` jobs."""
    for other in range(number):
        db.queue(f"{name} {other}").enqueue("nightly", unique_key=name)
    queue = db.queue(name)
    queue.enqueue_many([("k", None, {"unique_key": f"{place}"}) for place in range(number)])
    queue.enqueue("nightly", unique_key=name)
    planner.analyse(db)
    return watch(db, lambda: queue.enqueue("nightly", unique_key=name, on_duplicate="skip"))


def test_a_key_of_many_queues_is_found_as_that_of_few(fresh_url: str) -> None:
    with QueueDB(fresh_url, pool_size=1) as db:
        db.migrate()
        touched_by(db, "prepares", SHORT)  # SQLite counts the steps of preparing a statement too
        short, long = touched_by(db, "short", SHORT), touched_by(db, "long", LONG)
    assert long.rows <= short.rows + 10, long.plans
    assert not long.bad, long.plans


def test_a_stream_claims_without_a_look_at_the_keys_of_other_queues(fresh_url: str) -> None:
    with QueueDB(fresh_url, pool_size=1) as db:
        db.migrate()
        readers = [open_stream(db, name) for name in ("prepares", "short", "long")]
        found = []
        for reader, number in zip(readers, (SHORT, SHORT, LONG), strict=True):
            keyed = [("k", None, {"unique_key": f"{number} {place}"}) for place in range(number)]
            db.queue("other").enqueue_many(keyed, on_duplicate="skip")
            planner.analyse(db)
            found.append(watch(db, lambda reader=reader: reader.allocate(reader.initial())))
    _, short, long = found
    assert long.rows <= short.rows + 10, long.plans
