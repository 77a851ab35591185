"""Environments, kept in the cache folder, that have Airflow or another tool for data, and this checkout as an installed package."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import make_url

from tests.others.suite import CHECKOUT, Suite, _environment

PAGES = CHECKOUT / "docs" / "integrations"
_BLOCK = re.compile(r"^(?:```|~~~)(\w+)\n(.*?)^(?:```|~~~)", re.MULTILINE | re.DOTALL)


def environment(of: Suite) -> Path:
    """The folder of the environment's programs; it is made at the first use, which takes minutes."""
    return Path(_environment(of)).parent


def tool(name: str, requirements: Sequence[str], extras: Sequence[str]) -> Suite:
    """What an environment for another tool needs."""
    return Suite(name=name, version="", source="", requirements=requirements, extras=extras, kinds=(), command=lambda run: ())


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page of docs/integrations in one language."""
    return [code for found, code in _BLOCK.findall((PAGES / page).read_text(encoding="utf-8")) if found == language]


def connection_of(url: str) -> str:
    """The Airflow connection of a database."""
    of = make_url(url)
    kind = of.get_backend_name()
    where: dict[str, object] = {"host": of.database}
    if kind != "sqlite":
        where = {"host": of.host, "port": of.port, "login": of.username, "password": of.password, "schema": of.database}
    return json.dumps({"conn_type": "queue_db", **where, "extra": {"dialect": kind}})


def variables(programs: Path, installed: Path, **more: str) -> dict[str, str]:
    """The variables of a process in the environment."""
    kept = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH", "QUEUE_DB_URL"}}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(installed), **more}


def ran(command: Sequence[str], variables: dict[str, str], folder: Path, *, timeout: float = 300) -> str:
    """Run a program to its end; return what it wrote.

    :raises AssertionError: it failed.
    """
    done = subprocess.run(
        command,
        env=variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout[-8000:]}"
    return done.stdout
