"""The unit and the manifests of the guide: tools of their systems accept them, and their commands start, are ready and stop."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http.guard import PROBES
from queue_db.worker import Worker
from tests.docs.test_words import COMMANDS, typed
from tests.guide import page
from tests.known_differences import DIFFERENCES
from tests.patience import PATIENCE, wait_for
from tests.servers import folders
from tests.servers.pooler import PgBouncer

#: What the guide says that a system waits beyond the grace time of a worker, seconds.
BEYOND = 15

SHOP = """
import os, pathlib, time
from queue_db import QueueDB
from queue_db.worker import Worker

db = QueueDB(os.environ["QUEUE_DB_URL"])
worker = Worker(db, queues={"mail": 2})

@worker.handles("slow")
def slow(job):
    pathlib.Path(f"begun-{job.payload}").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""

#: Where ``queue-db serve`` listens by default.
(PORT,) = [one.default for one in COMMANDS["serve"].params if one.name == "port"]

_KUBERNETES = "kubernetes-validate==1.37.0"


def unit() -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(comment_prefixes=("#",))
    found.optionxform = str  # type: ignore[method-assign,assignment]
    found.read_string(page.block("ini", "[Unit]"))
    return found


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(page.block("yaml", "apiVersion: apps/v1")))


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The pods and their containers."""
    for manifest in manifests():
        pod = manifest["spec"]["template"]["spec"]
        for container in pod["containers"]:
            yield pod, container


def grace_of(command: list[str]) -> float:
    return float(command[command.index("--grace") + 1]) if "--grace" in command else 30.0


def too_early(patience: float, command: list[str]) -> bool:
    """Whether the system kills before a worker has released its jobs."""
    return patience < grace_of(command) + BEYOND


def test_the_systems_wait_longer_than_the_workers() -> None:
    command = shlex.split(unit()["Service"]["ExecStart"])
    patience = float(unit()["Service"]["TimeoutStopSec"])
    assert not too_early(patience, command)
    assert too_early(patience, [*command[:-1], "31"])
    workers = [(pod, container["command"]) for pod, container in containers() if "work" in container["command"]]
    assert workers
    for pod, words in workers:
        assert not too_early(pod["terminationGracePeriodSeconds"], words)
        assert too_early(pod.get("no such key", 30), words)  # what Kubernetes waits by itself is not enough
    docker = re.findall(r"(?:--stop-timeout|stop_grace_period:) (\d+)", page.TEXT)
    assert len(docker) == 2
    assert not any(too_early(float(seconds), []) for seconds in docker)


def test_the_commands_of_the_manifests_can_be_typed() -> None:
    words = [container["command"] for _, container in containers()] + [shlex.split(unit()["Service"]["ExecStart"])]
    for command in words:
        assert Path(command[0]).name == "queue-db"
        typed([str(word) for word in command[1:]], " ".join(command))
    with pytest.raises(Exception, match="No such option"):
        typed(["work", "shop:worker", "--graec", "3"], "a mistake")
    probes = [container[name]["httpGet"] for _, container in containers() for name in container if "httpGet" in container[name]]
    assert {probe["path"] for probe in probes} == PROBES
    for _, container in containers():
        ports = {one["name"]: one["containerPort"] for one in container.get("ports", ())}
        for probe in (container[name]["httpGet"] for name in container if "httpGet" in container[name]):
            assert ports[probe["port"]] == PORT
        (variable,) = container["env"]
        assert variable["name"] == "QUEUE_DB_URL"
        assert "secretKeyRef" in variable["valueFrom"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip(f"no systemd: {DIFFERENCES['no systemd'][1]}")
    program = tmp_path / "srv" / "queue-db"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = page.block("ini", "[Unit]").replace("/srv/shop/venv/bin/queue-db", str(program))

    def verified(text: str) -> str:
        file = tmp_path / "shop.service"
        file.write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False, timeout=60)
        # Of a machine that systemd has not started, other units may be unreadable.
        return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "shop.service" in line)

    assert verified(text) == ""
    assert "kill mode" in verified(text.replace("KillMode=mixed", "KillMode=mxied"))


@pytest.mark.rest("test_the_commands_of_the_manifests_can_be_typed reads the same manifests")
def test_kubernetes_accepts_the_manifests(tmp_path: Path) -> None:
    tool = folders.cache_folder().parent / _KUBERNETES.replace("==", "-")
    if not tool.is_dir():
        unfinished = tmp_path / "tool"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--target", unfinished, _KUBERNETES], check=True, capture_output=True
        )
        tool.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unfinished, tool)

    def says(text: str) -> tuple[int, str]:
        file = tmp_path / "manifests.yaml"
        file.write_text(text)
        command = [sys.executable, "-m", "kubernetes_validate", "--strict", file]
        done = subprocess.run(command, env={"PYTHONPATH": str(tool)}, capture_output=True, text=True, check=False, timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    text = page.block("yaml", "apiVersion: apps/v1")
    status, said = says(text)
    assert status == 0, said
    for right, wrong in (("terminationGracePeriodSeconds", "terminationGraceSeconds"), ("replicas: 2", "replicas: two")):
        assert says(text.replace(right, wrong))[0], f"{wrong} is not noticed"


@pytest.mark.rest("a worker under the unit's command; tests/cli drains one")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_command_of_the_unit_is_ready_works_and_is_drained(
    own_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = shlex.split(unit()["Service"]["ExecStart"])
    command = [sys.executable, "-m", "queue_db", *words[1:]]
    (probe,) = [one["livenessProbe"]["exec"]["command"] for _, one in containers() if "exec" in one.get("livenessProbe", {})]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "queue-db").write_text(f'#!/bin/sh\nexec {sys.executable} -m queue_db "$@"\n')
    (bin_folder / "queue-db").chmod(0o755)
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "PYTHONPATH": str(page.ROOT), "QUEUE_DB_URL": own_url}

    def alive() -> bool:
        return (
            subprocess.run(probe, env=environment, cwd=tmp_path, check=False, capture_output=True, timeout=PATIENCE).returncode == 0
        )

    with QueueDB(own_url) as db:
        queue = db.queue("mail")
        assert not alive()
        worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: len(db.workers()) == int(words[words.index("--processes") + 1]))
            assert alive()
            with db.database.begin() as connection:
                taken = (
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
                )
                connections = connection.exec_driver_sql(taken).scalar_one()
            # As the table of the guide says; a supervisor and this test have some, too.
            assert connections <= 8 * (int(words[words.index("--processes") + 1]) + 1)
            record_property("connections", connections)
            queue.enqueue_many([("slow", number) for number in range(20)])
            wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 8)
            worker.send_signal(signal.SIGTERM)  # KillMode=mixed: to the main process alone
            wait_for(lambda: queue.stats().running == 8 and not any(one.state == "running" for one in db.workers()))
            threading.Event().wait(0.1)
            (tmp_path / "go").touch()
            _, said = worker.communicate(timeout=PATIENCE)
        finally:
            worker.kill()
            worker.wait()
        assert worker.returncode == 0, said
        assert len(list(tmp_path.glob("begun-*"))) == 8
        stats = queue.stats()
        assert (stats.available, stats.running, stats.dead) == (12, 0, 0)
        assert not alive()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_two_sessions_of_a_pooler_are_enough_for_a_worker_process(own_url: str) -> None:
    with PgBouncer(own_url, sessions=2) as pooler, QueueDB(pooler.url(own_url)) as db:
        done: list[int] = []
        worker = Worker(db, "mail", concurrency=8)
        worker.handles("k")(lambda job: done.append(job.payload))
        db.queue("mail").enqueue_many([("k", number) for number in range(200)])
        assert worker.run(until_empty=True).completed == 200
        assert sorted(done) == list(range(200))


def test_the_probes_answer_to_the_address_of_the_pod(tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    with QueueDB(f"sqlite:///{tmp_path}/probes.db") as db:
        db.migrate()
        with TestClient(service(db, Settings(hosts=("queue.example.com",))), base_url="http://10.0.0.7:8321") as client:
            assert [client.get(path).status_code for path in sorted(PROBES)] == [200, 200]
            assert client.get("/").status_code == 421
