"""Databases of the suite: every test that uses ``kind``, ``url``, ``db`` or ``queue`` runs on all four.

Each test process starts its servers once (``tests/servers``). Tests share one migrated database per kind and use different queue
names. ``fresh_url`` is a separate database.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, make_url
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from queue_db import Queue, QueueDB
from queue_db.store import LowWaterMarks
from queue_db.testing import SettableClock
from queue_db.testing.lone_changes import lone_changes
from queue_db.verbs import claim_round
from tests import lean_java, parts
from tests.databases import FILES, KINDS
from tests.handles import Handles
from tests.known_differences import DIFFERENCES
from tests.parts import Part
from tests.servers import Server, ServerFailed, ServerMissing, provide

#: Fixtures that tests of several folders use.
pytest_plugins = ("tests.aio.harness", "tests.cli.harness", "tests.plans.harness", "tests.worker.harness")

#: A session of Spark takes long to start and to warm up: the files of each line share one, in one process.
SPARK_SESSIONS = (
    (
        "streams",
        "stream_ends",
        "drain",
        "jobs",
        "feeds",
        "source",
        "enqueue",
        "python",
        "queues",
        "sql",
        "drain_elsewhere",
        "docs",
        "demo",
    ),
)
_SESSION_OF = {f"tests/spark/test_spark_{name}.py": number for number, names in enumerate(SPARK_SESSIONS) for name in names}

#: The tests of these files on one database run in one process.
BY_DATABASE = ("tests/conformance/test_every_combination.py",)
_DATABASE_OF = re.compile(rf"[\[-]({'|'.join(KINDS)})[\]-]")

#: Each other file runs in one process. The longest go first: otherwise one of them runs alone at the end.
LONGEST = (
    *_SESSION_OF,
    "tests/spark/test_spark_cluster.py",
    "tests/spark/test_spark_kills.py",
    "tests/conformance/test_every_combination.py",
    "tests/aio/test_conformance_in_greenlets.py",
    "tests/rehearsal/test_rehearsal.py",
    "tests/compare/test_comparison.py",
    "tests/compare/test_benchmarks.py",
    "tests/faults/test_interrupts_at_every_line.py",
    "tests/spark/test_jdbc.py",
    "tests/properties/test_interleavings.py",
    "tests/migrations/test_migrate.py",
    "tests/worker/test_worker_storms.py",
    "tests/worker/test_worker_supervisor.py",
    "tests/races/test_settle_loses.py",
    "tests/worker/test_worker_executor.py",
    "tests/sql/test_golden_files.py",
    "tests/faults/test_failover.py",
    "tests/docs/test_docs.py",
    "tests/cli/test_cli_commands.py",
    "tests/service/test_service_pages.py",
    "tests/test_servers.py",
    "tests/crash/test_killed_workers.py",
)

#: Tests that count or interrupt each call of the package: nothing may stand between its functions.
WALKS_FRAMES = (
    "tests/sql/test_calls.py",
    "tests/sql/test_seam.py",
    "tests/worker/test_worker_calls.py",
    "tests/faults/test_interrupts_at_every_line.py",
    "tests/faults/test_interrupts.py",
    "tests/faults/test_signal_handlers.py",
)

# Collecting tests makes hardly any garbage. It is enabled before the first test.
gc.disable()

_SERVERS: dict[tuple[str, ...], Server] = {}
_FAILED: dict[tuple[str, ...], ServerMissing | ServerFailed] = {}
_DESCRIBED: list[str] = []
_LEFT = pytest.StashKey[dict[str, int]]()


@event.listens_for(Pool, "checkout")
def _do_not_wait_for_the_disk(connection: object, record: ConnectionPoolEntry, _: object) -> None:
    """As the servers of the tests, SQLite does not sync: a commit of 4 ms (20 ms without WAL, on a busy disk) takes 0.02 ms.

    A commit survives the end of its process, but not a power failure.
    """
    if isinstance(connection, sqlite3.Connection) and not record.info.get("relaxed"):
        connection.execute("PRAGMA synchronous = OFF")
        record.info["relaxed"] = True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        type=Part,
        choices=list(Part),
        default=None,
        help="the part of the suite to run (tests/parts.py); without it test and rest",
    )
    parser.addoption(
        "--compare-report",
        metavar="DIR",
        type=Path,
        default=None,
        help="write the report of the comparison that tests/compare runs on each database: a page, plots and results.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    lean_java.everywhere()
    for mark in parts.MARKS.values():
        config.addinivalue_line("markers", mark)
    # Started by nohup this process ignores hang-ups, and every program that tests start would inherit that. A handler that does
    # nothing is the same here and is not inherited.
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda number, frame: None)
        # In the background of a shell it ignores Ctrl-C, which tests send to themselves and to programs.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # A mark without a reason is an error of its file here, also where several processes run.
    parts.marked_part(metafunc.definition)
    if "kind" in metafunc.fixturenames and not any(
        "kind" in str(mark.args[0]).replace(" ", "").split(",") for mark in metafunc.definition.iter_markers("parametrize")
    ):
        metafunc.parametrize("kind", KINDS, scope="session")


def unit_of(nodeid: str) -> str:
    """The tests that one process runs together: a file, the files that share a Spark session, or one database's part of a file."""
    path = nodeid.partition("::")[0]
    if path in _SESSION_OF:
        return f"Spark session {_SESSION_OF[path]}"
    if path in BY_DATABASE and (found := _DATABASE_OF.search(nodeid)):
        return f"{path} on {found[1]}"
    return path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByUnit(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return ByUnit(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    # Processes are handed tests by their names.
    if doubled := [nodeid for nodeid, number in Counter(item.nodeid for item in items).items() if number > 1]:
        raise pytest.UsageError(f"Tests with one name, of which only one would run: {', '.join(doubled[:5])}")
    databases = parts.databases_of(items)
    yield  # -k and -m choose
    collected = list(items)
    items[:], config.stash[_LEFT] = parts.divided(collected, databases, config.getoption("--part"))
    runs = set(items)
    config.hook.pytest_deselected(items=[item for item in collected if item not in runs])
    rank = {path: number for number, path in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONGEST)))


def pytest_collection_finish() -> None:
    # The tests and their reports stay until the end: a collection of garbage need not look at all of them again and again, which
    # took a fifth of the processor's time. A test that waits for garbage collects it.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.enable()


def server_of(kind: str, *options: str) -> Server:
    """The private server of this kind, started at its first use; with ``options`` another one.

    It does not wait for its disk: a test that kills a server starts its own with ``provide``.
    """
    key = (kind, *options)
    if key not in _SERVERS:
        if key in _FAILED:
            raise _FAILED[key]
        try:
            _SERVERS[key] = provide(kind, options=list(options), durable=False)
        except (ServerMissing, ServerFailed) as error:
            _FAILED[key] = error  # a start may take a minute to fail: not again for each test
            raise
    return _SERVERS[key]


MigratedUrls = Callable[[str], str]


def _migrated_urls(factory: pytest.TempPathFactory) -> MigratedUrls:
    @cache
    def url_of(kind: str) -> str:
        url = f"{kind}:///{factory.mktemp(kind)}/queue.db" if kind in FILES else server_of(kind).create_database()
        with QueueDB(url) as db:
            db.migrate()
        return url

    return url_of


@pytest.fixture(scope="session")
def shared_urls(tmp_path_factory: pytest.TempPathFactory) -> MigratedUrls:
    """The URL of the migrated database of a kind that all tests of this process share."""
    return _migrated_urls(tmp_path_factory)


@pytest.fixture(scope="session")
def unused_urls(tmp_path_factory: pytest.TempPathFactory) -> MigratedUrls:
    """The URL of a migrated database that nobody uses: a copy of it is there sooner than another one is migrated."""
    return _migrated_urls(tmp_path_factory)


@pytest.fixture
def url(kind: str, shared_urls: MigratedUrls) -> Iterator[str]:
    """A migrated database, shared with other tests: use unique queue names."""
    shared = shared_urls(kind)
    yield shared
    if kind in FILES:
        _check_that_it_can_be_written(shared)


def _check_that_it_can_be_written(url: str) -> None:
    """Fail the test that leaves a transaction open: every later test would wait for its lock."""
    file = str(make_url(url).database)
    with closing(sqlite3.connect(file, isolation_level=None, timeout=10.0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            pytest.fail(f"{file} cannot be written after the test: {error}; it is open in {_users_of(file)}", pytrace=False)


def _users_of(file: str) -> list[str]:
    """The processes that have the file open: id and command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.path.realpath(opened) == file for opened in (process / "fd").iterdir()):
                found.append(f"{process.name} {(process / 'cmdline').read_text().replace(chr(0), ' ')[:200]}")
    return found


@pytest.fixture
def fresh_url(kind: str, tmp_path: Path) -> Iterator[str]:
    """A separate, empty database, not migrated."""
    if kind in FILES:
        yield f"{kind}:///{tmp_path}/fresh.db"
        return
    server = server_of(kind)
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def own_url(kind: str, tmp_path: Path, unused_urls: MigratedUrls) -> Iterator[str]:
    """A separate, migrated database."""
    if kind in FILES:
        shutil.copy(str(make_url(unused_urls(kind)).database), tmp_path / "own.db")
        yield f"{kind}:///{tmp_path}/own.db"
        return
    server = server_of(kind)
    if kind == "postgresql":
        url = server.create_database(str(make_url(unused_urls(kind)).database))
    else:
        url = server.create_database()
        with QueueDB(url) as db:
            db.migrate()
    yield url
    server.drop_database(url)


@pytest.fixture(autouse=True)
def no_lone_changes(request: pytest.FixtureRequest) -> Iterator[None]:
    """As in the conformance suite: ``tx.begin()`` comes before several changes of one transaction."""
    if unit_of(request.node.nodeid) in WALKS_FRAMES:
        yield
        return
    with lone_changes() as found:
        yield
    assert not found, "\n".join(["tx.begin() is missing before these statements of one transaction:", *found])


@pytest.fixture
def name() -> str:
    """A queue name that no other test uses."""
    return f"q-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def open_db(url: str) -> Iterator[Callable[..., QueueDB]]:
    """Open the shared database, any number of times: ``open_db(strategy="skip_locked")``; closed after the test."""
    opened: list[QueueDB] = []

    def open_it(**options: object) -> QueueDB:
        opened.append(QueueDB(url, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_it
    for db in opened:
        db.close()


@pytest.fixture(scope="session")
def handles() -> Iterator[Handles]:
    opened = Handles()
    yield opened
    opened.close()


@pytest.fixture
def clock(handles: Handles) -> SettableClock:
    handles.clock.set(datetime.now(UTC))
    return handles.clock


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """For who counts the statements of claims: none begins at the start of its queue again, as one does when a second has passed,
    nor looks again, after a second, for the jobs of a claim whose answer was lost.
    """
    monkeypatch.setattr(LowWaterMarks, "rescan_due", lambda _: False)
    monkeypatch.setattr(claim_round, "LOOKS", claim_round.LOOKS[:1])


@pytest.fixture
def db(open_db: Callable[..., QueueDB]) -> QueueDB:
    """The shared database with the default strategy and removal."""
    return open_db()


@pytest.fixture
def queue(db: QueueDB, name: str) -> Queue:
    """An empty queue."""
    return db.queue(name)


@pytest.fixture
def differs(kind: str) -> Callable[[str], None]:
    """Skip for a listed reason: ``differs("no row locks")`` skips where ``tests/known_differences.py`` says so."""

    def skip_if_listed(reason: str) -> None:
        kinds, why = DIFFERENCES[reason]
        if kind in kinds:
            pytest.skip(f"{kind}: {reason}: {why}")

    return skip_if_listed


def pytest_sessionfinish(session: pytest.Session) -> None:
    described = [server.describe() for server in _SERVERS.values()]
    if hasattr(session.config, "workeroutput"):  # one of several test processes: the controller prints the summary
        session.config.workeroutput["servers"] = described
        session.config.workeroutput["left"] = session.config.stash.get(_LEFT, {})
    else:
        _DESCRIBED.extend(described)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    _DESCRIBED.extend(output.get("servers", ()))
    node.config.stash[_LEFT] = output.get("left", {})  # each process has collected the same


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _say_where_the_time_went(terminalreporter)
    _say_what_is_left(terminalreporter)
    if _DESCRIBED:
        terminalreporter.section("databases")
        for described in sorted(_DESCRIBED):
            terminalreporter.write_line(described)
    skipped = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        terminalreporter.section("known differences")
        for reason, count in sorted(skipped.items()):
            terminalreporter.write_line(f"{count:4d}  {reason}")
        if terminalreporter.config.getoption("--part") is not Part.CHECK:  # it has one database
            for function in parts.only_skipped(terminalreporter.stats):
                terminalreporter.write_line(f"Skipped wherever this run had it: {function}")


def _say_where_the_time_went(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: Counter[str] = Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports if hasattr(one, "duration")):
        seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("slowest files")
        for path, duration in seconds.most_common(10):
            terminalreporter.write_line(f"{duration:7.1f} s  {path}")


def _say_what_is_left(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter.config.stash.get(_LEFT, {})
    ran = terminalreporter.config.option.collectonly or any(
        isinstance(report, pytest.TestReport) for reports in terminalreporter.stats.values() for report in reports
    )
    for part in (Part.TEST, Part.REST, *parts.APART):
        if number := sum(count for name, count in left.items() if name.startswith(part)):
            terminalreporter.section(f"left to make {part.command}: {number:,} tests")
            for line in parts.table_of(left, part):
                terminalreporter.write_line(line)
            if not ran:
                terminalreporter.write_line(
                    f"No chosen test was in this run's part. Choose make {part.command}, or pytest --part all."
                )
