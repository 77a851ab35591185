"""A client in TypeScript, generated from the service's OpenAPI document, and its dependencies as the lock file has them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parent / "node"
_CACHE = Path(__file__).parents[2] / ".cache" / "node"

#: Seconds for a download, a generation, a compilation.
_LONGEST = 300


def built(openapi: dict[str, Any], folder: Path) -> Path:
    """Generate the client, compile it with ``drain.ts``, and return the program."""
    modules = _modules()
    for name in ("drain.ts", "tsconfig.json"):
        shutil.copy(SOURCES / name, folder)
    (folder / "node_modules").symlink_to(modules)
    (folder / "openapi.json").write_text(json.dumps(openapi))
    binaries = modules / ".bin"
    _run(folder, str(binaries / "openapi-ts"), "-i", "openapi.json", "-o", "client", "-c", "@hey-api/client-fetch", "--no-log-file")
    _run(folder, str(binaries / "tsc"), "-p", ".")
    return folder / "out" / "drain.js"


def _modules() -> Path:
    """The dependencies, installed once for each content of the lock file."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is missing, which the generated client needs (Node 20 or newer): apt-get install nodejs npm")
    locked = b"".join((SOURCES / name).read_bytes() for name in ("package.json", "package-lock.json"))
    home = _CACHE / hashlib.sha256(locked).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, home)
            _run(home, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
            (home / "complete").touch()
    return home / "node_modules"


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LONGEST, check=False)
    if done.returncode:
        pytest.fail(f"this fails, and must not: cd {folder} && {' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
