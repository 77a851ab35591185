"""Programs of users before mypy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def complaints(program: str, folder: Path) -> list[str]:
    """What ``mypy --strict`` says of a program in an empty folder, from the second line of ``program`` as line 1."""
    (folder / "program.py").write_text(program.removeprefix("\n"))
    # The settings are the project's: then what `make lint` knows of the package is used, instead of checking it again.
    options = ["--strict", f"--config-file={ROOT}/pyproject.toml", f"--cache-dir={ROOT}/.mypy_cache", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()
