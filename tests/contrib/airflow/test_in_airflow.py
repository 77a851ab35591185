"""The provider in an environment that has Airflow: its own tests, and the DAG of the page in Airflow's processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from queue_db import QueueDB
from tests.contrib.airflow.environment import blocks, connection_of, environment, ran, variables
from tests.others.airflow import SUITE, install
from tests.servers.server import free_port

pytestmark = pytest.mark.rest(
    "they need an environment with Airflow, which takes minutes to make; tests/test_structure.py reads the adapter"
)

INSIDE = Path(__file__).with_name("inside")

#: Seconds for Airflow, on a busy machine.
PATIENCE = 900

NO_LOGS = ["--skip-serve-logs"]

SHOP = """
import os

from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), ["billing"])


@worker.handles("invoice", result_ttl=3600)
def invoice(job):
    return {"invoiced": job.payload["run"]}
"""

ON = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ON_ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

Shell = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def programs() -> Path:
    return environment(SUITE)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install(folder)
    return folder


@pytest.fixture(scope="session")
def home(programs: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Airflow, with its migrated database."""
    folder = tmp_path_factory.mktemp("home")
    ran([str(programs / "airflow"), "db", "migrate"], variables(programs, installed, AIRFLOW_HOME=str(folder)), folder)
    return folder


@pytest.fixture
def shell(programs: Path, installed: Path, home: Path, tmp_path: Path, fresh_url: str) -> dict[str, str]:
    """The variables of Airflow's processes, with a home of their own, the DAG of the page, and the database under test."""
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "dags").mkdir()
    (dag,) = blocks("airflow.md", "py")
    (tmp_path / "dags" / "bill.py").write_text(dag)
    (tmp_path / "shop.py").write_text(SHOP)
    with QueueDB(fresh_url) as db:
        db.migrate()
    found = variables(
        programs,
        installed,
        AIRFLOW_HOME=str(tmp_path / "home"),
        AIRFLOW__CORE__DAGS_FOLDER=str(tmp_path / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW_CONN_QUEUE_DB_DEFAULT=connection_of(fresh_url),
        QUEUE_DB_URL=fresh_url,
        QUEUE_DB_TEST_URL=fresh_url,
    )
    found["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    return found


@contextmanager
def running(command: Sequence[str], shell: dict[str, str], folder: Path) -> Iterator[Path]:
    """A program in the background, with its processes; the file that it writes to."""
    output = folder / f"{'-'.join(command[1:3]).replace('shop:', '')}.log"
    with output.open("w") as file:
        process = subprocess.Popen(command, env=shell, cwd=folder, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield output
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@ON
@pytest.mark.parametrize("file", ["test_feed_triggers.py", "test_tasks.py"])
def test_the_provider_keeps_its_promises(file: str, kind: str, shell: dict[str, str], programs: Path, tmp_path: Path) -> None:
    command = [str(programs / "python"), "-m", "pytest", "-c", "/dev/null", "--rootdir", str(INSIDE), "--confcutdir", str(INSIDE)]
    shell["PYTHONPATH"] += f"{os.pathsep}{INSIDE}"  # the server of forks imports the triggerer from there
    said = ran([*command, "-p", "no:cacheprovider", "-q", str(INSIDE / file)], shell, tmp_path, timeout=PATIENCE)
    assert " passed" in said
    assert "skipped" not in said


@ON_ONE
def test_a_dag_enqueues_a_job_and_waits_for_its_worker(kind: str, shell: dict[str, str], programs: Path, tmp_path: Path) -> None:
    with running([str(programs / "python"), "-m", "queue_db", "work", "shop:worker"], shell, tmp_path):
        said = ran([str(programs / "airflow"), "dags", "test", "bill"], shell, tmp_path, timeout=PATIENCE)
    assert "state=success" in said
    with QueueDB(shell["QUEUE_DB_URL"]) as db:
        (finished,) = db.finished_jobs("billing")
    assert finished.result["invoiced"].startswith("manual__")


@ON_ONE
@pytest.mark.nightly("it needs five processes, which take minutes; inside/ has the triggers in Airflow's own stream manager")
def test_a_message_starts_a_dag_in_all_processes_of_airflow(
    kind: str, shell: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    shell |= {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": server.rpartition(":")[2],
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__BASE_URL": server,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{server}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this test alone, as long as sixty-four characters are",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",  # seconds: on a busy machine the first answer takes longer than five
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    }
    with ExitStack() as processes, QueueDB(shell["QUEUE_DB_URL"]) as db:
        feed = db.feed("orders")
        processes.enter_context(running([str(programs / "python"), "-m", "queue_db", "work", "shop:worker"], shell, tmp_path))
        # As airflow standalone does, without the servers of logs: those listen on every address of the machine.
        logs = [
            processes.enter_context(running([str(programs / "airflow"), *command], shell, tmp_path))
            for command in (["api-server"], ["dag-processor"], ["scheduler", *NO_LOGS], ["triggerer", *NO_LOGS])
        ]
        end = time.monotonic() + PATIENCE
        while not answers(int(shell["AIRFLOW__API__PORT"])) and time.monotonic() < end:
            time.sleep(1)  # a task that starts before its server fails
        feed.publish_many([("sent", {"order": 6}), ("paid", {"order": 7})])
        while not (success := runs(tmp_path)) and time.monotonic() < end:
            time.sleep(1)
        assert success, "\n".join(log.read_text()[-4000:] for log in logs)
        assert len(db.finished_jobs("billing")) == 1
        while (left := {info.name: info.behind for info in feed.cursors()}) != {"airflow-paid": 0} and time.monotonic() < end:
            time.sleep(1)
        assert left == {"airflow-paid": 0}


def answers(port: int) -> bool:
    """Whether a server listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def runs(folder: Path) -> list[str]:
    """The DAG runs that an asset started and that succeeded."""
    engine = create_engine(f"sqlite:///{folder}/home/airflow.db")
    with engine.connect() as connection:
        found = connection.execute(
            text("SELECT run_id FROM dag_run WHERE dag_id = 'bill' AND run_type = 'asset_triggered' AND state = 'success'")
        )
        names = list(found.scalars())
    engine.dispose()
    return names
