"""Spark during a measurement: its session, the resources of its processes, and tables that are empty or filled before each run."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text, update
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.figures import Side
from benchmarks.filling import CHUNK, numbers, tidy
from queue_db import QueueDB
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import server_clock
from queue_db.dialects.clock import now_us
from queue_db.feeds.tables import feed_tables
from queue_db.spark.tables import spark_tables

ROOT = Path(__file__).parents[2]
QUEUE = "bench"

#: Characters of an ordinary payload.
SIZE = 100

MEGABYTE = 2**20

_DRIVERS = ["libpostgresql-jdbc-java", "libmariadb-java"]
_JARS = ("postgresql.jar", "mariadb-java-client.jar")

# Sampling interval of Spark's processes, seconds. The kernel keeps their peaks, so one sample before they end is sufficient.
_LOOKS = 0.3


# --- resources of a run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """The resources that a client used for a run.

    :param cpu: processor seconds of all client processes; None if unknown.
    :param workers: peak memory of the largest Python worker, or of the single process; bytes.
    :param java: peak memory of the JVM, bytes.
    """

    seconds: float
    cpu: float | None
    workers: int = 0
    java: int = 0


@dataclass(frozen=True)
class Run:
    """One run of a row.

    :param lost: missing jobs; ``duplicates``: jobs that occur more than once.
    :param load: load of the machine at the end: other processes make the figures useless.
    """

    jobs: int
    spent: Spent
    server_cpu: float | None
    lost: int = 0
    duplicates: int = 0
    load: float = field(default_factory=lambda: os.getloadavg()[0])


@dataclass
class Row:
    """One way to perform a task, with all its runs.

    :param work: the measured function; gets the number of jobs and measures its own time. None: its section measures it.
    :param figure: computes the figure of a run; by default jobs per second.
    :param ours: whether it belongs to this project.
    :param missing: why it cannot run on this machine.
    """

    name: str
    work: Callable[[int], Spent] | None = None
    ours: bool = False
    missing: str | None = None
    figure: Callable[[Run], float] = lambda run: run.jobs / run.spent.seconds
    runs: list[Run] = field(default_factory=list)
    failed: str | None = None
    notes: list[str] = field(default_factory=list)

    def side(self, unit: str) -> Side:
        """Return the side of a bar."""
        client, server = self.processor()
        return Side(
            self.name,
            unit,
            [self.figure(run) for run in self.runs],
            errors={"lost": sum(run.lost for run in self.runs), "error": int(self.failed is not None)},
            duplicates=sum(run.duplicates for run in self.runs),
            finished=self.failed is None,
            client_cpu=client,
            server_cpu=server,
        )

    def processor(self) -> tuple[float | None, float | None]:
        """Processor time of client and server, microseconds per job; None if unknown."""
        jobs = sum(run.jobs for run in self.runs)

        def each(seconds: Sequence[float | None]) -> float | None:
            known = [one for one in seconds if one is not None]
            return 1e6 * sum(known) / jobs if jobs and len(known) == len(self.runs) else None

        return each([run.spent.cpu for run in self.runs]), each([run.server_cpu for run in self.runs])

    @property
    def workers(self) -> int:
        """Peak memory of the largest Python process of all runs, bytes."""
        return max((run.spent.workers for run in self.runs), default=0)

    @property
    def java(self) -> int:
        """Peak memory of the JVM in all runs, bytes."""
        return max((run.spent.java for run in self.runs), default=0)


# --- Spark's processes ----------------------------------------------------------------------------------------------


@contextmanager
def measured() -> Iterator[Callable[[], Spent]]:
    """Measure the ``with`` block, this process and its children; afterwards the yielded function returns the result."""
    watch = _Watch()
    watch.begin()
    try:
        yield watch.spent
    finally:
        watch.end()


class _Watch:
    def __init__(self) -> None:
        self._me = psutil.Process()
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look_often, daemon=True)
        self._workers = self._java = 0
        self._began = self._ended = 0.0
        # Processor seconds of each process at the first and the last sample: Spark ends idle workers, and the kernel does not count
        # processes without a parent.
        self._before: dict[psutil.Process, float] = {}
        self._used: dict[psutil.Process, float] = {}

    def begin(self) -> None:
        for process in self._me.children(recursive=True):
            _forget_peak(process.pid)
        self._sample()
        self._before = dict(self._used)
        self._workers = self._java = 0
        self._looking.start()
        self._began = time.perf_counter()

    def end(self) -> None:
        self._ended = time.perf_counter()
        self._over.set()
        self._looking.join()
        self._sample()

    def spent(self) -> Spent:
        cpu = sum(used - self._before.get(process, 0.0) for process, used in self._used.items())
        return Spent(self._ended - self._began, cpu, self._workers, self._java)

    def _look_often(self) -> None:
        while not self._over.wait(_LOOKS):
            self._sample()

    def _sample(self) -> None:
        for process in [self._me, *self._me.children(recursive=True)]:
            with suppress(psutil.Error):
                self._used[process] = sum(process.cpu_times()[:2])
                if process.name().startswith("python") and process != self._me:
                    self._workers = max(self._workers, peak(process.pid))
                elif process.name() == "java":
                    self._java = max(self._java, peak(process.pid))


def peak(pid: int) -> int:
    """Return the peak memory of a process since the last reset, bytes; its current memory if the peak is unknown."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def _forget_peak(pid: int) -> None:
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def alone(function: Callable[..., Spent], *arguments: Any) -> Spent:
    """Run ``function``, which measures its own time, in a new Python process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


# --- the session ----------------------------------------------------------------------------------------------------


@dataclass
class Sessions:
    """Restarts Spark in this process's JVM: its number of slots cannot be changed at run time."""

    folder: Path
    heap: str
    _running: Any = None
    _slots: int = 0

    def __call__(self, slots: int) -> Any:
        """Return a session with this number of slots and the data source registered."""
        if self._running is None or self._slots != slots:
            self.stop()
            self._running, self._slots = self._start(slots), slots
        return self._running

    def stop(self) -> None:
        """Stop Spark."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _start(self, slots: int) -> Any:
        _prepare_environment()
        from pyspark.sql import SparkSession

        from benchmarks.spark.nothing import Nothing
        from queue_db.spark import QueueDataSource

        jars = drivers()
        settings = {
            "spark.driver.memory": self.heap,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }
        builder = SparkSession.builder.appName("queue_db benchmark").master(f"local[{slots}]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        for source in (QueueDataSource, Nothing):
            spark.dataSource.register(source)
        return spark


@contextmanager
def sessions(heap: str) -> Iterator[Sessions]:
    """Yield Spark with its files in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="queue-db-spark-") as folder:
        running = Sessions(Path(folder), heap)
        try:
            yield running
        finally:
            running.stop()


def drivers() -> list[str]:
    """Return the JDBC drivers, unpacked from Debian packages at the first call."""
    from tests.servers import folders
    from tools import debian_packages

    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"jdbc-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", _DRIVERS)
    return [str((tree / "usr/share/java" / name).resolve(strict=True)) for name in _JARS]


def _prepare_environment() -> None:
    """Set the environment that the JVM and its Python workers inherit."""
    if not os.environ.get("JAVA_HOME"):
        from tools import java

        os.environ["JAVA_HOME"] = java.find() or java.install()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        # Workers import functions from here.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, paths)])


# --- the tables -----------------------------------------------------------------------------------------------------


@dataclass
class Tables:
    """The migrated tables, and their preparation outside the measured time."""

    db: QueueDB
    url: str = field(repr=False)
    schema: str | None

    @property
    def family(self) -> str:
        """``postgresql``, ``mysql`` (MariaDB too) or ``sqlite``."""
        name = self.db.database.engine.dialect.name
        return "mysql" if name == "mariadb" else name

    @property
    def jobs(self) -> str:
        """Name of the jobs table in SQL."""
        return self.db.store.tables.jobs.fullname

    def empty(self) -> None:
        """Empty all tables and let the server finish its maintenance."""
        names = [table.fullname for table in self.db.store.tables.metadata.sorted_tables]
        with autocommitting(self.url) as engine, engine.connect() as connection:
            for name in names:
                connection.exec_driver_sql(f"DELETE FROM {name}" if self.family == "sqlite" else f"TRUNCATE TABLE {name}")  # noqa: S608
        self.settle()

    def settle(self) -> None:
        """Run the server's maintenance now."""
        tidy(self.db)
        if self.family == "postgresql":
            with autocommitting(self.url) as engine, engine.connect() as connection, suppress(SQLAlchemyError):
                connection.exec_driver_sql("CHECKPOINT")  # needs a right

    def fill(self, jobs: int) -> None:
        """Insert ``count`` due jobs with payloads of :func:`payload` into an empty table, one microsecond apart."""
        self.empty()
        engine = self.db.database.engine
        with engine.connect() as connection:
            first = connection.execute(text(f"SELECT {now_us().compile(dialect=engine.dialect)}")).scalar_one() - 3_600_000_000
            connection.commit()
        self._generate(jobs, f"{self.jobs} (queue, payload, available_at)", f"'{QUEUE}', {{value}}, {first} + {{number}}")
        self.settle()

    def fill_feed(self, messages: int) -> None:
        """Insert messages with the same payloads into an empty feed."""
        self.empty()
        self.db.feeds.delete(QUEUE)
        self.db.feeds.set(QUEUE, ordering="counter", keep_for=0)
        tables = feed_tables(self.db.store.tables)
        ((feed,),) = self.ask(f"SELECT id FROM {tables.feeds.fullname} WHERE name = '{QUEUE}'")  # noqa: S608
        self._generate(messages, f"{self.messages} (feed, seq, kind, payload)", f"{feed}, {{number}} + 1, 'default', {{value}}")
        with self.db.database.engine.begin() as connection:
            connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=messages + 1))
        tidy(self.db, tables.messages)
        self.settle()

    @property
    def messages(self) -> str:
        """Name of the table of messages in SQL."""
        return feed_tables(self.db.store.tables).messages.fullname

    def _generate(self, rows: int, into: str, values: str) -> None:
        """Let the server insert rows.

        :param values: SQL with ``{number}`` from 0, and ``{value}``, its payload.
        """
        engine = self.db.database.engine
        for start in range(0, rows, CHUNK):
            made = numbers(engine.dialect.name, min(CHUNK, rows - start))
            number = f"(n + {start})"
            if self.family == "sqlite":
                pad = "'{\"n\":' || " + number + f' || \',"text":"{"x" * SIZE}\''
                value = f"substr({pad}, 1, {SIZE - 2}) || '\"}}'"
            else:
                value = f"""concat(rpad(concat('{{"n":', {number}, ',"text":"'), {SIZE - 2}, 'x'), '"}}')"""
            selected = values.format(number=number, value=value)
            statement = f"INSERT INTO {into} SELECT {selected} FROM ({made}) made"  # noqa: S608 - names and numbers of our own
            with engine.begin() as connection:
                connection.exec_driver_sql(statement.replace("%", "%%"))

    def count(self, distinct: bool = True) -> tuple[int, int]:
        """Return the number of jobs in the table and of different payloads."""
        what = "count(DISTINCT payload)" if distinct else "count(*)"
        (row,) = self.ask(f"SELECT count(*), {what} FROM {self.jobs} WHERE queue = '{QUEUE}'")  # noqa: S608
        return int(row[0]), int(row[1])

    def bounds(self) -> tuple[int, int]:
        """Return the lowest and the highest id."""
        (row,) = self.ask(f"SELECT min(id), max(id) FROM {self.jobs}")  # noqa: S608
        return int(row[0] or 0), int(row[1] or 0)

    def rest(self) -> int:
        """Return the number of jobs that are waiting, claimed or staged."""
        (row,) = self.ask(f"SELECT count(*) FROM {self.jobs}")  # noqa: S608
        return int(row[0]) + self.held()

    def held(self) -> int:
        """Return the number of jobs that a stream has claimed and not completed."""
        (row,) = self.ask(f"SELECT count(*) FROM {spark_tables(self.db.store.tables).held.fullname}")  # noqa: S608
        return int(row[0])

    def ask(self, query: str) -> Sequence[Any]:
        """Return the rows of a query."""
        with autocommitting(self.url) as engine, engine.connect() as connection:
            return connection.exec_driver_sql(query).all()

    @contextmanager
    def server(self) -> Iterator[Callable[[], float | None]]:
        """Yield a function that returns the server's processor seconds since the start of the ``with`` block."""
        with autocommitting(self.url) as engine:
            clock = server_clock(engine, self.db.database.dialect)
            before = clock() if clock is not None else None

            def used() -> float | None:
                now = clock() if clock is not None else None
                return None if now is None or before is None else now - before

            yield used


def payload(number: int) -> str:
    """Return JSON of :data:`SIZE` characters, different for each number."""
    return f'{{"n":{number},"text":"'.ljust(SIZE - 2, "x") + '"}'


def new_folder(parent: Path, name: str) -> Path:
    """Create an empty folder of this name, replacing an old one."""
    folder = parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
