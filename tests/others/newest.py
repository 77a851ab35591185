"""Virtual environments on the newest Python of Debian: its packages are unpacked beside those of the servers, not installed.

For suites whose newest packages want a newer Python than the one that tests the checkout: Django 6 wants 3.12.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.servers import releases
from tools import debian_packages

#: The name of the package and of its program.
PYTHON = "python3.14"
_SUITE = "sid"


def version() -> str:
    """The version of this Python, such as ``3.14.10``; it is unpacked at the first use.

    :raises Unavailable: its packages cannot be had on this machine.
    """
    return _answer([*_command(), "-c", "import platform; print(platform.python_version())"])


def sqlite_version() -> str:
    """The version of its SQLite."""
    return _answer([*_command(), "-c", "import sqlite3; print(sqlite3.sqlite_version)"])


def make(place: Path) -> None:
    """Make a virtual environment with pip; it stays at this place.

    :raises Unavailable: the packages of Python cannot be had on this machine.
    """
    tree, programs = _tree(), place / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (place / "lib" / PYTHON / "site-packages").mkdir(parents=True, exist_ok=True)
    settings = {"home": tree / "usr/bin", "include-system-site-packages": "false", "version": version()}
    (place / "pyvenv.cfg").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    # The loader of the tree starts the program. As argv[0] it gets the name of this script: there Python looks for pyvenv.cfg,
    # and sys.executable, with which tests start processes, is this script.
    loader, *options = _command()
    script = programs / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(loader)} --argv0 "$0" {shlex.join(options)} "$@"\n')
    script.chmod(0o755)
    # Debian's ensurepip looks for the wheel in /usr/share, where this machine has that of its own Python.
    (pip,) = (tree / "usr/share/python-wheels").glob("pip-*.whl")
    _answer([str(script), str(pip / "pip"), "install", "--quiet", "--disable-pip-version-check", str(pip)])


def _tree() -> Path:
    return releases.debian_tree(_SUITE, PYTHON, PYTHON, f"{PYTHON}-venv")


def _command() -> list[str]:
    return debian_packages.command(_tree(), f"usr/bin/{PYTHON}")


def _answer(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise debian_packages.Unavailable(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
