"""A suite of another project: what it needs, how it is run, and which of its tests may fail, with the reason of each.

Nothing of another project is kept in the checkout: its package and its environment are in the cache folder of the servers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.others import newest
from tests.servers.folders import cache_folder
from tools.debian_packages import Unavailable

CHECKOUT = Path(__file__).resolve().parents[2]


class SuiteFailed(Exception):
    """The suite could not be run; the text is the reason."""


@dataclass(frozen=True)
class Run:
    """One run of a suite on one database."""

    #: A copy of the unpacked source, for this run alone.
    folder: Path
    #: An empty database.
    url: str
    kind: str
    #: The interpreter of the suite's environment. It imports queue_db from the checkout.
    python: str
    #: The JUnit report that the command writes.
    report: Path

    def pytest(self, *arguments: str) -> list[str]:
        """The command that runs pytest with these arguments and writes the report."""
        return [self.python, "-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={self.report}", *arguments]


def without(left_out: Iterable[str]) -> list[str]:
    """The options of pytest that leave out files and tests."""
    return [f"--{'ignore' if test.endswith('.py') else 'deselect'}={test}" for test in left_out]


def _nothing(run: Run) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Suite:
    """A suite of another project.

    :param source: a pinned requirement, such as ``kombu==5.7.0``, whose package contains the tests; empty: tests of the checkout.
    :param requirements: pinned requirements of the environment, besides the dependencies of queue_db.
    :param extras: the extras of queue_db whose dependencies the environment gets.
    :param kinds: the databases.
    :param prepare: changes the copy of the source, makes tables, and so on.
    :param command: the command that runs the suite, in the folder of the run.
    :param left_out: files and tests that the command leaves out, with the reason, for the page.
    :param differences: tests that are expected to fail, with the reason: ``classname::name`` as in the JUnit report.
    :param differences_on: the same for one database.
    :param framework: the package whose version the page shows for a run on the newest Python.
    :param adapted: one sentence: what of the suite is not run, or not its own. The page shows it.
    :param wheel: whether the source is a wheel, not an sdist.
    :param environment: variables for the command.
    :param timeout: seconds after which a run is ended.
    """

    name: str
    version: str
    source: str
    requirements: Sequence[str]
    kinds: Sequence[str]
    command: Callable[[Run], Sequence[str]]
    prepare: Callable[[Run], None] = _nothing
    extras: Sequence[str] = ("postgresql", "mysql", "migrate")
    left_out: Mapping[str, str] = field(default_factory=dict)
    differences: Mapping[str, str] = field(default_factory=dict)
    differences_on: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    framework: str = ""
    adapted: str = ""
    wheel: bool = False
    environment: Callable[[Run], Mapping[str, str]] = lambda run: {}
    timeout: float = 3600

    def expected(self, kind: str) -> dict[str, str]:
        """The tests that are expected to fail on one database, with the reasons."""
        return {**self.differences, **self.differences_on.get(kind, {})}


@dataclass(frozen=True)
class Outcome:
    """What a run's report says: the tests by what became of them."""

    passed: frozenset[str]
    failed: frozenset[str]
    #: Test → the reason that it gave.
    skipped: Mapping[str, str]

    def surprises(self, expected: Mapping[str, str]) -> list[str]:
        """What fails the run, as sentences: a failure without a reason, and a reason without a failure."""
        return [
            *(f"failed, and no difference is known: {test}" for test in sorted(self.failed - expected.keys())),
            *(f"passed, but a difference is known: {test}" for test in sorted(self.passed & expected.keys())),
            *(
                f"a difference is known, but there is no such test: {test}"
                for test in sorted(expected.keys() - self.passed - self.failed - self.skipped.keys())
            ),
            *([] if self.passed or self.failed else ["no test ran"]),
        ]


def read_report(report: Path) -> Outcome:
    """Read a JUnit report. A test with several entries, as from reruns, failed if one of them failed.

    :raises SuiteFailed: there is none, or it is not complete.
    """
    try:
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - the run has written it
    except (OSError, ET.ParseError) as error:
        raise SuiteFailed(f"the suite wrote no report: {error}") from error
    passed: set[str] = set()
    failed: set[str] = set()
    skipped: dict[str, str] = {}
    for case in cases:
        test = f"{case.get('classname')}::{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(test)
        elif skip is not None:
            skipped[test] = skip.get("message", "")
        else:
            passed.add(test)
    return Outcome(frozenset(passed - failed), frozenset(failed), skipped)


def run(suite: Suite, kind: str, url: str, *, on_newest: bool = False) -> Outcome:
    """Run a suite on an empty database, on the Python of the checkout or on the newest one.

    :raises SuiteFailed: its environment, source or report could not be had.
    """
    python = _environment(suite, on_newest=on_newest)
    with tempfile.TemporaryDirectory(prefix="queue-db-others-") as made:
        folder = Path(made) / "suite"
        if suite.source:
            shutil.copytree(_source(suite), folder, symlinks=True)
        else:
            folder.mkdir()
        this = Run(folder, url, kind, python, Path(made) / "report.xml")
        suite.prepare(this)
        variables = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1", **suite.environment(this)}
        _run(list(suite.command(this)), folder, variables, suite.timeout)
        return read_report(this.report)


def _run(command: list[str], folder: Path, variables: Mapping[str, str], timeout: float) -> None:
    """Run a command in a process group of its own, which is ended with it."""
    process = subprocess.Popen(command, cwd=folder, env=variables, start_new_session=True)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise SuiteFailed(f"the suite did not end within {timeout:.0f} s") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _source(suite: Suite) -> Path:
    """The folder of the unpacked package."""
    place = cache_folder().parent / "others" / "sources" / suite.source.replace("==", "-")
    if not place.is_dir():
        with _unfinished(place) as work:
            form = ["--only-binary", ":all:"] if suite.wheel else ["--no-binary", ":all:"]
            _pip(sys.executable, "download", "--no-deps", *form, "--dest", str(work / "package"), suite.source)
            package = next((work / "package").iterdir())
            unpacked = work / "unpacked"
            if package.suffix in {".whl", ".zip"}:
                with zipfile.ZipFile(package) as archive:
                    archive.extractall(unpacked)  # noqa: S202 - pinned, from the package index
            else:
                with tarfile.open(package) as tar:
                    tar.extractall(unpacked, filter="data")
            inside = list(unpacked.iterdir())
            (inside[0] if len(inside) == 1 and not suite.wheel else unpacked).rename(work / "done")
    return place


def versions_of_newest(suite: Suite) -> str:
    """The versions of the newest Python and of the suite's framework there: ``Python 3.14.10, django 6.1.3``.

    :raises SuiteFailed: they cannot be had.
    """
    python = f"Python {_newest_version()}"
    if not suite.framework:
        return python
    asked = f"import importlib.metadata; print(importlib.metadata.version({suite.framework!r}))"
    command = [_environment(suite, on_newest=True), "-c", asked]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    return f"{python}, {suite.framework} {found}"


def _newest_version() -> str:
    try:
        return newest.version()
    except Unavailable as error:
        raise SuiteFailed(f"no {newest.PYTHON}: {error}") from error


def _environment(suite: Suite, *, on_newest: bool = False) -> str:
    """The interpreter of a virtual environment with the suite's requirements and the dependencies of queue_db."""
    wanted = sorted({*suite.requirements, *dependencies(suite.extras)})
    lock = (CHECKOUT / "requirements.lock").read_bytes()
    version = _newest_version() if on_newest else sys.version
    key = hashlib.sha256(repr((version, wanted, lock)).encode()).hexdigest()[:16]
    place = cache_folder().parent / "others" / "environments" / f"{suite.name}-{key}"
    python = place / "bin" / "python"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)  # another run makes it now
        if not (place / "complete").exists():
            # A virtual environment cannot be moved: it is marked when it is complete.
            if on_newest:
                shutil.rmtree(place, ignore_errors=True)
                newest.make(place)
            else:
                subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            _pip(str(python), "install", "--quiet", *wanted)
            (place / "complete").touch()
    return str(python)


def dependencies(extras: Sequence[str]) -> list[str]:
    """The requirements of queue_db with these extras, from ``pyproject.toml``."""
    project: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        for requirement in project["optional-dependencies"][waiting.pop()]:
            if requirement.startswith("queue-db["):
                waiting += requirement.removeprefix("queue-db[").rstrip("]").split(",")
            else:
                found.append(requirement)
    return found


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SuiteFailed(f"pip {' '.join(arguments)} failed:\n{done.stderr.strip()[-2000:]}")


class _unfinished:  # noqa: N801 - it is used as a function
    """A folder whose part ``done`` becomes the place, if no other run was faster."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> Path:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._work = Path(tempfile.mkdtemp(dir=self._place.parent))
        return self._work

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        if kind is None:
            with suppress(OSError):  # another run was faster
                (self._work / "done").rename(self._place)
        shutil.rmtree(self._work, ignore_errors=True)
