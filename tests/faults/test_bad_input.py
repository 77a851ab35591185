"""What callers should not pass: refused at the door, named with its value and its bounds, and nothing is lost or half done."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

from queue_db import (
    ArgumentError,
    ConfigurationError,
    JobNotFoundError,
    LeasedJob,
    PayloadError,
    Queue,
    QueueDB,
    QueueDBError,
    SchemaOutOfDateError,
    State,
)
from queue_db.model import StoredResult
from queue_db.worker import Worker
from tests.faults.bad_inputs import NAN, Case, Codes, World, cases

LOOP: list[Any] = []
LOOP.append(LOOP)

UNWRITABLE: dict[str, tuple[Any, str]] = {
    "set": ({1, 2}, "not JSON serializable"),
    "datetime": (datetime(2030, 1, 1, tzinfo=UTC), "not JSON serializable"),
    "bytes": (b"x", "not JSON serializable"),
    "NaN": ([NAN], "no numbers of JSON"),
    "lone surrogate": ("\ud800", "surrogates not allowed"),
    "itself": (LOOP, "Circular reference"),
}


CASES = cases()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueDB]:
    """Arguments are checked before the database has a say, so one database does."""
    with QueueDB(f"sqlite:///{tmp_path_factory.mktemp('bad')}/queue.db") as db:
        db.migrate()
        yield db


@pytest.fixture(scope="module")
def world(sqlite: QueueDB) -> Iterator[World]:
    """The same for all cases, since none of them may change it."""
    queue = sqlite.queue("mail")
    queue.enqueue("leased", "as it was")
    (leased,) = queue.claim()
    waiting = queue.enqueue("waiting", "as it was")
    assert waiting is not None
    world = World(str(sqlite.database.engine.url), sqlite, queue, waiting, leased, [])
    yield world
    for opened in world.opened:
        opened.close()


def everything(db: QueueDB) -> list[str]:
    """All that is in the database."""
    connection = sqlite3.connect(str(db.database.engine.url.database))
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_the_table_is_long_and_no_case_is_there_twice() -> None:
    assert len(CASES) >= 250
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_input_is_refused_with_what_to_do_and_nothing_is_touched(world: World, case: Case) -> None:
    before = everything(world.db)
    with pytest.raises(case.kind, match=case.says) as refused:
        case.act(world)
    assert everything(world.db) == before
    assert len(str(refused.value)) < 500
    assert not world.leased.settled
    assert not world.db.schemas


@pytest.mark.parametrize("what", UNWRITABLE)
def test_a_payload_that_is_not_json_is_refused_before_the_database_sees_it(queue: Queue, what: str) -> None:
    payload, says = UNWRITABLE[what]
    with pytest.raises(PayloadError, match=f"payload of job kind 'report': cannot be encoded: .*{says}") as refused:
        queue.enqueue("report", payload)
    assert refused.value.kind == "report"
    with pytest.raises(PayloadError):
        queue.enqueue_many([("fine", 1), ("report", payload)])
    assert queue.claim(10) == []


def test_headers_that_are_not_json_are_called_headers(queue: Queue) -> None:
    with pytest.raises(PayloadError, match="headers of job kind 'report': cannot be encoded: ") as refused:
        queue.enqueue("report", headers={"a": object()})
    assert refused.value.kind == "report"


def test_a_payload_over_the_limit(open_db: Callable[..., QueueDB], name: str) -> None:
    queue = open_db(max_payload=1000).queue(name)
    with pytest.raises(PayloadError, match=r"1,001 bytes encoded, 1,000 is the limit \(QueueDB\(max_payload=…\)\)"):
        queue.enqueue("k", "x" * 999)
    # Bytes count, not characters.
    with pytest.raises(PayloadError, match="1,002 bytes"):
        queue.enqueue("k", "\N{GRINNING FACE}" * 250)
    assert queue.enqueue("k", "x" * 998) is not None
    assert len(queue.claim(10)) == 1


def test_one_bad_job_of_many_leaves_none_behind_also_in_a_later_chunk(queue: Queue) -> None:
    def jobs() -> Any:
        yield from (("k", number) for number in range(1500))
        yield ("k", {1})

    with pytest.raises(PayloadError, match="^job 1500: payload of job kind 'k': cannot be encoded"):
        queue.enqueue_many(jobs())
    with pytest.raises(ArgumentError, match="^job 1: kind is empty"):
        queue.enqueue_many([("k", 1), ("", 2)])
    with pytest.raises(ArgumentError, match="job 1: unknown options dealy; known: delay"):
        queue.enqueue_many([("k", 1), ("k", 2, {"dealy": 3})])
    with pytest.raises(ArgumentError, match=r"job 0: must be \(kind, payload\)"):
        queue.enqueue_many(["k"])  # type: ignore[list-item]
    assert queue.stats().available == 0


def test_a_kind_alone_is_a_job_without_a_payload_as_in_enqueue(queue: Queue) -> None:
    queue.enqueue_many([("a",), ("b", None), ["c"]])  # type: ignore[list-item]
    queue.enqueue_batch([("d",)], ("e",))  # type: ignore[list-item, arg-type]
    assert [(job.kind, job.payload) for job in queue.peek()] == [(kind, None) for kind in "abcd"]


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        (Codes(b"x"), "Codes.encode returned bytes, not str"),
        (Codes(None), "Codes.encode returned NoneType, not str"),
        (Codes("a\0b"), "Codes.encode returned a NUL character"),
        (Codes("\ud800"), "surrogates not allowed"),
        (Codes(error=KeyError("field")), "KeyError: 'field'"),
        (Codes(error=UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")), "bad"),
        (Codes(error=OverflowError("too large")), "OverflowError: too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_codec_that_returns_or_raises_something_else_is_a_payload_error(
    open_db: Callable[..., QueueDB], name: str, codec: Codes, says: str
) -> None:
    queue = open_db(codec=codec).queue(name)
    with pytest.raises(PayloadError, match=f"payload of job kind 'report': cannot be encoded: .*{says}"):
        queue.enqueue("report", 1)
    with pytest.raises(PayloadError, match=says):
        queue.enqueue_many([("report", 1)])
    with pytest.raises(PayloadError, match=says):
        queue.db.schedules.set(name, name, "report", 1, every=60)
    assert open_db().queue(name).stats().available == 0


class Unreadable(Codes):
    """A codec whose text cannot be read again, with an error that the protocol does not know."""

    def decode(self, text: str) -> Any:
        raise KeyError(text)


def test_a_codec_that_raises_when_it_reads_loses_no_job(open_db: Callable[..., QueueDB], name: str) -> None:
    queue = open_db(codec=Unreadable("stored")).queue(name)
    queue.enqueue_many([("report", 1), ("report", 2), ("report", 3), ("report", 4)])
    assert [job.payload for job in queue.peek(4)] == ["stored"] * 4
    # These are gone from the table: whoever popped them must get them.
    assert [job.payload for job in queue.pop(2)] == ["stored", "stored"]
    job, other = queue.claim(2)
    with pytest.raises(PayloadError, match="the stored text cannot be decoded: KeyError: 'stored'"):
        _ = job.payload
    assert job.bury("unreadable")
    assert [dead.payload for dead in queue.db.dead.list(name)] == ["stored"]
    assert queue.complete_many([other], results=[StoredResult(result="kept", lasts=60_000_000)])[0]
    finished = queue.db.finished(other.id)
    assert (finished.payload, finished.result) == ("stored", "kept")
    queue.db.schedules.set(name, name, "report", 1, every=3600)
    assert [one.payload for one in queue.db.schedules.list() if one.name == name] == ["stored"]
    queue.db.schedules.remove(name)


def test_a_closed_database_says_so_and_is_not_opened_again(open_db: Callable[..., QueueDB], name: str) -> None:
    db = open_db()
    queue = db.queue(name)
    queue.enqueue("k")
    (job,) = queue.claim()
    worker = Worker(db, name)
    worker.handles("k")(print)
    db.close()
    db.close()
    verbs: list[Callable[[], object]] = [
        lambda: queue.enqueue("k"),
        lambda: queue.enqueue_many([("k", 1)]),
        # These have nothing to do.
        lambda: queue.enqueue_many([]),
        lambda: db.next_due([]),
        lambda: db.sweep(0),
        lambda: db.dead.redrive([]),
        lambda: db.dead.purge(limit=0),
        lambda: db.streams.complete("none", checkpoint="none"),
        queue.claim,
        queue.stats,
        job.complete,
        lambda: job.extend(60),
        db.check,
        db.queues,
        db.migrate,
        db.__enter__,
        lambda: queue.transaction().__enter__(),
        worker.run,
        lambda: db.database.listen("channel"),
    ]
    for verb in verbs:
        with pytest.raises(
            ConfigurationError, match=r"this QueueDB is closed \(.*\): use it inside its with block, or open another"
        ):
            verb()
    assert db.database.engine.pool.checkedin() == 0 if hasattr(db.database.engine.pool, "checkedin") else True
    again = open_db()
    with again.database.begin() as connection, pytest.raises(ConfigurationError, match="closed"):
        queue.enqueue("k", using=connection)
    assert again.queue(name).get(job.id).state is State.RUNNING


@pytest.mark.parametrize("verb", ["enqueue_many", "enqueue_batch"])
def test_jobs_are_not_read_while_the_tables_are_missing(open_db: Callable[..., QueueDB], name: str, verb: str) -> None:
    queue = open_db(table="tables_that_are_missing").queue(name)
    jobs = iter([("k", number) for number in range(3)])
    with pytest.raises(SchemaOutOfDateError):
        queue.enqueue_many(jobs) if verb == "enqueue_many" else queue.enqueue_batch(jobs, then=("k", None))
    assert next(jobs) == ("k", 0)


def test_an_engine_of_the_callers_stays_open_but_its_closed_queue_does_not_use_it(url: str, name: str) -> None:
    engine = create_engine(url)
    db = QueueDB(engine)
    db.close()
    with pytest.raises(ConfigurationError, match="closed"):
        db.queue(name).enqueue("k")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


def test_asyncio_without_greenlet_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['greenlet'] = None\n"
        "from queue_db import ConfigurationError\n"
        "try: import queue_db.aio\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'needs greenlet, which is not installed: pip install "queue-db[async-postgresql]"' in done.stdout


def test_an_id_that_is_gone(db: QueueDB, queue: Queue) -> None:
    job_id = queue.enqueue("k")
    assert job_id is not None
    queue.claim()[0].complete().require()
    for verb in (queue.get, queue.cancel, db.dead.redrive):
        with pytest.raises(JobNotFoundError, match=f"no job {job_id} in .*: it was completed, cancelled, purged, or never"):
            verb(job_id)


def test_a_foreign_object_settles_nothing(db: QueueDB, queue: Queue, name: str) -> None:
    queue.enqueue("k")
    (job,) = queue.claim()
    seen = queue.get(job.id)
    for stranger in (seen, job.id, None, "job"):
        with pytest.raises(ArgumentError, match="is not a LeasedJob: settle the objects that claim"):
            queue.complete_many([job, stranger])  # type: ignore[list-item]
    other = db.queue(f"{name}-other")
    with pytest.raises(ArgumentError, match="was claimed from .*, not from"):
        other.complete_many([job])
    assert queue.get(job.id).state is State.RUNNING
    assert job.complete()


def test_the_same_job_twice_in_one_list_is_one_job(db: QueueDB, queue: Queue) -> None:
    queue.enqueue("k")
    (job,) = queue.claim()
    before = db.counters.applied
    assert all(queue.complete_many([job, job]))
    assert db.counters.applied == before + 1
    assert not job.complete()


def test_refusals_are_all_of_one_family() -> None:
    assert issubclass(ArgumentError, QueueDBError)
    assert issubclass(PayloadError, QueueDBError)


def test_a_wait_may_be_a_timedelta(queue: Queue) -> None:
    queue.enqueue("k", delay=timedelta(0))  # type: ignore[arg-type]
    assert isinstance(queue.claim(1, lease=timedelta(minutes=1))[0], LeasedJob)  # type: ignore[arg-type]
