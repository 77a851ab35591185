"""The compose files without Docker: their references are there, and the commands of ``docker-compose.yml`` do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from queue_db import QueueDB
from tests.compose import CLUSTER, CLUSTER_TEXT, COMPOSE, ROOT, SERVICES, TEXT, environment
from tests.servers import haproxy
from tests.servers.server import free_port

pytestmark = pytest.mark.rest("the programs of the images are those of tests/cli and tests/service")

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")
IMAGES = [one["build"]["dockerfile_inline"] for one in (COMPOSE["x-package"], COMPOSE["x-spark"])]


@pytest.mark.parametrize(("compose", "text"), [(COMPOSE, TEXT), (CLUSTER, CLUSTER_TEXT)], ids=["services", "clusters"])
def test_what_a_file_refers_to_is_there(compose: Mapping[str, Any], text: str) -> None:
    services, volumes = compose["services"], compose.get("volumes", {})
    for name, service in services.items():
        mine = set(service.get("profiles", []))
        for other in service.get("depends_on", {}):
            theirs = set(services[other].get("profiles", []))
            assert not theirs or mine <= theirs, f"{name} is started without {other}"
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in volumes, name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        for config in service.get("configs", []):
            assert config["source"] in compose["configs"], name
        words = " ".join([*service.get("command", []), *service.get("entrypoint", []), *service["environment"].values()])
        for host in re.findall(r"(?://|@)(?:[\w]+:[\w]+@)?([a-z-]+):\d+", words):
            assert host in services, f"{name} calls {host}"
    used = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert used == set(volumes)
    for profile in re.findall(r"--profile (\w+)", text):
        assert any(profile in service.get("profiles", []) for service in services.values())


def test_the_driver_runs_applications_that_are_there() -> None:
    for application in re.findall(r"run --rm driver (\S+)", TEXT):
        assert (ROOT / application).is_file()


def test_the_nodes_of_a_cluster_have_ports_and_names_of_their_own() -> None:
    services = CLUSTER["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))
    nodes = {name: service["hostname"] for name, service in services.items() if "hostname" in service}
    assert list(nodes.values()) == list(nodes)
    urls = re.findall(r"(\w+)://(?:[\w:]+@)?127\.0\.0\.1:(\d+)", CLUSTER_TEXT)
    assert len(urls) == 3
    assert {port for _, port in urls} <= {port.split(":")[1] for port in ports}


def test_the_check_of_haproxy_is_that_of_the_suites_own_cluster() -> None:
    assert (
        haproxy.settings({name: f"{name}:5432" for name in ("postgresql1", "postgresql2")}, "*:5432")
        == CLUSTER["configs"]["haproxy"]["content"]
    )
    assert f"CREATE ROLE {haproxy.ROLE} LOGIN" in CLUSTER["services"]["role"]["command"]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_what_its_installation_needs(image: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for copied, target in re.findall(r"^COPY (.+) (\S+)$", image, re.MULTILINE):
        for name in copied.split():
            place = tmp_path / target.lstrip("/")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place)
    (extras,) = re.findall(r'"/source\[(.+)\]"', image)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    built = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "out", source]
    done = subprocess.run(built, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def started(service: str, url: str, *more: str, swapped: Sequence[tuple[str, str]] = ()) -> subprocess.Popen[str]:
    """The command of a service, on this machine."""
    words = [*SERVICES[service]["command"], *more]
    for old, new in swapped:
        assert old in words
        words[words.index(old)] = new
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("QUEUE_DB")}
    return subprocess.Popen(
        [Path(sys.executable).with_name(words[0]), *words[1:]],
        env=inherited | environment(service, url) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@POSTGRESQL
def test_the_worker_does_the_jobs_of_the_database_that_was_migrated(fresh_url: str) -> None:
    migrated = started("migrate", fresh_url)
    printed, _ = migrated.communicate(timeout=300)
    assert migrated.returncode == 0, printed
    with QueueDB(fresh_url) as db:
        db.queue("default").enqueue_many([("k", "from the test")] * 2)
        worker = started("worker", fresh_url, "--until-empty")
        printed, _ = worker.communicate(timeout=300)
        assert worker.returncode == 0, printed
        assert printed.splitlines().count('"from the test"') == 2, printed  # logs of containers come by the line
        assert db.queue("default").stats().available == 0


@POSTGRESQL
def test_the_service_is_ready_as_its_check_sees_it(fresh_url: str) -> None:
    with QueueDB(fresh_url) as db:
        db.migrate()
    port = free_port()  # none that a proxy of another test is given
    # On loopback here; in a container only Docker reaches the port.
    service = started("service", fresh_url, "--port", str(port), swapped=[("0.0.0.0", "127.0.0.1")])  # noqa: S104
    try:
        (address,) = re.findall(r"http://127\.0\.0\.1:8321/\w+", SERVICES["service"]["healthcheck"]["test"][-1])
        limit = time.monotonic() + 120
        while True:
            try:
                with urlopen(address.replace("8321", str(port)), timeout=4) as answer:  # noqa: S310 - of the file
                    assert answer.status == 200
                    return
            except OSError:
                assert service.poll() is None, service.communicate()[0]
                assert time.monotonic() < limit
                time.sleep(0.1)
    finally:
        service.kill()
        service.communicate()
