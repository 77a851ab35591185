"""Many jobs at once by the database's way to load rows: everything is as if they were inserted."""

# ruff: noqa: F811 - tests ask for fixtures by the names under which they are imported

from __future__ import annotations

import _thread
import operator
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from sqlalchemy import event, make_url

from queue_db import PayloadError, PermanentStorageError, Queue, QueueDB
from queue_db.codecs import JSONCodec
from queue_db.dialects import copy_stream, raw_cursor
from queue_db.dialects.postgresql_inserts import PostgreSQLInserts
from queue_db.model import NewJob
from queue_db.store import enqueue
from queue_db.testing import SettableClock
from queue_db.testing.suite import TestBatches, TestEnqueueMany, clock, db, name, queue, rival, rival_queue  # noqa: F401
from queue_db.testing.suite.enqueueing import PAYLOADS
from tests.patience import PATIENCE

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

LOADED = enqueue._LOADED


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each load had; also few jobs are loaded."""
    real, rows = raw_cursor.copy, []

    def copy(*arguments: Any) -> int:
        rows.append(real(*arguments))
        return rows[-1]

    monkeypatch.setattr(raw_cursor, "copy", copy)
    monkeypatch.setattr(enqueue, "_LOADED", 1)
    return rows


def test_loaded_jobs_are_stored_as_they_were_given(queue: Queue, clock: SettableClock, loads: list[int]) -> None:
    texts = [*PAYLOADS, "tab\tnew\nline\r\\N \\. 🦆", ["\\"], None]
    options = [
        {"delay": number % 2, "priority": number % 3, "headers": {"t": "\t\\"} if number % 2 else None}
        for number in range(len(texts))
    ]
    ids = queue.enqueue_many([("mail\\t", text, option) for text, option in zip(texts, options, strict=True)])
    assert loads == [len(texts)]
    assert ids == sorted(set(ids))
    for job_id, text, option in zip(ids, texts, options, strict=True):
        job = queue.get(job_id)
        assert (job.kind, job.payload, job.priority, job.headers) == ("mail\\t", text, option["priority"], option["headers"] or {})
        assert job.created_at == clock.now()
        assert job.available_at == clock.now() + timedelta(seconds=option["delay"])


def test_without_a_clock_the_time_is_that_of_the_database(open_db: Callable[..., QueueDB], name: str, loads: list[int]) -> None:
    queue = open_db().queue(name)
    before = queue.get(queue.enqueue("mail")).created_at
    ids = queue.enqueue_many([("mail", number, {"delay": 60 * (number % 2)}) for number in range(4)])
    after = queue.get(queue.enqueue("mail")).created_at
    loaded = [queue.get(job_id) for job_id in ids]
    assert all(before <= job.created_at <= after for job in loaded)
    assert [job.available_at - job.created_at for job in loaded] == [timedelta(seconds=60 * (number % 2)) for number in range(4)]
    assert loads == [4]


def test_loads_at_the_same_time_have_ids_of_their_own_in_their_order(open_db: Callable[..., QueueDB], name: str) -> None:
    queue, threads = open_db().queue(name), 4
    begin = threading.Barrier(threads)

    def load(thread: int) -> list[int | None]:
        begin.wait(PATIENCE)
        jobs = [("mail", [thread, number]) for number in range(2500)]
        return queue.enqueue_many(jobs if thread % 2 else iter(jobs))

    with ThreadPoolExecutor(threads) as pool:
        got = [future.result(PATIENCE) for future in [pool.submit(load, thread) for thread in range(threads)]]
    assert all(ids == sorted(ids) for ids in got)  # type: ignore[type-var]
    found = {job.id: job.payload for job in queue.pop(10_000)}
    assert found == {job_id: [thread, number] for thread, ids in enumerate(got) for number, job_id in enumerate(ids)}


def test_what_is_not_loaded_is_inserted(
    open_db: Callable[..., QueueDB], name: str, loads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_db()
    queue = db.queue(name)
    for options in ({"unique_key": "k"}, {"group": "g"}, {"unique_key": "w", "unique_for": 60.0}):
        queue.enqueue_many([("mail", 1), ("mail", 2, options)])
    with db.database.begin() as connection:
        queue.enqueue_many([("mail", 1), ("mail", 2)], using=connection)
    monkeypatch.setattr(enqueue, "_LOADED", LOADED)
    queue.enqueue_many([("mail", number) for number in range(LOADED - 1)])
    assert loads == []
    assert len(queue.enqueue_many([("mail", number) for number in range(LOADED)])) == LOADED
    assert loads == [LOADED]
    event.listen(db.database.engine, "before_cursor_execute", lambda *_: None)
    queue.enqueue_many([("mail", number) for number in range(LOADED)])
    assert loads == [LOADED]


def test_a_table_whose_rows_are_secured_by_policies_is_inserted_into(fresh_url: str, loads: list[int]) -> None:
    """COPY is refused there, unless the role is above the policies."""
    role = f"tenant_{make_url(fresh_url).database}"
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.database.begin() as connection:
            for statement in (
                f"CREATE ROLE {role}",
                f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
                f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
                "ALTER TABLE jobs ENABLE ROW LEVEL SECURITY",
                "CREATE POLICY everyone ON jobs USING (true)",
            ):
                connection.exec_driver_sql(statement)
        try:
            with QueueDB(make_url(fresh_url).update_query_dict({"options": f"-c role={role}"})) as tenant:
                assert len(tenant.queue("q").enqueue_many([("mail", 1), ("mail", 2)])) == 2
            assert loads == []
            db.queue("q").enqueue_many([("mail", 1), ("mail", 2)])
            assert loads == [2]
        finally:
            with db.database.begin() as connection:
                connection.exec_driver_sql(f"DROP OWNED BY {role}")
                connection.exec_driver_sql(f"DROP ROLE {role}")


def test_an_error_shows_no_row(fresh_url: str) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.database.engine.begin() as connection:
            body = "BEGIN RAISE ''refused''; END"
            connection.exec_driver_sql(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS '{body}'")
            connection.exec_driver_sql("CREATE TRIGGER refuse BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()")
        with pytest.raises(PermanentStorageError, match="refused") as refused:
            db.queue("q").enqueue_many([("k", {"their": "data"})])
    shown = "".join(traceback.format_exception(refused.value))
    assert "COPY" in shown
    assert '"their":"data"' not in shown


def test_ids_that_do_not_follow_each_other_are_those_of_the_jobs(fresh_url: str, loads: list[int]) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.database.begin() as connection:
            connection.exec_driver_sql("ALTER SEQUENCE jobs_id_seq INCREMENT BY 2")
        queue = db.queue("q")
        assert queue.enqueue_many([("mail", number) for number in range(3)]) == [1, 3, 5]
        assert [queue.get(job_id).payload for job_id in (1, 3, 5)] == [0, 1, 2]
    assert loads == [3]


def test_without_ids_no_sequence_is_needed(fresh_url: str, loads: list[int]) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.database.begin() as connection:
            connection.exec_driver_sql("ALTER SEQUENCE jobs_id_seq OWNED BY NONE")
        assert db.queue("q").enqueue_many([("mail", 1), ("mail", 2)], ids=False) == 2
        assert [job.payload for job in db.queue("q").pop(2)] == [1, 2]
    assert loads == [2]


def test_a_load_of_an_iterator_has_ten_thousand_jobs_or_fewer_if_they_are_large(
    open_db: Callable[..., QueueDB], name: str, loads: list[int]
) -> None:
    queue = open_db().queue(name)
    assert len(queue.enqueue_many(("mail", number) for number in range(10_001))) == 10_001
    assert loads == [10_000, 1]
    queue.enqueue_many((("mail", "x" * 4000) for _ in range(2500)), ids=False)
    assert loads[2:] == [2000, 500]


@pytest.mark.parametrize("ids", [True, False])
def test_a_list_is_one_load_or_several_if_it_is_large(
    queue: Queue, loads: list[int], monkeypatch: pytest.MonkeyPatch, ids: bool
) -> None:
    jobs = [("mail", number) for number in range(2500)]
    queue.enqueue_many(jobs, ids=ids)
    assert loads == [2500]
    monkeypatch.setattr(copy_stream, "_AT_ONCE", 1)
    queue.enqueue_many(jobs, ids=ids)
    assert [rows for rows in loads[1:] if rows] == [1000, 1000, 500]
    monkeypatch.setattr(PostgreSQLInserts, "loaded_from_memory", 2000)
    queue.enqueue_many(jobs, ids=ids)
    assert [rows for rows in loads[1:] if rows] == [1000, 1000, 500] * 2
    assert Counter(job.payload for job in queue.pop(10_000)) == Counter(range(2500)) + Counter(range(2500)) + Counter(range(2500))


def test_jobs_with_keys_in_a_long_list_are_inserted_in_their_places(queue: Queue, loads: list[int]) -> None:
    keyed = {"unique_key": "k"}
    jobs = [("mail", number, keyed if number in (1500, 3500) else {}) for number in range(5000)]
    ids = queue.enqueue_many(jobs, on_duplicate="skip")
    assert loads == [1000, 1000, 1000]
    assert [place for place, job_id in enumerate(ids) if job_id is None] == [3500]
    found = {job.id: job.payload for job in queue.pop(10_000)}
    assert found == {job_id: place for place, job_id in enumerate(ids) if job_id is not None}


class Failing(JSONCodec):
    """Fails, or is interrupted, at one payload."""

    def __init__(self, at: object, error: BaseException) -> None:
        super().__init__()
        self.at = at
        self.error = error

    def encode(self, value: Any) -> str:
        if value == self.at:
            raise self.error
        return super().encode(value)


@pytest.mark.parametrize("error", [ValueError("no text"), KeyboardInterrupt()], ids=["mistake", "Ctrl-C"])
def test_an_error_of_a_job_in_a_long_list_is_that_error_and_nothing_is_loaded(
    open_db: Callable[..., QueueDB], name: str, loads: list[int], error: BaseException
) -> None:
    queue = open_db(codec=Failing(2345, error)).queue(name)
    expected: Any = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else PayloadError
    with pytest.raises(expected) as raised:
        queue.enqueue_many([("mail", number) for number in range(3000)])
    assert "COPY" not in "".join(traceback.format_exception(raised.value))
    if expected is PayloadError:
        assert str(raised.value).startswith("job 2345: ")
        assert raised.value.__cause__ is error
    assert queue.stats().available == 0
    assert len(queue.enqueue_many([("mail", number) for number in range(2000)])) == 2000
    assert loads == [2000]


@pytest.mark.usefixtures("kind")
def test_large_jobs_are_sent_in_pieces() -> None:
    """libpq and the server keep a whole piece in memory, and refuse one of a gigabyte."""
    jobs = [[NewJob("q", "mail", "x" * 5000, None, 0, 25)] * 1000]
    lines = copy_stream.Lines(jobs, (), 0)
    pieces = []
    while not lines.ended:
        pieces.append(lines.read(1 << 18))
    assert max(map(len, pieces)) == 1 << 18
    assert "".join(pieces).count("\n") == 1000


def test_jobs_that_take_long_to_encode_are_several_loads(queue: Queue, loads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_stream, "monotonic", count().__next__)
    monkeypatch.setattr(copy_stream, "_SECONDS", 2)
    queue.enqueue_many([("mail", number) for number in range(2500)])
    assert [rows for rows in loads if rows] == [1000, 1000, 500]


def test_a_list_that_is_changed_meanwhile_is_enqueued_as_it_was(open_db: Callable[..., QueueDB], name: str) -> None:
    jobs: list[Any] = [("mail", number) for number in range(2000)]

    class Growing(JSONCodec):
        """Each payload adds a job."""

        def encode(self, value: Any) -> str:
            jobs.append(("late", 0))
            return super().encode(value)

    queue = open_db(codec=Growing()).queue(name)
    assert len(queue.enqueue_many(jobs)) == 2000
    assert [job.payload for job in queue.pop(10_000)] == list(range(2000))


@pytest.mark.usefixtures("kind")
def test_ctrl_c_before_the_first_step_of_a_read_is_not_lost() -> None:
    """The driver shows no more of an error of ``read`` than its text."""
    lines = copy_stream.Lines([[NewJob("q", "mail", "1", None, 0, 25)]], (), 0)
    with pytest.raises((copy_stream.UnreadableError, KeyboardInterrupt)):
        # Both calls in C: the interrupt arrives with the first step in Python, which is one of the read.
        list(map(operator.call, [_thread.interrupt_main, partial(lines.read, 1)]))
    assert isinstance(lines.error, KeyboardInterrupt)


def test_a_job_that_is_due_anywhere_in_a_long_list_wakes_workers(queue: Queue) -> None:
    woken: list[str | None] = []
    queue.db.notifications.add(woken.append)
    late = [("mail", number, {"delay": 60}) for number in range(1500)]
    queue.enqueue_many(late)
    assert woken == []
    queue.enqueue_many([*late, ("mail", "now")])
    assert woken == [queue.name]


def test_a_table_whose_ids_come_from_elsewhere_is_inserted_into(fresh_url: str, loads: list[int]) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
        with db.database.begin() as connection:
            connection.exec_driver_sql("ALTER SEQUENCE jobs_id_seq OWNED BY NONE")
        assert db.queue("q").enqueue_many([("mail", 1), ("mail", 2)]) == [1, 2]
    assert loads == []
