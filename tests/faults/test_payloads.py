"""Contents that break weak storage, and rows that other programs wrote."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import bindparam, text

from queue_db import PayloadError, Queue, QueueDB

CONTENTS: dict[str, Any] = {
    "nothing": None,
    "empty": "",
    "emoji": "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}\N{RAINBOW} \N{HEBREW LETTER ALEF} \N{COMBINING ACUTE ACCENT}",
    "NUL and escapes": "\x00\x1b\\'\"`%s%(x)s:name?{}\u2028",
    "a megabyte": "x" * 1_000_000,
    "a megabyte of emoji": "\N{GRINNING FACE}" * 250_000,
    "large numbers": [2**63, -(2**70), 1e308, 0.1],
    "nested": {"a": [{"b": [[[]]]}], "": {}},
}


@pytest.mark.parametrize("what", CONTENTS)
def test_what_goes_in_comes_out(queue: Queue, what: str) -> None:
    content = CONTENTS[what]
    queue.enqueue("k", content, headers={"\N{GRINNING FACE}": "\N{GRINNING FACE}"})
    queue.enqueue_many([("k", content), ("k", content, {"headers": {"\N{GRINNING FACE}": "\N{GRINNING FACE}"}})])
    jobs = queue.claim(10)
    assert [job.payload for job in jobs] == [content] * 3
    assert jobs[0].headers == jobs[2].headers == {"\N{GRINNING FACE}": "\N{GRINNING FACE}"}
    assert all(queue.bury_many(jobs, "\N{GRINNING FACE}\x00\ud800"))
    for dead in queue.db.dead.list(queue.name):
        assert dead.payload == content
        assert dead.last_error == "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}?"
    assert len(queue.db.dead.redrive(queue=queue.name)) == 3
    assert [job.payload for job in queue.claim(10)] == [content] * 3


def test_names_may_be_any_characters_at_full_length(db: QueueDB, name: str) -> None:
    face = "\N{GRINNING FACE}"
    queue = db.queue(name + face * (100 - len(name)))
    key = face * 200
    job_id = queue.enqueue(face * 100, unique_key=key)
    assert queue.enqueue("k", unique_key=key, on_duplicate="skip") is None
    assert queue.enqueue("k", unique_key=face * 199 + "\N{GRIMACING FACE}") != job_id
    first = queue.claim()[0]
    assert (first.id, first.kind, first.unique_key, first.queue) == (job_id, face * 100, key, queue.name)


def insert(db: QueueDB, **columns: Any) -> None:
    """What any other program may do."""
    names = ", ".join(columns)
    statement = text(f"INSERT INTO jobs ({names}) VALUES ({', '.join(f':{name}' for name in columns)})")
    with db.database.engine.begin() as connection:
        connection.execute(statement.bindparams(*(bindparam(name, value) for name, value in columns.items())))


def test_an_insert_of_queue_and_payload_by_hand_is_a_valid_job(db: QueueDB, queue: Queue) -> None:
    insert(db, queue=queue.name, payload='{"n": 1}')
    (job,) = queue.claim()
    assert (job.kind, job.payload, job.priority, job.attempts, job.max_attempts) == ("default", {"n": 1}, 0, 1, 25)
    assert dict(job.headers) == {}
    assert job.unique_key is None
    assert job.due_at is not None
    assert abs((job.due_at - job.created_at).total_seconds()) < 0.01
    assert job.complete()


@pytest.mark.parametrize("stored", ["no json", "", '{"a":', "\N{GRINNING FACE}", "[" * 100_000])
def test_text_that_is_no_json_is_claimed_all_the_same(db: QueueDB, queue: Queue, stored: str) -> None:
    insert(db, queue=queue.name, payload=stored, headers=stored)
    assert queue.peek()[0].payload == stored
    (job,) = queue.claim()
    assert job.payload_text == stored
    assert dict(job.headers) == {}
    with pytest.raises(PayloadError, match="payload of job kind 'default': the stored text cannot be decoded"):
        _ = job.payload
    assert job.bury("unreadable")
    (dead,) = db.dead.list(queue.name)
    assert dead.payload == stored
