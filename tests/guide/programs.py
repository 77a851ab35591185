"""The clients of the servers, as an operator has them on PATH: those that are installed, or of Debian's packages."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from sqlalchemy import make_url

from tests.conftest import server_of
from tests.databases import FILES
from tests.servers import folders, lookup
from tests.servers.engines import PostgreSQL
from tests.servers.server import PrivateServer
from tools import debian_packages

#: Kind → its programs, what their ``--version`` says, and the package of each system that has them.
NAMES = {
    "postgresql": ("pg_dump", "pg_restore", "createdb", "dropdb", "psql"),
    "mysql": ("mysqldump", "mysql"),
    "mariadb": ("mariadb-dump", "mariadb"),
    "sqlite": ("sqlite3",),
}
PACKAGES = {
    ("debian", "mysql"): ("sid", "mysql-client-core"),
    ("ubuntu", "mysql"): ("own", "mysql-client-core-8.4|mysql-client-core-8.0|mysql-client-core"),
    ("debian", "mariadb"): ("trixie", "mariadb-client"),
    ("ubuntu", "mariadb"): ("own", "mariadb-client"),
    ("debian", "sqlite"): ("own", "sqlite3"),
    ("ubuntu", "sqlite"): ("own", "sqlite3"),
}


def shell(kind: str, url: str, home: Path) -> dict[str, str]:
    """The environment of a shell that finds the programs, and whose programs find the server."""
    programs, where = home / "bin", make_url(url)
    programs.mkdir(parents=True)
    for name in NAMES[kind]:
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(_program(kind, name))} "$@"\n')
        script.chmod(0o755)
    found = {name: value for name, value in os.environ.items() if not name.startswith(("QUEUE_DB", "PG", "MYSQL"))}
    found |= {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "QUEUE_DB_URL": url}
    if kind in FILES:
        return found
    if kind == "postgresql":
        of = {"PGHOST": where.host, "PGPORT": where.port, "PGUSER": where.username, "PGPASSWORD": where.password}
        return found | {name: str(value) for name, value in of.items()} | {"PGCONNECT_TIMEOUT": "20"}
    options = {"host": where.host, "port": where.port, "user": where.username, "password": where.password}
    lines = [f"{name}={value}" for name, value in options.items()]
    if kind == "mariadb":
        lines.append("skip-ssl")  # the certificate is the server's own
    file = home / ".my.cnf"
    file.write_text("\n".join(["[client]", *lines, ""]))
    file.chmod(0o600)
    return found


def run(commands: str, environment: dict[str, str], folder: Path) -> str:
    """Run commands as a person types them; return what they print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


def _program(kind: str, name: str) -> list[str]:
    if kind == "postgresql":
        server = server_of(kind)
        engine = server._engine if isinstance(server, PrivateServer) else None
        beside = engine._programs / name if isinstance(engine, PostgreSQL) else None
        if beside is not None and beside.exists():  # of the server's own version: pg_dump refuses a newer server
            return [str(beside)]
        return [shutil.which(name) or str(lookup._from_wheel()._programs / name)]
    installed = shutil.which(name)
    if installed and (kind in FILES or lookup._is(kind, [installed])):
        return [installed]
    system, own = debian_packages.distribution()
    if (system, kind) not in PACKAGES:
        raise debian_packages.Unavailable(f"there is no {name} here, and no package of {system} is known to have it")
    suite, package = PACKAGES[system, kind]
    suite = own if suite == "own" else suite
    tree = folders.cache_folder() / f"{kind}-client-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, suite, [package])
    return debian_packages.command(tree, f"usr/bin/{name}")
