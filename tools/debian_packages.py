#!/usr/bin/env python3
"""Unpack Debian or Ubuntu packages, with all they need, into a folder.

    python3 tools/debian_packages.py FOLDER SUITE PACKAGE...
    python3 tools/debian_packages.py /tmp/mysql sid mysql-server-core
    python3 tools/debian_packages.py /tmp/mysql own "mysql-server-core-8.4|mysql-server-core-8.0"

Nothing is installed and root is not needed. apt resolves and verifies the packages as on an empty machine of that
suite ("own" is this machine's), from the mirror that this machine's apt already uses. Of "a|b" the first that the
suite has is taken.

The tree carries its own C library. `command(FOLDER, PROGRAM)` is the command line that runs a program with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring",
}
COMPONENTS = {"debian": "main", "ubuntu": "main universe"}


class Unavailable(Exception):
    """The packages cannot be had on this machine; the text says why."""


def distribution() -> tuple[str, str]:
    """Return this machine's distribution ("debian", "ubuntu", or another's name) and the name of its suite."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return sys.platform, ""
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts.get("ID", "").strip('"'), facts.get("VERSION_CODENAME", "").strip('"')


def unpack(folder: Path, suite: str, packages: list[str]) -> None:
    """Unpack the packages and all they need into a folder that appears only when it is complete."""
    system, own_suite = distribution()
    if system not in KEYRINGS or shutil.which("apt-get") is None:
        raise Unavailable(f"Packages can be unpacked on Debian and Ubuntu only, and this is {system or 'neither'}.")
    if suite == "own":
        suite = own_suite
    if folder.exists():
        raise Unavailable(f"{folder} is there already.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as name:
        work = Path(name)
        environment = _private_apt(work / "apt", system, suite, _mirror(own_suite))
        _run(["apt-get", "-q", "update"], environment)
        wanted = [_first_known(alternatives, environment) for alternatives in packages]
        _run(["apt-get", "-q", "-y", "--download-only", "install", *wanted], environment)
        tree = work / "tree"
        tree.mkdir()
        for package in sorted((work / "apt" / "cache" / "archives").glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), str(tree)], environment)
        tree.chmod(0o755)
        try:
            tree.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was faster, and its tree serves as well
                raise Unavailable(f"{folder} could not be put in place: {error}") from error


def command(folder: Path, program: str) -> list[str]:
    """Return the start of a command line that runs a program of an unpacked tree with the tree's own libraries."""
    # /lib and the like stand beside /usr in packages older than their merger, and inside it in newer ones.
    roots = [folder / "usr", folder]
    loaders = [path for root in roots for at in ("lib64", "lib", "lib/*") for path in sorted(root.glob(f"{at}/ld-linux*.so.*"))]
    if not loaders:
        raise Unavailable(f"{folder} holds no loader: it was not unpacked by this tool.")
    libraries = [str(path) for root in roots for path in sorted(root.glob("lib/*-linux-gnu*"))]
    return [str(loaders[0]), "--library-path", ":".join(libraries), str(folder / program)]


def _mirror(suite: str) -> str:
    """Return the address of the mirror that this machine's apt takes its own suite from."""
    # Unlike `apt-get indextargets` this also answers before the machine's first `apt-get update`.
    listing = subprocess.run(["apt-get", "update", "--print-uris"], capture_output=True, text=True, check=False).stdout
    mirrors: list[str] = re.findall(rf"'([^']+?)/dists/{re.escape(suite)}/InRelease'", listing)
    if not mirrors:
        raise Unavailable(f"apt knows no mirror for this machine's suite {suite or '(unnamed)'}.")
    # Other vendors name their suites alike; the distribution's own mirror is the one that also carries its updates.
    return next((uri for uri in mirrors if f"'{uri}/dists/{suite}-updates/" in listing), mirrors[0])


def _private_apt(folder: Path, system: str, suite: str, mirror: str) -> dict[str, str]:
    """Lay out an apt that knows one suite and believes that nothing is installed; return the environment to use it."""
    keyring = next((p for ending in ("gpg", "pgp") if Path(p := f"{KEYRINGS[system]}.{ending}").exists()), None)
    if keyring is None:
        raise Unavailable(f"{KEYRINGS[system]}.gpg is missing: apt-get install {system}-keyring (or {system}-archive-keyring)")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={keyring}] {mirror} {suite} {COMPONENTS[system]}\n")
    # The machine's own apt.conf.d stays in force: it may hold the proxy without which no mirror is reached.
    # Signatures are verified; their age is not, for a mirror that lags behind by weeks serves a test as well.
    (folder / "apt.conf").write_text(
        f"""\
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
"""
    )
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _first_known(alternatives: str, environment: dict[str, str]) -> str:
    """Return the first of "a|b|c" that the suite has."""
    for package in alternatives.split("|"):
        found = subprocess.run(["apt-cache", "show", package], env=environment, capture_output=True, check=False)
        if found.returncode == 0:
            return package
    raise Unavailable(f"The suite has no package {alternatives.replace('|', ' or ')}.")


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(arguments[:4])} failed:\n{(done.stderr or done.stdout).strip()}")


def main(arguments: list[str]) -> int:
    """Unpack what the command line names."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        unpack(Path(arguments[0]).absolute(), arguments[1], arguments[2:])
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
