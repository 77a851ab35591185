"""A client in TypeScript, generated from the service's OpenAPI document, and its dependencies as the lock file has them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

SOURCES = Path(__file__).parent / "node"
_CACHE = Path(__file__).parents[2] / ".cache" / "node"

#: Seconds for a generation, a compilation; for the download of the dependencies; until another process has downloaded them.
_LONGEST = 300.0
_DOWNLOAD = 600.0
_OTHERS = 2 * _DOWNLOAD


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
        _locked(lock)
        if not (home / "complete").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, home)
            # One request that hangs is given up after a minute and made again.
            patient = ("--fetch-timeout=60000", "--fetch-retries=3", "--prefer-offline")
            _run(home, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", *patient, longest=_DOWNLOAD)
            (home / "complete").touch()
    return home / "node_modules"


def _locked(lock: IO[str], longest: float = _OTHERS) -> None:
    """Wait while another process, of this test run or another one, installs the dependencies."""
    until = time.monotonic() + longest
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                pytest.fail(f"another process has held {lock.name} for {longest:g} s: it installs the generated client's packages")
            time.sleep(0.1)


def _run(folder: Path, *command: str, longest: float = _LONGEST) -> None:
    """Run a command to its end; after ``longest`` seconds it and the processes that it has started are killed."""
    # In a file: a pipe is open as long as any process that the command has started.
    with tempfile.TemporaryFile("w+") as output:
        started = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        ended = None
        try:
            ended = started.wait(longest)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        if ended == 0:
            return
        output.seek(0)
        how = f"does not end within {longest:g} s (is the npm registry slow?)" if ended is None else f"fails ({ended})"
        pytest.fail(f"this {how}, and must not: cd {folder} && {shlex.join(command)}\n{output.read()[-6000:]}")
