"""What the rounds are played on: databases, a cluster, and one driver at a time."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import psutil

from queue_db import QueueDB
from tests.servers import Server, ServerFailed, provide
from tests.servers.proxy import Proxy
from tests.spark.cluster import Cluster, bare_python, standalone, until
from tests.spark.kills import hook

HERE = Path(__file__).parent
START_LIMIT = 300.0
END_LIMIT = 120.0

#: A driver's options beside the address of its cluster. A copy of a slow task is started after a second, on the other host.
MODES = {
    "local": {"spark.master": "local[2,4]"},
    "cluster": {},
    "speculation": {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.task.duration.threshold": "1s",
    },
}

# Nothing of these programs is large, and the log is read when something is wrong.
_ALWAYS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "WARN",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}


class Driver:
    """A process of ``client.py`` with its Java."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        self._orders = 0
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", HERE / "client.py", folder],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,  # when we are gone it ends
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.java = 0
        try:
            until(self._is_ready, START_LIMIT, lambda: f"the driver does not start:\n{self.log()}")
        except BaseException:
            self.kill()
            raise
        self.java = int(json.loads((folder / "ready.json").read_text())["java"])

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise ServerFailed(f"the driver has ended:\n{self.log()}")
        return (self.folder / "ready.json").exists()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def order(self, what: dict) -> None:
        """Let it run a program; :meth:`answer` has its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        self._orders += 1

    def answer(self) -> dict | None:
        """What came of the last order; None while it runs."""
        try:
            return json.loads((self.folder / f"answer-{self._orders - 1}.json").read_text())
        except FileNotFoundError:
            return None

    def freeze(self) -> None:
        """Let the Java stand still."""
        os.kill(self.java, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.java, signal.SIGCONT)

    def kill(self) -> None:
        """Kill both (SIGKILL), and return when they are gone."""
        # Standing still, the client neither starts another Java nor reports that this one has gone.
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGSTOP)
        # Java that was started and has not reported yet has the client as its parent.
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children()
            for process in children:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.kill()
        self._process.wait()
        until(lambda: not (self.java and is_running(self.java)), END_LIMIT, lambda: f"Java {self.java} does not end")

    def end(self) -> None:
        """Let it end in good order."""
        if self.alive:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_LIMIT)
        self.kill()

    def log(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class World:
    """All of it, started when it is first needed, gone at the end of the ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traps = folder / "traps"
        self.traps.mkdir()
        self.python = bare_python(folder)
        _plant(self.python)
        self._stack = ExitStack()
        self._cluster: Cluster | None = None
        self._servers: dict[str, Server] = {}
        self._databases: dict[str, QueueDB] = {}
        self._urls: dict[str, str] = {}
        self._proxies: dict[str, Proxy] = {}
        self._driver: Driver | None = None
        self._mode = ""
        self.drivers = 0  #: how many were started
        self.starting = 0.0  #: seconds that took

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.kill()
        for db in self._databases.values():
            db.close()
        for proxy in self._proxies.values():
            proxy.close()
        self._stack.close()
        for server in self._servers.values():
            server.remove()

    @property
    def cluster(self) -> Cluster:
        """The standalone cluster: two workers, on two hosts."""
        if self._cluster is None:
            self._cluster = self._stack.enter_context(standalone(self.folder, self.python))
        return self._cluster

    def server(self, kind: str) -> Server:
        """The private server of a kind."""
        if kind not in self._servers:
            self._servers[kind] = provide(kind)
        return self._servers[kind]

    def url(self, kind: str) -> str:
        """A migrated database."""
        if kind not in self._urls:
            self._urls[kind] = f"sqlite:///{self.folder}/queue.db" if kind == "sqlite" else self.server(kind).create_database()
            with QueueDB(self._urls[kind]) as db:
                db.migrate()
        return self._urls[kind]

    def db(self, kind: str) -> QueueDB:
        """The same, for ourselves."""
        if kind not in self._databases:
            self._databases[kind] = QueueDB(self.url(kind))
        return self._databases[kind]

    def proxy(self, kind: str) -> Proxy:
        """What stands before the server where connections are to be cut."""
        if kind not in self._proxies:
            self._proxies[kind] = Proxy.before(self.url(kind))
        return self._proxies[kind]

    def driver(self, mode: str) -> Driver:
        """A driver that is alive, of one of the :data:`MODES`."""
        if self._driver is not None and (mode != self._mode or not self._driver.alive):
            self._driver.end()
            self._driver = None
        if self._driver is None:
            began = time.monotonic()
            self.drivers += 1
            self._mode = mode
            self._driver = Driver(self.folder / f"driver-{self.drivers}", self._environment(mode))
            self.starting += time.monotonic() - began
        return self._driver

    def _environment(self, mode: str) -> dict[str, str]:
        ours = ("spark.driver.", "spark.ui.") if mode == "local" else ("spark.",)
        options = {name: value for name, value in self.cluster.options.items() if name.startswith(ours)}
        options |= _ALWAYS | MODES[mode] | {f"spark.executorEnv.{hook.VARIABLE}": str(self.traps)}
        settings = [word for option in options.items() for word in ("--conf", "=".join(option))]
        return self.cluster.environment | {
            "PYSPARK_SUBMIT_ARGS": shlex.join([*settings, "pyspark-shell"]),
            hook.VARIABLE: str(self.traps),
        }


def _plant(python: Path) -> None:
    """Put the hook where this Python imports it when it starts."""
    answer = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    inside = Path(answer.stdout.strip())
    assert inside != Path(sysconfig.get_path("purelib"))
    shutil.copy(HERE / "hook.py", inside / "kills_hook.py")
    (inside / "kills_hook.pth").write_text("import kills_hook\n")
