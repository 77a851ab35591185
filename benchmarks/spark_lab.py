"""Spark while it is measured: a session, what its processes use, and tables that are empty or full before each run."""

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
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.figures import Side
from benchmarks.filling import CHUNK, numbers, tidy
from queue_db import QueueDB
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import server_clock
from queue_db.dialects.clock import now_us

ROOT = Path(__file__).parents[1]
QUEUE = "bench"

#: Characters of an ordinary payload.
SIZE = 100

MEGABYTE = 2**20

_DRIVERS = ["libpostgresql-jdbc-java", "libmariadb-java"]
_JARS = ("postgresql.jar", "mariadb-java-client.jar")

# Seconds between two looks at Spark's processes. The kernel keeps their peaks, so a look only has to come before they end.
_LOOKS = 0.3


# --- what a run took -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """What a client took for a run, by its own account.

    :param cpu: processor seconds of all client processes; None where that is not known.
    :param workers: the largest Python worker at its peak, or the one process; bytes.
    :param java: the JVM at its peak, bytes.
    """

    seconds: float
    cpu: float | None
    workers: int = 0
    java: int = 0


@dataclass(frozen=True)
class Run:
    """One run of a row.

    :param lost: jobs that should be there and are not; ``duplicates``: those that are there more than once.
    :param load: of the machine when it was over: others make figures worthless.
    """

    jobs: int
    spent: Spent
    server_cpu: float | None
    lost: int = 0
    duplicates: int = 0
    load: float = field(default_factory=lambda: os.getloadavg()[0])


@dataclass
class Row:
    """One way to do it, with all its runs.

    :param work: what is measured; gets the number of jobs, and takes its own time. None: its section measures it.
    :param figure: of a run; jobs per second if not said otherwise.
    :param ours: whether it is this project's.
    :param missing: why it cannot run here.
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
        """For a bar."""
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
        """Processor time of client and server, microseconds for each job; None where it is not known."""
        jobs = sum(run.jobs for run in self.runs)

        def each(seconds: Sequence[float | None]) -> float | None:
            known = [one for one in seconds if one is not None]
            return 1e6 * sum(known) / jobs if jobs and len(known) == len(self.runs) else None

        return each([run.spent.cpu for run in self.runs]), each([run.server_cpu for run in self.runs])

    @property
    def workers(self) -> int:
        """The largest Python process of all runs, bytes."""
        return max((run.spent.workers for run in self.runs), default=0)

    @property
    def java(self) -> int:
        """The JVM's peak in all runs, bytes."""
        return max((run.spent.java for run in self.runs), default=0)


# --- Spark's processes ----------------------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[Callable[[], Spent]]:
    """Time this block and watch this process and all that it has started; after the block the function tells."""
    watch = _Watch()
    watch.begin()
    try:
        yield watch.told
    finally:
        watch.end()


class _Watch:
    def __init__(self) -> None:
        self._me = psutil.Process()
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look_often, daemon=True)
        self._workers = self._java = 0
        self._began = self._ended = 0.0
        # Processor seconds of each process, at the beginning and when it was last seen: Spark ends idle workers, and whoever has
        # lost its parent is counted by nobody.
        self._before: dict[psutil.Process, float] = {}
        self._used: dict[psutil.Process, float] = {}

    def begin(self) -> None:
        for process in self._me.children(recursive=True):
            _forget_peak(process.pid)
        self._look()
        self._before = dict(self._used)
        self._workers = self._java = 0
        self._looking.start()
        self._began = time.perf_counter()

    def end(self) -> None:
        self._ended = time.perf_counter()
        self._over.set()
        self._looking.join()
        self._look()

    def told(self) -> Spent:
        cpu = sum(used - self._before.get(process, 0.0) for process, used in self._used.items())
        return Spent(self._ended - self._began, cpu, self._workers, self._java)

    def _look_often(self) -> None:
        while not self._over.wait(_LOOKS):
            self._look()

    def _look(self) -> None:
        for process in [self._me, *self._me.children(recursive=True)]:
            with suppress(psutil.Error):
                self._used[process] = sum(process.cpu_times()[:2])
                if process.name().startswith("python") and process != self._me:
                    self._workers = max(self._workers, peak(process.pid))
                elif process.name() == "java":
                    self._java = max(self._java, peak(process.pid))


def peak(pid: int) -> int:
    """The largest resident size of a process since its peak was last forgotten, bytes; its size now where only that is known."""
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
    """Run ``function`` in a fresh Python process that does nothing else; it takes its own time."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


# --- the session ----------------------------------------------------------------------------------------------------


@dataclass
class Sessions:
    """One Spark after the other in this process's JVM: its number of slots cannot be changed while it runs."""

    folder: Path
    heap: str
    _running: Any = None
    _slots: int = 0

    def __call__(self, slots: int) -> Any:
        """The session with so many tasks at a time, our data source registered."""
        if self._running is None or self._slots != slots:
            self.stop()
            self._running, self._slots = self._start(slots), slots
        return self._running

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _start(self, slots: int) -> Any:
        _prepare_environment()
        from pyspark.sql import SparkSession

        from benchmarks.spark_nothing import Nothing
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
    """Spark for this block, with its files in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="queue-db-spark-") as folder:
        running = Sessions(Path(folder), heap)
        try:
            yield running
        finally:
            running.stop()


def drivers() -> list[str]:
    """The JDBC drivers: unpacked from the system's packages the first time."""
    from tests.servers import folders
    from tools import debian_packages

    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"jdbc-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", _DRIVERS)
    return [str((tree / "usr/share/java" / name).resolve(strict=True)) for name in _JARS]


def _prepare_environment() -> None:
    """What the JVM and its Python workers inherit."""
    if not os.environ.get("JAVA_HOME"):
        from tools import java

        os.environ["JAVA_HOME"] = java.find() or java.install()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        # Workers find here the functions that they are to run.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, paths)])


# --- the tables -----------------------------------------------------------------------------------------------------


@dataclass
class Tables:
    """The migrated tables, and all that is done to them outside the measured time."""

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
        """Name of the jobs table, in SQL."""
        return self.db.store.tables.jobs.fullname

    def empty(self) -> None:
        """Nothing in any of them; the server at rest."""
        names = [table.fullname for table in self.db.store.tables.metadata.sorted_tables]
        with autocommitting(self.url) as engine, engine.connect() as connection:
            for name in names:
                connection.exec_driver_sql(f"DELETE FROM {name}" if self.family == "sqlite" else f"TRUNCATE TABLE {name}")  # noqa: S608
        self.settle()

    def settle(self) -> None:
        """Do now what the server would do meanwhile."""
        tidy(self.db)
        if self.family == "postgresql":
            with autocommitting(self.url) as engine, engine.connect() as connection, suppress(SQLAlchemyError):
                connection.exec_driver_sql("CHECKPOINT")  # not everybody may

    def fill(self, jobs: int) -> None:
        """So many due jobs in an empty table, with payloads as :func:`payload` makes them, one microsecond apart."""
        self.empty()
        engine = self.db.database.engine
        with engine.connect() as connection:
            first = connection.execute(text(f"SELECT {now_us().compile(dialect=engine.dialect)}")).scalar_one() - 3_600_000_000
            connection.commit()
        for start in range(0, jobs, CHUNK):
            made = numbers(engine.dialect.name, min(CHUNK, jobs - start))
            number = f"(n + {start})"
            if self.family == "sqlite":
                pad = "'{\"n\":' || " + number + f' || \',"text":"{"x" * SIZE}\''
                value = f"substr({pad}, 1, {SIZE - 2}) || '\"}}'"
            else:
                value = f"""concat(rpad(concat('{{"n":', {number}, ',"text":"'), {SIZE - 2}, 'x'), '"}}')"""
            statement = (
                f"INSERT INTO {self.jobs} (queue, payload, available_at) "  # noqa: S608 - names and numbers of our own
                f"SELECT '{QUEUE}', {value}, {first} + {number} FROM ({made}) made"
            )
            with engine.begin() as connection:
                connection.exec_driver_sql(statement.replace("%", "%%"))
        self.settle()

    def count(self, distinct: bool = True) -> tuple[int, int]:
        """Jobs in the table, and different payloads among them."""
        what = "count(DISTINCT payload)" if distinct else "count(*)"
        (row,) = self.ask(f"SELECT count(*), {what} FROM {self.jobs} WHERE queue = '{QUEUE}'")  # noqa: S608
        return int(row[0]), int(row[1])

    def bounds(self) -> tuple[int, int]:
        """Lowest and highest id."""
        (row,) = self.ask(f"SELECT min(id), max(id) FROM {self.jobs}")  # noqa: S608
        return int(row[0] or 0), int(row[1] or 0)

    def rest(self) -> int:
        """Jobs that are anywhere still: waiting, claimed, or staged."""
        (row,) = self.ask(f"SELECT count(*) FROM {self.jobs}")  # noqa: S608
        return int(row[0]) + self.held()

    def held(self) -> int:
        """Jobs that a stream has claimed and not completed."""
        (row,) = self.ask(f"SELECT count(*) FROM {self.db.store.tables.held.fullname}")  # noqa: S608
        return int(row[0])

    def ask(self, query: str) -> Sequence[Any]:
        """Rows of a query."""
        with autocommitting(self.url) as engine, engine.connect() as connection:
            return connection.exec_driver_sql(query).all()

    @contextmanager
    def server(self) -> Iterator[Callable[[], float | None]]:
        """The function tells how many processor seconds the server has used since the block began."""
        with autocommitting(self.url) as engine:
            clock = server_clock(engine, self.db.database.dialect)
            before = clock() if clock is not None else None

            def used() -> float | None:
                now = clock() if clock is not None else None
                return None if now is None or before is None else now - before

            yield used


def payload(number: int) -> str:
    """JSON of :data:`SIZE` characters, different for each number."""
    return f'{{"n":{number},"text":"'.ljust(SIZE - 2, "x") + '"}'


def new_folder(parent: Path, name: str) -> Path:
    """An empty folder of this name; what was there is gone."""
    folder = parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
