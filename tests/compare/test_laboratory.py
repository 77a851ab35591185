"""Whole comparisons on every database: what they measure, what they refuse, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from queue_db import ArgumentError, ConfigurationError, QueueDB
from queue_db.cli.diagnosis import Diagnosis
from queue_db.compare.article import ARTICLE, Article
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.laboratory import compare, contestants, short_name
from queue_db.compare.plan import Plan, ProgressListener
from queue_db.compare.product import PRODUCT
from queue_db.compare.protocol import Protocol
from queue_db.compare.results import Comparison, Row, Run
from queue_db.compare.scratch import PREFIX, scratch_target
from queue_db.compare.worker_pool import Assignment, WorkerPool, WorkerPoolError
from queue_db.dialects import dialect_for
from tests.compare.house import House
from tests.compare.stand_ins import Dealt, Failing
from tests.servers import over_tls

#: Few jobs, two threads: these tests are about the laboratory, not about figures.
QUICK: dict[str, Any] = {"jobs": 8, "workers": 2, "repeat": 1, "kind": "threads", "limit": 60.0, "batches": (1,)}


def plan(*strategies: str, **options: Any) -> Plan:
    return Plan(**(QUICK | {"strategies": strategies} | options))


def row_of(name: str) -> Article:
    return next(row for row in ARTICLE if short_name(row) == name)


# --- nothing is left ------------------------------------------------------------------------------------------------


class Watcher(ProgressListener):
    """Looks for the laboratory's places while it runs, and may have enough at a given moment."""

    def __init__(self, house: House, leave_at: str | None = None) -> None:
        self.house, self.leave_at = house, leave_at
        self.seen: set[str] = set()
        self.rows: list[Row] = []
        self.events: list[str] = []

    def bench_started(self, server: str, rows: int, runs: int) -> None:
        self._record("bench", f"{rows} rows, {runs} runs")

    def run_started(self, name: str, batch: int, number: int, jobs: int) -> None:
        self._record("run", f"{name}/{batch} #{number}: {jobs}")

    def run_progress(self, left: int, seconds: float) -> None:
        assert left >= 0
        assert seconds >= 0
        self._record("progress", None)

    def row_finished(self, row: Row, skipped: int) -> None:
        assert skipped == (0 if row.refused is None and row.failed is None else 1)
        self.rows.append(row)
        self._record("done", row.name)

    def _record(self, moment: str, what: str | None) -> None:
        if what is not None:
            self.events.append(what)
        self.seen.update(self.house.places())
        if moment == self.leave_at:
            raise KeyboardInterrupt


@pytest.fixture
def house(kind: str, fresh_url: str) -> House:
    return House(kind, fresh_url)


BOTH = ("optimistic", "DBO-1")


def test_it_works_in_a_schema_of_its_own_that_is_dropped_afterwards(house: House) -> None:
    watcher = Watcher(house)
    found = compare([house.url], plan(*BOTH), listener=watcher)
    assert house.places() == []
    assert house.tables() == []
    if house.kind == "sqlite":  # its file and what belongs to it
        assert {Path(name).stem for name in watcher.seen} == {name.split(".")[0] for name in watcher.seen}
    assert len({name.split(".")[0] for name in watcher.seen}) == 1
    (bench,) = found.benches
    short = {"postgresql": "pgsql"}.get(house.kind, house.kind)
    assert [row.name for row in bench.rows] == ["optimistic", f"DBO-{short}-1"]
    assert all(row.finished and row.refused is None for row in bench.rows)
    assert watcher.rows == bench.rows
    assert watcher.events == [
        "2 rows, 2 runs",
        "optimistic/1 #0: 8",
        "optimistic",
        f"DBO-{short}-1/1 #0: 8",
        f"DBO-{short}-1",
    ]


@pytest.mark.parametrize(
    ("moment", "row"), [("bench", "DBO-1"), ("run", "DBO-1"), ("progress", "DBO-1"), ("progress", "optimistic"), ("done", "DBO-1")]
)
def test_nothing_is_left_after_ctrl_c(house: House, moment: str, row: str) -> None:
    watcher = Watcher(house, leave_at=moment)
    with pytest.raises(KeyboardInterrupt):
        compare([house.url], plan(row), listener=watcher)
    assert watcher.seen
    assert house.places() == []
    assert house.tables() == []


def test_what_was_measured_before_ctrl_c_is_kept(tmp_path: Path) -> None:
    house = House("sqlite", f"sqlite:///{tmp_path}/queue.db")
    kept: list[Comparison] = []

    def keep(comparison: Comparison) -> None:
        kept.append(comparison)
        if len(kept) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare([house.url], plan(*BOTH, repeat=2), keep=keep)
    assert house.places() == []
    (bench,) = kept[-1].benches
    assert kept[-1].interrupted
    assert [len(row.runs) for row in bench.rows] == [2, 1]
    assert all(run.finished for row in bench.rows for run in row.runs)


_PLACE_IS_GONE = threading.Event()
_SENT: list[None] = []


@dataclass(frozen=True)
class SlowStarter(Article):
    """Its workers are still on their way to the database when Ctrl-C comes.

    It comes from the last worker, who has got its assignment; or earlier, when only the first one has got it.
    """

    earlier: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        _SENT.append(None)
        if self.earlier and len(_SENT) == 2:
            raise KeyboardInterrupt
        return type(self), (self.pattern, self.claiming, self.removing, self.indexed, self.name, self.earlier)

    def work(self, target: Target, context: WorkerContext) -> None:
        if context.number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        # Until the laboratory has tidied up, or waits for us before it does.
        _PLACE_IS_GONE.wait(1.0)
        super().work(target, context)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("earlier", [True, False], ids=["between assignments", "before all are ready"])
def test_workers_that_start_late_leave_nothing_after_ctrl_c(house: House, earlier: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _PLACE_IS_GONE.clear()
    _SENT.clear()
    dialect = type(Laboratory.of(dialect_for(house.kind)))
    drop = dialect.drop_scratch_schema

    def dropped(self: Any, connection: Any, name: str) -> None:
        drop(self, connection, name)
        _PLACE_IS_GONE.set()

    monkeypatch.setattr(dialect, "drop_scratch_schema", dropped)
    late = SlowStarter("late", row_of("DBO-1").claiming, row_of("DBO-1").removing, earlier=earlier)
    with pytest.raises(KeyboardInterrupt):
        compare([house.url], plan("late"), more=[late])
    assert house.places() == []


@pytest.mark.parametrize("prepared", [False, True], ids=["in preparation", "at work"])
def test_nothing_is_left_after_a_worker_failed(house: House, prepared: bool) -> None:
    clumsy = Failing(((0,), (1,)), name="clumsy", prepared=prepared)
    with pytest.raises(WorkerPoolError, match="fell under the table"):
        compare([house.url], plan("clumsy"), more=[clumsy])
    assert house.places() == []


@pytest.mark.parametrize("prepared", [False, True], ids=["in preparation", "at work"])
def test_a_row_that_failed_does_not_take_the_others_with_it(house: House, prepared: bool) -> None:
    clumsy = Failing(((0,), (1,)), name="clumsy", prepared=prepared)
    watcher = Watcher(house)
    (bench,) = compare([house.url], plan("clumsy", "DBO-1"), more=[clumsy], listener=watcher).benches
    assert watcher.seen
    failed, ran = bench.rows
    assert "fell under the table" in str(failed.failed)
    assert "hunter2" not in str(failed.failed)  # it goes into the report
    assert (failed.runs, failed.finished) == ([], False)
    assert (ran.failed, ran.finished) == (None, True)
    assert house.places() == []


@dataclass(frozen=True)
class Stumbling(Article):
    """Its tables are there, and then it cannot go on."""

    def set_up(self, target: Target, jobs: int) -> None:
        super().set_up(target, jobs)
        raise LookupError("the jobs have got lost")


def test_nothing_is_left_after_a_set_up_failed_half_way(house: House) -> None:
    stumbling = Stumbling("stumbling", row_of("DBO-1").claiming, row_of("DBO-1").removing)
    with pytest.raises(LookupError, match="got lost"):
        compare([house.url], plan("stumbling"), more=[stumbling])
    assert house.places() == []


def test_what_a_row_cannot_tear_down_goes_with_the_schema(house: House) -> None:
    with scratch_target(house.url, plan("article")) as (target, _):
        row_of("DBO-1").set_up(target, 3)
        with QueueDB(target.url, schema=target.schema, table="others") as db:
            db.migrate()
        assert house.places() != []
    assert house.places() == []


def test_the_users_own_jobs_are_not_touched(house: House) -> None:
    with QueueDB(house.url) as db:
        db.migrate()
        queue = db.queue("mail")
        queue.enqueue_many([("send", number) for number in range(3)])
        db.queue("race").enqueue("the same queue name as ours")
        (leased,) = queue.claim()
        before, tables = db.store.tables.jobs, house.tables()
        with db.database.engine.connect() as connection:
            rows = connection.execute(before.select().order_by(before.c.id)).all()
        compare([house.url], plan(*BOTH, verify=True))
        with db.database.engine.connect() as connection:
            assert connection.execute(before.select().order_by(before.c.id)).all() == rows
        assert house.tables() == tables
        assert leased.complete()


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def visitor(kind: str, house: House) -> Iterator[tuple[str, Callable[[], None]]]:
    """A user who may only work in the database that is there; and a function that gives the right that the laboratory needs."""
    database = make_url(house.url).database
    admin = create_engine(house.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def execute(*statements: str) -> None:
        with admin.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", "%%") if kind != "postgresql" else statement)

    if kind == "postgresql":
        execute("CREATE ROLE visitor LOGIN PASSWORD 'Visitor-7x'")
    else:
        execute("CREATE USER visitor@'%' IDENTIFIED BY 'Visitor-7x'", f"GRANT ALL ON {database}.* TO visitor@'%'")

    def allow() -> None:
        if kind == "postgresql":
            execute(f"GRANT CREATE ON DATABASE {database} TO visitor")
        else:
            execute(rf"GRANT ALL ON `{PREFIX.replace('_', chr(92) + '_')}%`.* TO visitor@'%'")

    yield (
        make_url(over_tls(house.url)).set(username="visitor", password="Visitor-7x").render_as_string(hide_password=False),
        allow,
    )
    execute(*(["DROP OWNED BY visitor", "DROP ROLE visitor"] if kind == "postgresql" else ["DROP USER visitor@'%'"]))


SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


@SERVERS
def test_a_user_who_may_not_create_a_schema_learns_which_right_is_missing(
    kind: str, house: House, visitor: tuple[str, Callable[[], None]]
) -> None:
    url, _ = visitor
    with pytest.raises(ConfigurationError, match=rf"(?i)denied.*right to create schemas.*{PREFIX}") as refused:
        compare([url], plan("DBO-1"))
    assert "Visitor-7x" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert house.places() == []


@SERVERS
def test_the_right_that_is_asked_for_is_enough(kind: str, house: House, visitor: tuple[str, Callable[[], None]]) -> None:
    url, allow = visitor
    allow()
    (bench,) = compare([url], plan("optimistic", "DBO-1", verify=True)).benches
    assert [row.finished for row in bench.rows] == [True, True]
    assert "Visitor-7x" not in bench.url
    assert house.places() == []


# --- what is measured -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Iterator[WorkerPool]:
    with WorkerPool(3, "threads") as pool:
        yield pool


@pytest.fixture
def target(kind: str, shared_urls: Callable[[str], str]) -> Iterator[Target]:
    with scratch_target(shared_urls(kind), plan("article", workers=3)) as (own, _):
        yield replace(own, lease=600.0)


@pytest.mark.parametrize("row", [row_of("DBO-1"), PRODUCT[2]], ids=["article", "product"])
def test_the_protocol_table_has_what_the_workers_noted(row: Any, three: WorkerPool, target: Target) -> None:
    row.set_up(target, 12)
    try:
        with autocommitting(target.url) as engine:
            protocol = Protocol(target)
            protocol.make(engine)
            history = three.run(Assignment(row, target, work_seconds=0.0, clone=0.0, verify=True), 12, limit=60.0)
            written = protocol.read(engine)
            protocol.make(engine)
            assert protocol.read(engine) == ()
    finally:
        row.tear_down(target)
    with_protocol = replace(history, protocol=written)
    assert sorted(with_protocol.order()) == sorted(history.order()) == list(range(12))
    for note in history.notes:
        # Each worker's own executions stand in the order in which it noted them.
        assert [job for job, worker in written if worker == note.worker] == note.jobs
    runs = [Run.of(past, client_cpu=None, server_cpu=None) for past in (history, with_protocol)]
    assert [(run.executions, run.unique, run.duplicates) for run in runs] == [(12, 12, {})] * 2


def test_alone_the_protocol_has_the_very_same_order(kind: str, shared_urls: Callable[[str], str]) -> None:
    (bench,) = compare([shared_urls(kind)], plan("DBO-0", workers=1, verify=True)).benches
    for row in bench.rows:
        (run,) = row.runs
        assert (run.executions, run.unique, run.displacement, run.finished) == (8, 8, {0: 8}, True)


def test_jobs_that_enqueue_others_end_and_are_counted(kind: str, shared_urls: Callable[[str], str]) -> None:
    # Completed after the work, and gone before it.
    strategy = "optimistic" if kind in ("sqlite", "mariadb") else "at_most_once"
    (bench,) = compare([shared_urls(kind)], plan(strategy, jobs=30, clone=0.5, verify=True)).benches
    (run,) = bench.rows[0].runs
    assert run.finished
    assert run.added > 0
    assert (run.left, run.executions, run.unique) == (30 + run.added, 30, 30)


def test_the_facts_of_the_bench_hold_where_the_rows_run(house: House) -> None:
    """Durability and journal are printed with every table: they must be those of the tables that were measured."""
    (bench,) = compare([house.url], plan("inspecting"), more=[Inspecting("inspecting")]).benches
    seen = _FACTS[house.kind]
    assert bench.facts
    assert seen == {name: value for name, value in bench.facts.items() if name in seen}


_FACTS: dict[str, dict[str, str]] = {}


@dataclass(frozen=True)
class Inspecting(Article):
    """Asks its own connection for what the bench prints."""

    claiming: Any = field(default=row_of("DBO-1").claiming)
    removing: Any = field(default=row_of("DBO-1").removing)

    def _once(self, session: Any, claim: Callable[[], Any], remove: Callable[[int], int]) -> None:
        dialect = session.dialect
        # PostgreSQL's per-table settings are the product's; an article's row has a table of its own.
        _FACTS[dialect.names[0] if dialect.names[0] == "sqlite" else session.connection.dialect.name] = {
            name: value
            for name, value in Diagnosis.of(dialect).facts(session.connection, session.jobs).items()
            if " of jobs" not in name
        }
        super()._once(session, claim, remove)


def test_a_comparison_is_saved_and_loaded(tmp_path: Path) -> None:
    found = compare([f"sqlite:///{tmp_path}/queue.db"], plan("optimistic", "skip_locked", "DBO-1", repeat=2))
    found.save(tmp_path / "comparison.json")
    assert Comparison.load(tmp_path / "comparison.json") == found
    (bench,) = found.benches
    assert [len(row.runs) for row in bench.rows if row.refused is None] == [2, 2]
    assert all(row.rate is not None and row.rate.min > 0 for row in bench.rows if row.refused is None)
    assert found.plan["jobs"] == "8"
    assert found.plan["workers"] == "2 threads"


def test_two_databases_are_two_benches(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    found = compare(urls, plan("DBO-1"))
    assert [bench.url for bench in found.benches] == urls
    assert [len(bench.rows) for bench in found.benches] == [1, 1]


def test_a_run_that_hits_its_limit_is_not_finished_and_the_next_one_runs(tmp_path: Path) -> None:
    rows = [Dealt(((0,),), name="endless"), Dealt(((0, 1),), name="short")]
    (bench,) = compare([f"sqlite:///{tmp_path}/queue.db"], plan("endless", "short", limit=0.2, jobs=2), more=rows).benches
    assert [(row.name, row.finished, row.rate is None) for row in bench.rows] == [("endless", False, True), ("short", True, False)]
    assert bench.rows[0].configuration == {"deck": "marked"}


# --- which rows -----------------------------------------------------------------------------------------------------


def names(wanted: Sequence[str], batches: Sequence[int] = (1,), more: Sequence[Any] = ()) -> list[str]:
    return [f"{short_name(row)}/{row.batch}" for row in contestants(wanted, batches, more)]


def test_the_articles_rows_are_called_without_the_database() -> None:
    assert names(["article"]) == [f"{short_name(row)}/1" for row in ARTICLE]
    assert names(["DBP-0-1-1", "DBO-9", "DBP-noindex"]) == ["DBP-0-1-1/1", "DBO-9/1", "DBP-noindex/1"]
    assert len({short_name(row) for row in ARTICLE}) == len(ARTICLE) == 17


def test_the_products_rows_come_with_every_batch() -> None:
    assert names(["optimistic"], (1, 10, 100)) == ["optimistic/1", "optimistic/10", "optimistic/100"]
    assert len(names(["product"], (1, 10))) == 2 * len(PRODUCT)


def test_all_is_everything_once() -> None:
    peer = Dealt(name="peer")
    everything = names(["all"], (1, 10), [peer])
    assert everything == [*names(["product"], (1, 10)), *names(["article"]), "peer/1"]
    assert names(["peers"], more=[peer]) == ["peer/1"]
    assert names(["adaptive", "all", "adaptive"], (1, 10), [peer])[:2] == ["adaptive/1", "adaptive/10"]
    assert len(names(["adaptive", "all", "adaptive"], (1, 10), [peer])) == len(everything)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match="unknown strategy 'nosuch'") as refused:
        contestants(["adaptive", "nosuch"], (1,), [Dealt(name="peer")])
    for name in ("all", "article", "product", "peers", "adaptive", "at_most_once", "DBO-1", "DBP-0-1-1", "peer"):
        assert name in str(refused.value).split("known: ")[1].split(", ")


def test_an_unknown_name_is_refused_before_anything_is_made(house: House) -> None:
    with pytest.raises(ArgumentError, match="nosuch"):
        compare([house.url], plan("nosuch"))
    assert house.places() == []


# --- the plan -------------------------------------------------------------------------------------------------------

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("jobs", 0),
        ("jobs", -1),
        ("jobs", 1.5),
        ("jobs", True),
        ("workers", 0),
        ("workers", 1001),
        ("arrivals", -1.0),
        ("rate", 0.0),
        ("rate", NAN),
        ("repeat", 0),
        ("batches", ()),
        ("batches", (1, 0)),
        ("batches", (10_001,)),
        ("clone", 1.0),
        ("clone", -0.1),
        ("clone", NAN),
        ("work_ms", -1.0),
        ("work_ms", NAN),
        ("work_ms", INFINITE),
        ("lease", 0.0),
        ("lease", -1.0),
        ("limit", 0.0),
        ("limit", NAN),
        ("kind", "fibers"),
        ("strategies", ()),
        ("lease", 0.5),
        ("lease", 1.5),
    ],
)
def test_a_bad_option_is_refused_by_its_name(option: str, value: object) -> None:
    called = {"batches": "batch", "strategies": "strateg"}.get(option, option)
    with pytest.raises(ArgumentError, match=called):
        Plan(**{option: value})  # type: ignore[arg-type]


def test_runs_with_batches_have_more_jobs() -> None:
    plan_of_1000 = Plan(jobs=1000)
    assert [plan_of_1000.jobs_for(batch) for batch in (1, 9, 10, 99, 100, 1000)] == [1000, 1000, 5000, 5000, 10_000, 10_000]


def test_the_plan_has_the_names_of_the_options() -> None:
    assert Plan(work_ms=2.5, clone=0.25, verify=True).options() == {
        "strategies": "product,peers",
        "jobs": "10000",
        "workers": "10 processes",
        "repeat": "3",
        "quick": "no",
        "work-ms": "2.5",
        "clone": "0.25",
        "batch": "1,10,100",
        "verify": "yes",
        "lease": "4 s",
        "arrivals": "no",
    }
    options = Plan(arrivals=5.0, repeat=2, workers=8, quick=True).options()
    assert (options["arrivals"], options["workers"]) == ("2 × 5 s", "8 processes")
    assert options["quick"] == "yes"
