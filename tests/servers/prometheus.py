"""Prometheus, which scrapes one address, and promtool, which tests rules: from the distribution's packages."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from tests.patience import PATIENCE, wait_for
from tests.servers import folders, processes
from tests.servers.server import free_port
from tools import debian_packages

_SETTINGS = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}}


def program(name: str) -> list[str]:
    """The start of a command line of ``prometheus`` or ``promtool``."""
    if installed := shutil.which(name):
        return [installed]
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"prometheus-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", ["prometheus"])
    return debian_packages.command(tree, f"usr/bin/{name}")


class Prometheus:
    """A server that scrapes one address every second.

    :param target: host and port.
    :param token: for the scrapes.
    """

    def __init__(self, target: str, token: str, rules: Sequence[str] = ()) -> None:
        self._folder = folders.new_run_folder("prometheus")
        job = {"job_name": "queue_db", "authorization": {"credentials": token}, "static_configs": [{"targets": [target]}]}
        file = self._folder / "prometheus.yml"  # JSON is YAML
        file.write_text(json.dumps({**_SETTINGS, "scrape_configs": [job], "rule_files": list(rules)}))
        file.chmod(0o600)
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *program("prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        folders.note_process(self._folder, self._process.pid)
        wait_for(self._ready)

    def _ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            return httpx2.get(f"{self._url}/-/ready", timeout=PATIENCE, verify=False).status_code == 200
        except httpx2.TransportError:
            return False

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series of an expression: ``metric`` and ``value``.

        :raises AssertionError: Prometheus refuses it.
        """
        found = self._asked("query", query=expression)
        assert found["status"] == "success", f"{expression}: {found.get('error')}"
        result: list[Mapping[str, Any]] = found["data"]["result"]
        return result

    def rules(self) -> dict[str, str]:
        """The health of each alert rule, by name."""
        return {rule["name"]: rule["health"] for group in self._asked("rules")["data"]["groups"] for rule in group["rules"]}

    def _asked(self, what: str, **params: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx2.get(f"{self._url}/api/v1/{what}", params=params, timeout=PATIENCE, verify=False).json()
        return found

    def remove(self) -> None:
        """Kill it and remove its folder."""
        processes.kill_at_once(self._process.pid)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
