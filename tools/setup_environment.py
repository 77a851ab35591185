#!/usr/bin/env python3
"""Make the project's environment: a virtual environment with everything that `requirements.lock` pins, and the project.

    python3 tools/setup_environment.py

It makes `.venv` in the checkout, or the folder that QUEUE_DB_VENV names. Running it again costs a blink: it does
something only if the lock, the project's metadata or the Python changed.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LOCK = CHECKOUT / "requirements.lock"
OLDEST = (3, 11)


def main() -> int:
    """Bring the environment up to date."""
    trouble = missing()
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    folder = Path(os.environ.get("QUEUE_DB_VENV") or CHECKOUT / ".venv").absolute()
    stamp = folder / "queue-db-environment"
    wanted = fingerprint()
    if stamp.is_file() and stamp.read_text() == wanted:
        return 0
    try:
        build(folder)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        print(f"Setting up {folder} failed: {command} ended with {error.returncode}.", file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    print(f"The environment is ready: {folder}", flush=True)
    return 0


def missing() -> str:
    """Return a sentence about what this Python lacks, or nothing."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info < OLDEST:
        return (
            f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, and {sys.executable} is {version}. "
            "Name a newer one with: make PYTHON=python3.12 ..."
        )
    try:
        import ensurepip  # noqa: F401  # Debian and Ubuntu leave it out of their python3 package
        import venv  # noqa: F401
    except ImportError:
        return (
            "Python's venv module is missing. On Debian and Ubuntu: "
            f"apt-get update && apt-get install -y python3-venv   (or python{version}-venv)"
        )
    return ""


def fingerprint() -> str:
    """Return what the environment depends on, in short."""
    parts = [LOCK.read_text(), (CHECKOUT / "pyproject.toml").read_text(), sys.version, str(CHECKOUT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def build(folder: Path) -> None:
    """Make or mend the virtual environment and install into it."""
    python = folder / "bin" / "python"
    show(f"Making the environment in {folder}")
    # Mended in place if its Python still runs, else made anew: it may have moved, or its Python may be gone.
    works = [str(python), "-m", "pip", "--version"]
    if not python.exists() or subprocess.run(works, capture_output=True, check=False).returncode != 0:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    show("Installing what requirements.lock pins (Spark is half a gigabyte: the first time takes a minute)")
    # The lock is complete, so nothing is resolved here; `pip check` says if that ever stops being true.
    wanted = ["install", "--no-deps", "--requirement", str(LOCK)]
    # uv takes a third of the time, but does not know the index that somebody has configured for pip.
    configured = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    own_index = any(line.partition("=")[0].endswith(".index-url") for line in configured.splitlines())
    uv = [str(folder / "bin" / "uv"), "pip", *wanted, "--python", str(python)]
    if own_index or not (succeeds([*pip, "install", "--quiet", "uv"]) and succeeds(uv)):
        show("pip does it, which takes longer")
        subprocess.run([*pip, *wanted], check=True)
    show("Installing the project itself, editable")
    subprocess.run([*pip, "install", "--no-deps", "--editable", str(CHECKOUT)], check=True)
    subprocess.run([*pip, "check"], check=True)


def succeeds(command: list[str]) -> bool:
    """Whether a command ends well."""
    return subprocess.run(command, check=False).returncode == 0


def show(step: str) -> None:
    """Say what comes next, before its own output does."""
    print(f"==> {step}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
