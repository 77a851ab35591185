"""What a stream holds is listed and can be given back."""

from functools import partial

import pytest
from sqlalchemy import update

from queue_db.errors import StreamFencedError
from queue_db.spark.streams import store as streams
from queue_db.spark.tables import spark_tables


@pytest.fixture
def session(db, queue):
    """A reader that has claimed a batch of three of five jobs."""
    queue.enqueue_many(("k", n, {"unique_key": "k" if n == 1 else None}) for n in range(5))
    run = partial(db.database.run, store=db.store)
    opened = partial(streams.open_stream, name=f"of {queue.name}", queue=queue.name, holder="here:1", retention=10**12)
    session = run(opened, name="open")
    start = run(partial(streams.initial, session=session), name="initial")
    claim = partial(streams.allocate, session=session, start=start, limit=3, ceiling=None, partitions=1)
    run(claim, name="claim")
    return session


def offsets(db, session):
    """Before and after its batch."""
    start = db.core.write("streams.initial", streams.initial, session=session)
    claim = partial(streams.allocate, session=session, start=start, limit=3, ceiling=None, partitions=1)
    return start, db.database.run(claim, store=db.store, name="claim")


def test_streams_are_listed_with_their_holders_ages_and_sizes(ask, queue, session):
    (found,) = ask("streams", "list", "--queue", queue.name, "--json").records
    assert {name: found[name] for name in ("name", "queue", "holder", "completed", "claimed", "held")} == {
        "name": session.name,
        "queue": queue.name,
        "holder": "here:1",
        "completed": 0,
        "claimed": 1,
        "held": 3,
    }
    assert (found["maybe_written"], found["deliveries"]) == (0, 0)
    assert found["oldest_held_age"] >= 0
    assert found["retention"] == 1_000_000
    assert any("here:1" in line and "0/1" in line for line in ask("streams", "list").out.splitlines())
    assert ask("queues", "show", queue.name, "--json").record["held"] == 3
    assert ask("queues", "show", queue.name, "--json").record["available"] == 2
    assert ask("queues", "show", queue.name, "--json").record["running"] == 0


def test_a_released_stream_gives_its_jobs_back_and_stops_its_reader(ask, db, queue, session):
    refused = ask("streams", "release", session.name, status=2)
    assert "--yes" in refused.err
    assert ask("streams", "release", session.name, "--yes").out == f"released 3 jobs of stream {session.name!r}\n"
    assert (queue.stats().available, queue.stats().held) == (5, 0)
    with pytest.raises(StreamFencedError, match="now held by nobody"):
        db.core.write("streams.initial", streams.initial, session=session)
    assert ask("streams", "release", session.name, "--yes", "--json").record == {"stream": session.name, "released": 0}


def test_a_release_warns_of_jobs_that_may_be_written(ask, db, queue, session):
    nothing = ask("streams", "release", session.name, status=2)
    assert "None of them has been written" in nothing.err
    start, end = (streams.Offset(row.batch, row.claim) for row in offsets(db, session))
    work = partial(streams.partition, session=session, start=start, end=end)
    db.database.run(work, store=db.store, name="partitions")
    (found,) = ask("streams", "list", "--queue", queue.name, "--json").records
    assert (found["maybe_written"], found["deliveries"]) == (3, 1)
    assert "Up to 3 of them may already be written" in ask("streams", "release", session.name, status=2).err
    assert queue.stats().held == 3


def test_what_is_written_leaves(ask, db, queue, session, tmp_path):
    _, end = offsets(db, session)
    for folder, text in (("offsets", f'v1\n{{}}\n{{"batch":{end.batch},"claim":"{end.claim}"}}'), ("commits", "v1\n{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    assert "--yes" in ask("streams", "complete", session.name, status=2).err
    done = ask("streams", "complete", session.name, "--checkpoint", tmp_path, "--yes", "--json")
    assert done.record == {"stream": session.name, "completed": 3}
    assert ask("streams", "complete", session.name, "--yes").out == f"completed 0 jobs of stream {session.name!r}\n"
    assert (queue.stats().available, queue.stats().held) == (2, 0)


def test_a_stream_that_is_not_there(ask, session):
    assert "there is no stream 'other'; known: " in ask("streams", "release", "other", "--yes", status=1).err


def test_expired_streams_are_released(ask, db, queue, session):
    assert "no stream chosen: give its name, or else --expired" in ask("streams", "release", "--yes", status=2).err
    ask("streams", "release", "--expired", "--yes")
    assert queue.stats().held == 3
    kept = spark_tables(db.store.tables).streams
    with db.database.begin() as connection:
        connection.execute(update(kept).where(kept.c.name == session.name).values(retention=0))
    released = ask("streams", "release", "--expired", "--yes", "--json").records
    assert {"stream": session.name} in released
    assert (queue.stats().available, queue.stats().held) == (5, 0)
