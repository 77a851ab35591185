"""``queue-db top``."""

import pytest

from queue_db import QueueDB
from queue_db.store import presence

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_one_look(ask, queue, db):
    queue.enqueue_many([("n", None)] * 4)
    (job,) = queue.claim()
    assert job.progress(0.4, "page 4 of 10")
    queue.limit(concurrency=5)
    values = {
        "host": "here/1/2",
        "pid": 7,
        "queues": f'{{"{queue.name}": 4}}',
        "state": "working",
        "in_hand": 2,
        "counters": '{"completed": 1234}',
    }
    with queue.transaction() as connection:
        presence.tell(connection, db.store, "here:7#1", values)
    seen = ask("top", "--once").out
    assert queue.name in seen
    assert "≤ 5 at once" in seen
    assert "1,234" in seen
    assert "40%" in seen
    record = ask("top", "--once", "--json").record
    (mine,) = [one for one in record["queues"] if one["queue"] == queue.name]
    assert (mine["available"], mine["progress"], mine["controls"]["concurrency"]) == (3, 0.4, 5)
    (worker,) = [one for one in record["workers"] if one["name"] == "here:7#1"]
    assert (worker["host"], worker["in_hand"], worker["queues"]) == ("here", 2, {queue.name: 4})
    with queue.transaction() as connection:
        presence.forget(connection, db.store, "here:7#1")


@SQLITE
def test_the_doctor_says_what_is_stuck(ask_at, tmp_path, kind):
    url = f"sqlite:///{tmp_path}/own.db"
    with QueueDB(url, clock=lambda: 1_000_000_000_000_000) as db:  # the year 2001
        db.migrate()
        db.queue("mail").enqueue("n")
    answer = ask_at(url, "doctor", "--json", status=1).record
    (said,) = answer["stuck"]
    assert answer["healthy"] is False
    assert "queue 'mail': 1 jobs have been due" in said
    assert "stuck: queue 'mail'" in ask_at(url, "doctor", status=1).out
    with QueueDB(url) as db:
        db.queue("mail").pause()
    answer = ask_at(url, "doctor", "--json").record
    assert (answer["healthy"], answer["stuck"]) == (True, [])
    assert "it is paused" in answer["slow"][0]
    assert ask_at(url, "doctor", "--strict", status=1).out.endswith("not healthy\n")
