"""The seams stay small: the members of a dialect's claim seam, and the way of a claim from the verb to the driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import pytest
from sqlalchemy import Integer, bindparam, column, create_engine, select, tuple_
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.ext.compiler import compiles

from queue_db import Queue, QueueDB
from queue_db.dialects import Dialect, claim_sql, raw_cursor, statements
from queue_db.dialects.claim_sql import ClaimText, Lock, Order, Shape
from queue_db.dialects.clock import now_us
from queue_db.dialects.server import Server
from queue_db.leased_job import LeasedJob
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store import LowWaterMarks, Transaction

#: Most members of the claim seam, and most frames of the package between ``Queue.claim`` and the driver's cursor.
MEMBERS = 34
SERVER_MEMBERS = 15
FRAMES = 14

#: The objects made for each claim that carry it between functions: one down, two up. (The text of its statements is made once for
#: each shape and kept.)
CARRIERS = {ClaimRequest, ClaimResult, LeasedJob}


def members(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def test_the_claim_seam_has_few_members() -> None:
    assert len(members(Dialect)) <= MEMBERS, sorted(members(Dialect))
    assert len(members(Server)) <= SERVER_MEMBERS, sorted(members(Server))
    assert Dialect.__mro__[1:-1] == (), "those of slices are apart"


def test_the_pairs_of_a_statement_are_written_in_one_place() -> None:
    """Texts, and statements of SQLAlchemy, have the same condition."""
    for pairs in ([(1, 3)], [(1, 3), (2, 4)]):
        condition = statements.match(Dialect(), pairs)
        assert re.sub(r"\(__\[POSTCOMPILE_(\w+)\]\)", r":\1", str(condition)) == Dialect().matching(one=len(pairs) == 1)
        assert condition.compile().params == Dialect().wanted(pairs)


class TestPostcompile:
    """``raw_cursor.written`` reads ``__[POSTCOMPILE_name]`` in SQLAlchemy's compiled text: this is what it relies on."""

    engine: ClassVar[Any] = create_engine("sqlite://")

    def test_lists_stand_in_the_text_as_postcompile_and_their_names(self) -> None:
        ids, pairs = bindparam("ids", expanding=True), bindparam("pairs", expanding=True)
        number, version = column("id", Integer), column("version", Integer)
        statement = select(number).where(number.in_(ids), tuple_(number, version).in_(pairs), version == bindparam("one"))
        compiled: Any = statement.compile(dialect=self.engine.dialect)
        assert "__[POSTCOMPILE_ids]" in str(compiled)
        assert "__[POSTCOMPILE_pairs]" in str(compiled)
        assert {compiled.bind_names[bind] for bind in compiled.post_compile_params} == {"ids", "pairs"}
        assert list(compiled.positiontup) == ["ids", "pairs", "one"]
        written = raw_cursor.written(statement, self.engine.dialect)
        text, arguments = written.filled({"ids": [1, 2], "pairs": [(1, 3), (2, 4)], "one": 9})
        assert text.count("?") == 2 + 4 + 1
        assert arguments == (1, 2, 1, 3, 2, 4, 9)


class Clocked(DefaultDialect):
    """A database whose clock is written with percent signs, which some drivers want twice, and with colons."""

    name = "clocked"


@compiles(now_us, "clocked")
def _clock(element: now_us, compiler: Any, **kw: Any) -> str:
    percent = "%%" if compiler.dialect.paramstyle in {"format", "pyformat"} else "%"
    return f"micros(now()::text, '{percent}H:{percent}i 00:00:00 :zone')"


@pytest.mark.parametrize("paramstyle", ["qmark", "format", "pyformat"])
def test_a_clock_is_sent_in_a_claim_as_anywhere_else(paramstyle: str) -> None:
    from queue_db.store.schema.tables import tables

    sql = Clocked(paramstyle=paramstyle)
    alone = str(select(now_us().label("now")).compile(dialect=sql)).removeprefix("SELECT ").removesuffix(" AS now")
    assert alone.count("%") == (2 if paramstyle == "qmark" else 4)
    claim = ClaimText(Dialect(), tables().jobs, Shape(1, Order.HEAD, Lock.NONE), sql)
    for statement in (claim_sql.look(claim), claim_sql.fast_path_look(claim)):
        written = raw_cursor.written(statement, sql)
        assert written.text.count(alone) == 2
        assert "zone" not in written.order
    claim = ClaimText(Dialect(), tables().jobs, Shape(1, Order.HEAD, Lock.WAIT), sql)
    assert raw_cursor.written(claim_sql.update_claimed(claim, one=True), sql).text.count(f"{alone} + ") == 1


def test_a_slice_that_locks_has_no_fast_path() -> None:
    """It would lock the jobs before it too; and without their lock they would be claimed whatever their versions."""
    from queue_db.store.schema.tables import tables

    sql, jobs = create_engine("sqlite://").dialect, tables().jobs
    texts = [ClaimText(Dialect(), jobs, Shape(1, order, lock), sql) for order in Order for lock in Lock]
    fast = {(claim.shape.order, claim.shape.lock) for claim in texts if claim.has_fast_path}
    assert fast == {(Order.HEAD, Lock.NONE), (Order.HEAD, Lock.SKIP), (Order.SLICE, Lock.NONE)}


# --- the way of a claim -------------------------------------------------------------------------------------------------


@contextmanager
def cursors(ways: list[list[FrameType]]) -> Iterator[None]:
    """Note the frames that are under way each time a driver's cursor executes a statement."""

    def note(frame: FrameType, event: str, called: Any) -> None:
        # Of drivers in C the call is an event of its own; of those in Python it is a frame.
        in_c = event == "c_call" and called.__name__ == "execute"
        in_python = event == "call" and frame.f_code.co_name == "execute" and "pymysql" in frame.f_code.co_filename
        if in_c or in_python:
            ways.append(list(_outwards(frame)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def own(way: list[FrameType]) -> list[str]:
    """The frames of the package from ``Queue.claim`` on, from outside in; all others, SQLAlchemy's too, are not counted."""
    found = [f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}" for frame in way]
    ours = [name for name in found if name.startswith("queue_db.")]
    if "queue_db.queue.Queue.claim" not in ours:
        return []
    return ours[: ours.index("queue_db.queue.Queue.claim") + 1][::-1]


def foreign(way: list[FrameType]) -> list[str]:
    """SQLAlchemy's frames."""
    return [frame.f_code.co_qualname for frame in way if str(frame.f_globals["__name__"]).startswith("sqlalchemy.")]


def test_a_claim_has_a_short_way_to_the_drivers_cursor(kind: str, queue: Queue, db: QueueDB) -> None:
    queue.enqueue_many([("work", number) for number in range(10)])
    for _ in range(3):  # what is prepared is prepared once
        queue.claim()
    ways: list[list[FrameType]] = []
    with cursors(ways):
        (job,) = queue.claim()
    assert job.payload is not None
    claims = [way for way in ways if own(way)]
    assert claims
    for way in claims:
        assert len(own(way)) <= FRAMES, own(way)
        # The statement is compiled once and kept: SQLAlchemy has no part in sending it.
        assert foreign(way) == [], f"{foreign(way)}: if SQLAlchemy begins a transaction, the dialect lacks `autocommits`"


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_single_enqueue_goes_to_the_drivers_cursor(kind: str, queue: Queue) -> None:
    """On SQLite the process holds the write lock meanwhile: what SQLAlchemy would do then, all others wait for."""
    queue.enqueue("work", 1)
    ways: list[list[FrameType]] = []
    with cursors(ways):
        queue.enqueue("work", 2)
    assert ways
    for way in ways:
        assert foreign(way) == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_claim_carries_few_objects(kind: str, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of the package whose objects a claim makes on its way, besides the rows."""
    queue.enqueue_many([("work", number) for number in range(10)])
    queue.claim()
    made: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and frame.f_code.co_name == "__init__" and module.startswith("queue_db."):
            made.add(type(frame.f_locals["self"]).__name__)

    sys.setprofile(note)
    try:
        (job,) = queue.claim()
    finally:
        sys.setprofile(None)
    carriers = {one.__name__ for one in CARRIERS}
    assert len(CARRIERS) <= 3
    assert carriers <= made | {LeasedJob.__name__}
    # Not carriers: the transaction, the state of the claim loop, and the window that the adaptive strategy keeps for the queue.
    assert made - carriers <= {"OwnTransaction", "ClaimCall", "_Control"}
    assert isinstance(job, LeasedJob)


def test_the_fast_path_follows_a_claim_that_won_all_and_is_left_for_a_rescan(
    queue: Queue, db: QueueDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    due: list[bool] = []
    claim = db.strategy.claim

    def noting(tx: Transaction, request: ClaimRequest) -> ClaimResult:
        taken.append(request.fast_path)
        return claim(tx, request)

    monkeypatch.setattr(db.strategy, "claim", noting)
    monkeypatch.setattr(LowWaterMarks, "rescan_due", lambda marks: due[-1])
    queue.enqueue_many([("work", number) for number in range(4)])
    for is_due in (False, False, True, False):
        due.append(is_due)
        assert len(queue.claim()) == 1
    assert taken == [False, True, False, True]
    for _ in range(2):
        assert queue.claim() == []
    assert taken[-1] is False
