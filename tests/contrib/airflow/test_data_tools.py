"""The recipes of docs/integrations/data-tools.md, in environments that have Dagster and dbt."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from sqlalchemy import make_url

from queue_db import QueueDB
from tests.contrib.airflow.environment import PAGES, blocks, environment, ran, tool, variables
from tests.others.airflow import install

REST = pytest.mark.rest(
    "it needs an environment of its own, which takes minutes to make; the page's links are checked in make test"
)

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")
SQLITE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

#: Two ticks of the sensor, and the runs that it asks for; the second begins where the first one has ended.
TICKS = """
from dagster import DagsterInstance, build_sensor_context
from recipe import bill, paid_orders

instance, cursor, keys = DagsterInstance.ephemeral(), None, []
for tick in range(3):
    found = paid_orders.evaluate_tick(build_sensor_context(instance=instance, cursor=cursor))
    for request in found.run_requests if tick != 1 else []:  # the runs of the second tick are lost, and so is its cursor
        keys.append(request.run_key)
        assert bill.execute_in_process(run_config=request.run_config, instance=instance).success
    if tick != 1:
        cursor = found.cursor
    if tick == 0:
        with __import__("queue_db").QueueDB(__import__("recipe").URL) as db:
            db.feed("orders").publish("paid", {"order": 9})
assert len(keys) == len(set(keys)) == 2, keys
"""

PROFILE = """
shop:
  target: dev
  outputs:
    dev:
      {{type: postgres, threads: 1, host: {host}, port: {port}, user: {user}, password: {password}, dbname: {database},
        schema: public}}
"""

SHOP = """
import os

from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), ["mail"])


@worker.handles("welcome", result_ttl=3600)
def welcome(job):
    return job.payload
"""

PROJECT = "name: shop\nprofile: shop\nmodel-paths: [models]\n"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install(folder)
    return folder


@REST
@POSTGRESQL
def test_dagster_starts_a_run_for_each_message(kind: str, own_url: str, installed: Path, tmp_path: Path) -> None:
    programs = environment(tool("dagster", ("dagster==1.13.29",), ("postgresql", "migrate")))
    (recipe,) = blocks("data-tools.md", "py")
    (tmp_path / "recipe.py").write_text(recipe.replace("postgresql://db/app", own_url))
    (tmp_path / "ticks.py").write_text(TICKS)
    with QueueDB(own_url) as db:
        db.feed("orders").publish_many([("sent", {"order": 6}), ("paid", {"order": 7})])
        ran([str(programs / "python"), "ticks.py"], variables(programs, installed, DAGSTER_HOME=str(tmp_path)), tmp_path)
        assert [job.payload for job in db.queue("billing").claim(9)] == [{"order": 7}, {"order": 9}]
        assert db.feed("orders").cursors()[0].behind == 1


@pytest.mark.nightly("its environment takes longest; tests of docs/recipes.md insert a job with SQL")
@POSTGRESQL
def test_dbt_enqueues_a_job_with_its_model_or_neither(kind: str, own_url: str, installed: Path, tmp_path: Path) -> None:
    pinned = ("dbt-core==1.12.0", "dbt-postgres==1.11.0", "dbt-core-experimental-parser==2.0.0a4")
    programs = environment(tool("dbt", pinned, ()))
    (model,) = blocks("data-tools.md", "sql")
    url = make_url(own_url)
    at = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "database": url.database}
    (tmp_path / "profiles.yml").write_text(PROFILE.format(**at))
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "days.sql").write_text(model)
    shell = variables(programs, installed, DBT_SEND_ANONYMOUS_USAGE_STATS="false")
    command = [str(programs / "dbt"), "run", "--profiles-dir", str(tmp_path), "--project-dir", str(tmp_path)]
    ran(command, shell, tmp_path)
    with QueueDB(own_url) as db:
        reports = db.queue("reports")
        (job,) = reports.claim(9)
        assert (job.kind, job.payload) == ("refresh", {"model": "days"})
        job.complete()
        at_the_end, _ = blocks("data-tools.md", "yaml")
        (tmp_path / "dbt_project.yml").write_text(f"{PROJECT}{at_the_end}")
        ran(command, shell, tmp_path)
        found = reports.claim(9)
        assert [job.payload for job in found] == [{"model": "days"}, {"model": "all"}]
        reports.complete_many(found)
        (tmp_path / "models" / "days.sql").write_text(model.replace("AS day", "AS day FROM nowhere"))
        with pytest.raises(AssertionError, match="nowhere"):
            ran(command, shell, tmp_path)
        assert reports.claim(9) == []
        (tmp_path / "seeds").mkdir()
        (tmp_path / "seeds" / "names.csv").write_text("name\na\n")
        seed = [part if part != "run" else "seed" for part in command]
        ran(seed, shell, tmp_path)
        assert reports.claim(9) == []
        # Without the condition dbt enqueues also then: this is what would be seen.
        always = re.sub(r"(?s){%.*?%}", "", at_the_end)
        (tmp_path / "dbt_project.yml").write_text(f"{PROJECT}{always}")
        with pytest.raises(AssertionError, match="nowhere"):
            ran(command, shell, tmp_path)
        ran(seed, shell, tmp_path)
        assert [job.payload for job in reports.claim(9)] == [{"model": "all"}] * 2


def with_commands() -> dict[str, str]:
    """Variables of a shell that finds the commands of this environment, which need not be activated."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@SQLITE
def test_a_warehouse_without_the_queue_enqueues_with_a_command(kind: str, own_url: str, tmp_path: Path) -> None:
    (command,) = re.findall(r"`dbt build && (queue-db [^`]*)`", (PAGES / "data-tools.md").read_text(encoding="utf-8"))
    ran(["sh", "-c", command], {**with_commands(), "QUEUE_DB_URL": own_url}, tmp_path)
    with QueueDB(own_url) as db:
        assert [(job.kind, job.payload) for job in db.queue("reports").claim(9)] == [("refresh", {"model": "all"})]


@SQLITE
def test_the_job_of_kubernetes_works_a_queue_until_it_is_empty(kind: str, own_url: str, tmp_path: Path) -> None:
    _, text = blocks("data-tools.md", "yaml")
    found = yaml.safe_load(text)
    assert (found["apiVersion"], found["kind"]) == ("batch/v1", "CronJob")
    pod = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    (variable,) = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "queue", "key": "url"}
    assert pod["terminationGracePeriodSeconds"] > 30
    # What a pod does: the command, with the secret in the variable.
    (tmp_path / "shop.py").write_text(SHOP)
    with QueueDB(own_url) as db:
        ids = db.queue("mail").enqueue_many([("welcome", number) for number in range(3)])
        ran(container["command"], {**with_commands(), variable["name"]: own_url}, tmp_path)
        assert [db.finished(job_id).result for job_id in ids if job_id is not None] == [0, 1, 2]
        ran(container["command"], {**with_commands(), variable["name"]: own_url}, tmp_path)  # and with an empty queue
