"""Spark as others run it: a standalone cluster and a Connect server, in processes of their own and with a Python of their own.

    with standalone(tmp_path, bare_python(tmp_path)) as cluster:
        subprocess.run([sys.executable, "client.py"], env=cluster.environment)  # it calls only SparkSession.builder.getOrCreate()

    with connect_server(tmp_path, bare_python(tmp_path), {}) as url:
        subprocess.run([sys.executable, "client.py"], env=os.environ | {"SPARK_REMOTE": url})

JAVA_HOME must be set (:func:`set_java_home`). A client must be another process: a process has one session, and in the suite that
is a local one. All is on loopback, with ports that the system chooses.
"""

import itertools
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from tests.lean_java import LEAN
from tests.servers import ServerFailed, folders

START_LIMIT = 300.0
END_LIMIT = 20.0
MARK = "QUEUE_DB_SPARK"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
SPARK_HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]


def set_java_home() -> str:
    """Set JAVA_HOME in the environment, and return it: the Java that is there; found, or installed, as `make` does."""
    if not os.environ.get("JAVA_HOME"):
        found = subprocess.run([sys.executable, ROOT / "tools" / "java.py"], capture_output=True, text=True, check=True)
        os.environ["JAVA_HOME"] = found.stdout.strip()
    return os.environ["JAVA_HOME"]


class Cluster:
    """A standalone cluster of a master and one worker for each host, and what there is to see of it and do to it."""

    def __init__(self, family: "_Family", url: str, python: Path, hosts: Sequence[str], worker: Sequence[str]) -> None:
        self._family = family
        self._worker = worker
        self._numbers = itertools.count()
        self._workers: dict[str, str] = {}  # host → name of the process
        self.url = url
        self.options = {
            "spark.master": url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": LEAN,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": family.java_options,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # No task starts before every executor is there. The ratio is of the requested cores, so these are set.
            "spark.cores.max": str(len(hosts)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }
        settings = [word for option in self.options.items() for word in ("--conf", "=".join(option))]
        # The driver decides which Python the executors run.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))} | {
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": shlex.join([*settings, "pyspark-shell"]),
            "SPARK_CONF_DIR": str(family.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(family.folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def executors(self) -> list[int]:
        """Return the pids of the executors (JVMs) that are alive."""
        return [process.pid for process in self._executors()]

    def python_workers(self) -> dict[int, int]:
        """Return the pids of the Python processes that run tasks, or wait for the next one, each with that of its executor."""
        found = {}
        for executor in self._executors():
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                for daemon in executor.children():
                    for worker in daemon.children():
                        if worker.status() != psutil.STATUS_ZOMBIE:
                            found[worker.pid] = executor.pid
        return found

    def kill_executor(self, pid: int) -> None:
        """Kill an executor (SIGKILL) and return when it is gone. The master will start another in its place."""
        if pid not in self.executors():
            raise ValueError(f"No executor that is alive has the pid {pid}.")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in self.executors(), END_LIMIT, lambda: f"Executor {pid} does not end.")

    def start_worker(self, host: str) -> None:
        """Start a worker with one core on ``host``, and return when the master has it."""
        family, number = self._family, next(self._numbers)
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(family.folder / f"work-{number}")]
        command = [*self._worker, "--host", host, "--port", "0", "--webui-port", "0", *size, self.url]
        family.start(f"worker-{number}", command, family.lean | {"SPARK_LOCAL_IP": host})
        self._workers[host] = f"worker-{number}"

    def wait_for_workers(self) -> None:
        """Return when the master has registered all workers that were started."""
        count = len(list(self._family.folder.glob("worker-*.log")))
        self._family.wait_for(self._family.folder / "master.log", r"Registering worker \S+", count)

    def kill_worker(self, host: str) -> None:
        """Kill the worker on ``host``, its executors and their Python processes (SIGKILL), and return when they are gone."""
        self._family.kill(self._workers.pop(host))

    def logs(self) -> str:
        """Return what the master, the workers and the executors have written, each after the name of its file."""
        return self._family.logs()

    def _executors(self) -> list[psutil.Process]:
        found = []
        for process in self._family.alive():
            with suppress(psutil.NoSuchProcess):
                if EXECUTOR in process.cmdline():
                    found.append(process)
        return found


#: What ``spark-class`` gets to start a master and a worker.
MASTER = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1")
WORKER = ("org.apache.spark.deploy.worker.Worker",)


@contextmanager
def standalone(
    folder: Path,
    python: Path,
    hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2"),
    *,
    master: Sequence[str] = MASTER,
    worker: Sequence[str] = WORKER,
) -> Iterator[Cluster]:
    """Run a standalone cluster: a worker with one core on each host, whose executors run ``python``.

    Two hosts, because Spark runs the copy of a slow task (speculation) only on a host where the task is not running yet. Linux
    has all of 127.0.0.0/8; elsewhere the second address may have to be made first, or one host must do.
    """
    with _family(folder, python) as family:
        ports = ["--port", "0", "--webui-port", "0"]
        # Its other service would listen on a port that is always the same.
        no_rest = {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
        log = family.start("master", [*master, *ports], family.lean | no_rest)
        url = family.wait_for(log, r"Starting Spark master at (spark://\S+)\s")[0]
        family.wait_for(log, "New state: ALIVE")  # it would send a worker away for ten seconds before that
        cluster = Cluster(family, url, python, hosts, worker)
        for host in hosts:
            cluster.start_worker(host)
        cluster.wait_for_workers()
        yield cluster


@contextmanager
def connect_server(folder: Path, python: Path, conf: Mapping[str, str]) -> Iterator[str]:
    """Run a Connect server with two slots whose tasks run ``python``, and yield the URL for its clients."""
    options = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    with _family(folder, python) as family:
        options["spark.driver.extraJavaOptions"] = family.java_options
        options["spark.sql.warehouse.dir"] = str(family.folder / "warehouse")
        settings = [word for option in (options | conf).items() for word in ("--conf", "=".join(option))]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *settings, "spark-internal"]
        log = family.start("connect", ["org.apache.spark.deploy.SparkSubmit", *server], {})
        # It logs this when its port is open.
        yield "sc://" + family.wait_for(log, r"Spark Connect server started at: (127\.0\.0\.1:\d+)\s")[0]


def bare_python(folder: Path) -> Path:
    """Make an environment with all that the running one has except queue_db, and return its Python."""
    home = folder / "bare"
    venv.EnvBuilder(symlinks=True).create(home)
    python = home / "bin" / "python"
    answer = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    inside = Path(answer.stdout.strip())
    for ours in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(ours).iterdir():
            # An editable install is a .pth file, and an ordinary one a folder; both are named after the package.
            if "queue_db" not in entry.name.replace("-", "_") and not (inside / entry.name).exists():
                (inside / entry.name).symlink_to(entry)
    return python


class _Family:
    """The processes that were started here, with all that those start in turn: known by a mark in their environment."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.java_options = f"{LEAN} -Djava.io.tmpdir={folder / 'local'}"
        #: Environment of the master and the workers.
        self.lean = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": self.java_options}
        self._mark = secrets.token_hex(16)
        # No setting of the suite's own session or of the person at the keyboard: not PYTHONPATH either, which leads to queue_db.
        self._environment = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "JAVA_HOME": os.environ["JAVA_HOME"],
            "PYSPARK_PYTHON": str(python),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": LEAN,
            MARK: self._mark,
        }
        self._started: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Path:
        """Start one of Spark's classes and return the file of its log."""
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", *command],
                cwd=self.folder,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches the tests, and Spark only through them
            )
        note = folders.new_run_folder("spark")  # a later run ends it if this one is killed
        self._started[name] = process, note
        folders.note_process(note, process.pid)
        return path

    def wait_for(self, log: Path, pattern: str, count: int = 1) -> list[str]:
        """Return the matches in a log as soon as there are ``count``."""
        found: list[str] = []

        def is_there() -> bool:
            if any(process.poll() is not None for process, _ in self._started.values()):
                raise ServerFailed(f"One of Spark's processes has ended:\n{self.logs()}")
            found[:] = re.findall(pattern, log.read_text(errors="replace"))
            return len(found) >= count

        until(is_there, START_LIMIT, lambda: f"{log.name} does not have {pattern!r} {count} times:\n{self.logs()}")
        return found

    def kill(self, name: str) -> None:
        """Kill one process, and all that it has started."""
        process, note = self._started.pop(name)
        ours = psutil.Process(process.pid)
        doomed = [ours, *ours.children(recursive=True)]
        for one in doomed:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
        if psutil.wait_procs(doomed, END_LIMIT)[1]:
            raise ServerFailed(f"{name} or an executor of it does not end.")
        shutil.rmtree(note, ignore_errors=True)

    def alive(self) -> list[psutil.Process]:
        """Return the processes that are alive, oldest pid first."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it ended meanwhile, or belongs to another user
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found

    def end(self) -> None:
        """Kill them all, also what comes while we do it and what has lost its parent."""

        def are_gone() -> bool:
            alive = self.alive()
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return not alive

        until(are_gone, END_LIMIT, lambda: f"Some of Spark's processes do not end: {self.alive()}")
        for process, note in self._started.values():
            process.wait()
            shutil.rmtree(note, ignore_errors=True)

    def logs(self) -> str:
        """Return the text of all logs."""
        paths = [*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("work-*/*/*/std*"))]
        return "\n".join(f"==> {path.relative_to(self.folder)}\n{path.read_text(errors='replace')}" for path in paths)


@contextmanager
def _family(folder: Path, python: Path) -> Iterator[_Family]:
    home = folder / f"spark-{secrets.token_hex(4)}"
    for name in ("conf", "local"):
        (home / name).mkdir(parents=True)
    family = _Family(home, python)
    try:
        yield family
    finally:
        family.end()


def until(condition: Callable[[], bool], limit: float, complaint: Callable[[], str]) -> None:
    """Return as soon as a condition holds; raise ServerFailed with the complaint if it does not within ``limit`` seconds."""
    last = time.monotonic() + limit
    while not condition():
        if time.monotonic() > last:
            raise ServerFailed(complaint())
        time.sleep(0.03)
