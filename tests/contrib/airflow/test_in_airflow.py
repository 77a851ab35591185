"""The provider in an environment that has Airflow: its own tests, and the DAG of the page in Airflow's processes."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.contrib.airflow.all_processes import PATIENCE, Airflow, Background
from tests.contrib.airflow.environment import blocks, connection_of, environment, ran, variables
from tests.others.airflow import SUITE, install

pytestmark = pytest.mark.rest(
    "they need an environment with Airflow, which takes minutes to make; tests/test_structure.py reads the adapter"
)

INSIDE = Path(__file__).with_name("inside")

SHOP = """
import os

from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), ["billing"])


@worker.handles("invoice", result_ttl=3600)
def invoice(job):
    return {"invoiced": job.payload["run"]}


@worker.handles("refund")
def refund(job):
    raise LookupError("no such order: 7")
"""

#: A task whose job dies.
REFUND = """
from airflow.sdk import DAG

from queue_db.contrib.airflow.operators import EnqueueOperator, WaitForJob

with DAG("refund"):
    asked = EnqueueOperator(task_id="ask", queue_name="billing", kind="refund", options={"max_attempts": 1})
    WaitForJob(task_id="wait", job_id=asked.output, poll=0.1)
"""

#: Assets that watch one feed together, and others that differ in what a reader does.
WATCH = """
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

for number in range(5):
    for feed, poll in (("together", 0.05), ("apart", 0.05 + number / 1000)):
        name = f"{feed}-{number}"
        trigger = MessageQueueTrigger(scheme="queue-db", feed=feed, cursor=name, poll=poll)
        with DAG(name, schedule=[Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger)])]):
            EmptyOperator(task_id="seen")
"""

#: Python runs this first in each process: the triggerer notes who reads which feed.
NOTING = """
import os
import sys

if "triggerer" in sys.orig_argv:
    import asyncio

    from queue_db.aio import AsyncFeed

    read = AsyncFeed.read

    async def noting(self, *arguments, **options):
        page = await read(self, *arguments, **options)
        with open(os.environ["NOTED_READS"], "a") as file:
            file.write(f"{self._sync.name} {id(asyncio.current_task())}\\n")
        return page

    AsyncFeed.read = noting
"""

#: A task whose job no worker runs.
LATE = """
from airflow.sdk import DAG, Asset, AssetWatcher

from queue_db.contrib.airflow.operators import WaitForJob
from queue_db.contrib.airflow.triggers import FeedTrigger

late = Asset("late", watchers=[AssetWatcher(name="late", trigger=FeedTrigger(feed="late", cursor="late"))])

with DAG("late", schedule=[late]):
    WaitForJob(task_id="wait", job_id={job}, timeout=1)
"""

ON = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ON_ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


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
    # The configuration has the paths of the home that it was made in, also that of the database.
    configuration = tmp_path / "home" / "airflow.cfg"
    configuration.write_text(configuration.read_text().replace(f"{home}/", f"{tmp_path}/home/"))
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


@ON
@pytest.mark.parametrize("file", ["test_feed_triggers.py", "test_tasks.py"])
def test_the_provider_keeps_its_promises(file: str, kind: str, shell: dict[str, str], programs: Path, tmp_path: Path) -> None:
    command = [str(programs / "python"), "-m", "pytest", "-c", "/dev/null", "--rootdir", str(INSIDE), "--confcutdir", str(INSIDE)]
    shell["PYTHONPATH"] += f"{os.pathsep}{INSIDE}"  # the server of forks imports the triggerer from there
    said = ran([*command, "-p", "no:cacheprovider", "-q", str(INSIDE / file)], shell, tmp_path, timeout=PATIENCE)
    assert " passed" in said
    assert "skipped" not in said


def dags_test(dag: str, programs: Path, shell: dict[str, str], folder: Path) -> tuple[int, str]:
    """The exit status of ``airflow dags test``, and what it writes. Its job gets a worker when the task waits for it."""
    output = folder / "dags-test.log"
    with Background(shell, folder) as beside:
        beside.start("dags-test", [str(programs / "airflow"), "dags", "test", dag])
        beside.until(lambda: "Pausing task as DEFERRED" in output.read_text(), "the task is not deferred")
        beside.start("worker", [str(programs / "python"), "-m", "queue_db", "work", "shop:worker"])
        status = beside.running["dags-test"].wait(PATIENCE)
    return status, output.read_text()


@ON
def test_a_dag_enqueues_a_job_and_waits_for_its_worker(kind: str, shell: dict[str, str], programs: Path, tmp_path: Path) -> None:
    status, said = dags_test("bill", programs, shell, tmp_path)
    assert status == 0, said
    assert "state=success" in said
    with QueueDB(shell["QUEUE_DB_URL"]) as db:
        (finished,) = db.finished_jobs("billing")
    assert finished.result["invoiced"].startswith("manual__")


@ON
def test_a_dag_whose_job_dies_fails_with_its_error(kind: str, shell: dict[str, str], programs: Path, tmp_path: Path) -> None:
    (tmp_path / "dags" / "refund.py").write_text(REFUND)
    status, said = dags_test("refund", programs, shell, tmp_path)
    assert status == 1, said
    assert "is dead after 1 attempts: LookupError: no such order: 7" in said
    assert "DagRun failed" in said
    with QueueDB(shell["QUEUE_DB_URL"]) as db:
        assert [job.kind for job in db.dead.list("billing")] == ["refund"]


# --- all processes of Airflow ------------------------------------------------------------------------------------------


@ON_ONE
@pytest.mark.nightly("it needs six processes, which take minutes; inside/ has the triggers in Airflow's own stream manager")
def test_a_message_starts_a_dag_in_all_processes_of_airflow(
    kind: str, shell: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "dags" / "watch.py").write_text(WATCH)
    (tmp_path / "sitecustomize.py").write_text(NOTING)
    shell["NOTED_READS"] = str(tmp_path / "reads")
    with Airflow(programs, shell, tmp_path) as airflow, QueueDB(shell["QUEUE_DB_URL"]) as db:
        airflow.start("worker", [str(programs / "python"), "-m", "queue_db", "work", "shop:worker"])
        airflow.start_all()
        db.feed("orders").publish_many([("sent", {"order": 6}), ("paid", {"order": 7})])
        db.feed("together").publish("seen", 1)
        airflow.until(lambda: airflow.runs("bill"), "no run of the asset's DAG has succeeded")
        assert len(db.finished_jobs("billing")) == 1
        airflow.until(lambda: airflow.runs("ship"), "no run of the other DAG has succeeded")
        assert [job.payload for job in db.queue("shipping").peek(9)] == [{"order": 7}]
        together = [f"together-{number}" for number in range(5)]
        airflow.until(lambda: all(airflow.runs(name) for name in together), "not each asset has started its DAG")
        assert [len(airflow.runs(name)) for name in together] == [1] * 5
        for feed, cursors in {"orders": ["airflow-paid"], "together": together}.items():
            airflow.until(lambda: behind(db, feed) == dict.fromkeys(cursors, 0), f"{feed}: not all is acknowledged")  # noqa: B023

        form = next(one for one in airflow.ask("/ui/connections/hook_meta") if one["connection_type"] == "queue_db")
        assert form["standard_fields"]["url_schema"]["title"] == "Database"
        assert form["extra_fields"]["dialect"]["schema"]["enum"] == ["postgresql", "mysql", "mariadb", "sqlite"]
        given = {**json.loads(connection_of(shell["QUEUE_DB_URL"])), "connection_id": "new"}
        given["extra"] = json.dumps(given["extra"])
        assert airflow.ask("/api/v2/connections/test", given) == {
            "status": True,
            "message": "The database answers, and has the tables.",
        }
        refused = airflow.ask("/api/v2/connections/test", {**given, "port": 1})
        assert not refused["status"]
        assert str(given["password"] or "no password") not in refused["message"]

        # Five triggers of one feed are one reader; five that differ are five: this is what would be seen.
        airflow.until(lambda: len(readers(tmp_path, "apart")) == 5, "triggers with readers of their own do not read")
        before = readers(tmp_path, "together").total()
        airflow.until(lambda: readers(tmp_path, "together").total() >= before + 20, "the feed is not read any more")
        assert len(readers(tmp_path, "together")) == 1


@ON_ONE
@pytest.mark.nightly("it needs six processes and a triggerer that is seen to be gone; inside/ has kills at each place")
def test_a_triggerer_that_is_killed_in_airflow_loses_no_message_and_no_wait(
    kind: str, shell: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    with Airflow(programs, shell, tmp_path) as airflow, QueueDB(shell["QUEUE_DB_URL"]) as db:
        orders = db.feed("orders")
        never = db.queue("elsewhere").enqueue("never")
        (tmp_path / "dags" / "late.py").write_text(LATE.format(job=never))
        airflow.start_all()
        orders.publish("paid", 0)
        airflow.until(lambda: "deferred" in airflow.states("bill", "wait"), "no task waits for its job")
        db.feed("late").publish("k")
        airflow.until(lambda: "failed" in airflow.states("late", "wait"), "the timeout of a wait does not end it")
        assert airflow.states("bill", "wait") == ["deferred"]  # the timeout of another task

        orders.publish_many([("paid", number) for number in range(1, 400)])
        airflow.until(lambda: len(airflow.events("orders")) > 1, "no event of the new messages is stored")
        airflow.kill("triggerer")
        orders.publish_many([("paid", number) for number in range(400, 500)])
        published = {message.position for message in orders.read(limit=1000).messages}
        assert len(published) == 500
        assert published - set(airflow.events("orders"))

        airflow.start_one("triggerer")
        airflow.start("worker", [str(programs / "python"), "-m", "queue_db", "work", "shop:worker"])
        airflow.until(lambda: not published - set(airflow.events("orders")), "not each message has become an event")
        airflow.until(lambda: behind(db, "orders") == {"airflow-paid": 0}, "not all is acknowledged")
        # A run has the events until Airflow began to make it; what came later it gives to the run of the next message.
        airflow.until(lambda: not airflow.column(WAITING), "a run is not made")
        orders.publish("paid", 500)
        airflow.until(lambda: not airflow.column(UNUSED), "events are given to no run")
        airflow.until(lambda: not airflow.column("SELECT 1 FROM dag_run WHERE state IN ('queued', 'running')"), "runs do not end")
        assert set(airflow.states("bill", "wait")) == {"success"}
        assert len(db.finished_jobs("billing", limit=1000)) == len(airflow.runs("bill"))


#: Runs that Airflow is about to make.
WAITING = "SELECT target_dag_id FROM asset_dag_run_queue"

#: Events of assets that no run was given.
UNUSED = "SELECT id FROM asset_event WHERE id NOT IN (SELECT event_id FROM dagrun_asset_event)"


def behind(db: QueueDB, feed: str) -> dict[str, int]:
    """Cursor → how many messages are after it."""
    return {info.name: info.behind for info in db.feed(feed).cursors()}


def readers(folder: Path, feed: str) -> Counter[str]:
    """Reader of a feed → how often it has read."""
    lines = [line.split() for line in (folder / "reads").read_text().splitlines()]
    return Counter(reader for name, reader in lines if name == feed)
