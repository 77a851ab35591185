"""Programs of users before mypy, pyright and ty: at which lines each of them finds an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tests.type_checking import ROOT, complaints

_PLACE = re.compile(r"program\.py:(\d+):(?:\d+:)? error")


def _mypy(program: str, folder: Path) -> set[int]:
    return {int(found[1]) for found in map(_PLACE.match, complaints(program, folder)) if found}


def _said(command: list[str], program: str, folder: Path) -> str:
    (folder / "program.py").write_text(program.removeprefix("\n"))
    own = sysconfig.get_path("scripts")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    command = [str(Path(own) / command[0]), *command[1:], "program.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def _pyright(program: str, folder: Path) -> set[int]:
    found = json.loads(_said(["pyright", "--pythonpath", sys.executable, "--outputjson"], program, folder))
    assert found["summary"]["filesAnalyzed"] == 1
    return {one["range"]["start"]["line"] + 1 for one in found["generalDiagnostics"] if one["severity"] == "error"}


def _ty(program: str, folder: Path) -> set[int]:
    options = ["--python", sys.prefix, "--extra-search-path", str(ROOT), "--output-format", "concise", "--color", "never"]
    said = _said(["ty", "check", *options], program, folder)
    assert said, "ty says nothing, not even that all is well"
    return {int(found[1]) for found in map(_PLACE.match, said.splitlines()) if found}


CHECKERS: dict[str, Callable[[str, Path], set[int]]] = {"mypy": _mypy, "pyright": _pyright, "ty": _ty}


def expected(program: str, checker: str) -> set[int]:
    """The lines that end with ``# E``, or with ``# E: mypy pyright`` for these checkers alone."""
    marked = ((number, line.partition("# E")) for number, line in enumerate(program.removeprefix("\n").splitlines(), 1))
    return {number for number, (_, mark, of) in marked if mark and (not of or checker in of.lstrip(":").split())}
