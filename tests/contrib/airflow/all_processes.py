"""Airflow's processes in the background, and what its database says. A wait that ends says what is lacking, and what they wrote."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.request import Request, urlopen

from sqlalchemy import create_engine, text

from tests.servers.server import free_port

_T = TypeVar("_T")

#: Seconds for Airflow, on a busy machine.
PATIENCE = 900

# As airflow standalone has them, without the servers of logs: those listen on every address of the machine.
_COMMANDS = {
    "api-server": ("api-server",),
    "dag-processor": ("dag-processor",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}


@dataclass
class Background:
    """Programs in the background. The end of the block ends them, with their processes."""

    shell: dict[str, str]
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a program; what it writes goes to the end of a file with its name."""
        with self._output(name).open("ab") as file:
            self.running[name] = subprocess.Popen(
                command, env=self.shell, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """End a program and its processes without a warning."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def until(self, find: Callable[[], _T], lacking: str) -> _T:
        """Wait until there is something.

        :raises AssertionError: it does not come, or one of the programs has ended meanwhile.
        """
        end = time.monotonic() + PATIENCE
        while not (found := find()):
            ended = {name: process.returncode for name, process in self.running.items() if process.poll() is not None}
            assert not ended, f"{lacking}: these have ended, with their status: {ended}\n{self._written(ended)}"
            assert time.monotonic() < end, f"{lacking}, within {PATIENCE} s\n{self._written(self.running)}"
            time.sleep(0.5)
        return found

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _written(self, names: Sequence[str] | dict[str, Any]) -> str:
        return "\n".join(f"--- {name}:\n{self._output(name).read_text(errors='replace')[-4000:]}" for name in names)


class Airflow(Background):
    """API server, dag-processor, scheduler and triggerer, on the loopback."""

    def __init__(self, programs: Path, shell: dict[str, str], folder: Path) -> None:
        self.programs = programs
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._engine = create_engine(f"sqlite:///{shell['AIRFLOW_HOME']}/airflow.db")
        settings = {
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__BASE_URL": self.address,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.address}/execution/",
            "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this test alone, as long as sixty-four characters are",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",  # seconds: on a busy machine the first answer takes longer than five
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",  # seconds until another one gets the triggers
        }
        super().__init__({**shell, **settings}, folder)
        self._token = ""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._engine.dispose()

    def start_all(self) -> None:
        """Start the four, and wait until the server answers: a task that starts before it fails."""
        for name in _COMMANDS:
            self.start_one(name)
        self.until(self._answers, "Airflow's API server does not answer")

    def start_one(self, name: str) -> None:
        self.start(name, [str(self.programs / "airflow"), *_COMMANDS[name]])

    def column(self, statement: str, **values: str) -> list[Any]:
        """What Airflow's database has in one column."""
        with self._engine.connect() as connection:
            return list(connection.execute(text(statement), values).scalars())

    def runs(self, dag: str, state: str = "success") -> list[str]:
        """The runs in this state that an asset started."""
        asked = "SELECT run_id FROM dag_run WHERE dag_id = :dag AND run_type = 'asset_triggered' AND state = :state"
        return self.column(asked, dag=dag, state=state)

    def states(self, dag: str, task: str) -> list[str]:
        """The states of a task, of all runs."""
        return self.column("SELECT state FROM task_instance WHERE dag_id = :dag AND task_id = :task", dag=dag, task=task)

    def events(self, feed: str) -> list[str]:
        """The positions of the messages of a feed that are events of assets."""
        extras = [json.loads(extra) for extra in self.column("SELECT extra FROM asset_event ORDER BY id")]
        return [extra["payload"]["position"] for extra in extras if extra["payload"]["feed"] == feed]

    def ask(self, path: str, body: Any = None) -> Any:
        """What the API answers to a GET, or to a POST of ``body``."""
        if not self._token and path != "/auth/token":
            self._token = self.ask("/auth/token")["access_token"]
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        request = Request(self.address + path, None if body is None else json.dumps(body).encode(), headers)  # noqa: S310
        with urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
