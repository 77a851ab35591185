"""Which tests reach which lines: recorded once, so that a mutant is tried with the tests that run the changed line.

``Recorder`` is a plugin of pytest that writes the record; ``Reached`` reads it and chooses.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.mutants.mutate import Mutant

_Lines = set[int]

# Files whose tests are run before those of all others.
_FILES = 3


class Recorder:
    """Trace the lines of ``files`` that each test reaches, in all threads of this process, and its seconds.

    Tests that fail or are skipped are left out of the record. It is written again from time to time, for runs that are interrupted.

    :param servers: files whose tests are also recorded on PostgreSQL; those of the others are not.
    """

    def __init__(self, folder: Path, files: Iterable[str], to: Path, servers: Iterable[str] = ()) -> None:
        self._servers = tuple(servers)
        self._files = list(files)
        self._now: dict[str, _Lines] = {str(folder / name): set() for name in self._files}
        self._names = {str(folder / name): name for name in self._files}
        self._digest = digest(folder, self._files)
        self._to = to
        self._tests: list[tuple[str, float]] = []
        self._reached: dict[str, dict[int, int]] = {name: defaultdict(int) for name in self._files}
        self._seconds = 0.0
        self._passed = False

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        lines = self._now.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        wanted = [item for item in items if self._wanted(item)]
        config.hook.pytest_deselected(items=[item for item in items if not self._wanted(item)])
        items[:] = wanted

    def _wanted(self, item: pytest.Item) -> bool:
        # Spark calls the code in processes of its own.
        seen = "spark" not in getattr(item, "fixturenames", ())
        return seen and (not is_on("postgresql", item.nodeid) or item.nodeid.startswith(self._servers))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        for lines in self._now.values():
            lines.clear()
        self._seconds, self._passed = 0.0, False
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)  # type: ignore[return-value]
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if self._passed:
                self._note(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.when == "call":
            self._passed = report.passed
        elif not report.passed:
            self._passed = False

    def _note(self, nodeid: str) -> None:
        bit = 1 << len(self._tests)
        self._tests.append((nodeid, round(self._seconds, 3)))
        for path, lines in self._now.items():
            masks = self._reached[self._names[path]]
            for number in list(lines):
                masks[number] |= bit
        if len(self._tests) % 500 == 0:
            self._write()

    def pytest_sessionfinish(self) -> None:
        self._write()

    def _write(self) -> None:
        reached = {name: {number: f"{mask:x}" for number, mask in masks.items()} for name, masks in self._reached.items()}
        self._to.write_text(json.dumps({"digest": self._digest, "tests": self._tests, "reached": reached}))


def digest(folder: Path, files: Iterable[str]) -> str:
    """Of the texts of these files: a record holds for these texts alone."""
    texts = hashlib.sha256()
    for name in sorted(files):
        texts.update(name.encode() + (folder / name).read_bytes())
    return texts.hexdigest()


class Reached:
    """A record, to choose from."""

    def __init__(self, record: Path, folder: Path) -> None:
        read = json.loads(record.read_text())
        if read["digest"] != digest(folder, read["reached"]):
            raise SystemExit(f"{record} is of another state of the code: delete it")
        self._folder = folder
        self._tests: list[tuple[str, float]] = [(nodeid, seconds) for nodeid, seconds in read["tests"]]
        self._masks = {name: {int(line): int(mask, 16) for line, mask in lines.items()} for name, lines in read["reached"].items()}

    def seconds(self, nodeid: str) -> float:
        """How long it took."""
        return dict(self._tests).get(nodeid, 0.0)

    def tests(self, mutant: Mutant, budget: float, kind: str = "sqlite") -> list[str]:
        """The tests to run on a mutant, one of each function first, cheap ones first; together at most ``budget`` seconds.

        On PostgreSQL those that were recorded there, and the twins of those that were recorded on SQLite.

        Those that reach the changed line. If it runs at import, or no test reaches it: those that reach its function, or its file.
        """
        masks = self._masks.get(mutant.path, {})
        for lines in self._wider(mutant):
            mask = 0
            for line in lines:
                mask |= masks.get(line, 0)
            if mask:
                return self._within(budget, mask, kind)
        return []

    def about(self, chosen: Sequence[str]) -> list[str]:
        """Those of a few files: of the files most of whose tests are chosen. They are likely to fail, and soon collected."""
        sizes = Counter(map(_file_of, (nodeid for nodeid, _ in self._tests)))
        share = {file: count / sizes[file] for file, count in Counter(map(_file_of, chosen)).items() if sizes[file]}
        files = sorted(share, key=lambda file: -share[file])[:_FILES]
        return [nodeid for nodeid in chosen if _file_of(nodeid) in files]

    def reaches(self, mutant: Mutant) -> bool:
        """Whether a test reaches the changed line, as far as that can be seen: what runs at import counts as reached."""
        masks = self._masks.get(mutant.path, {})
        first, *others = self._wider(mutant)
        return len(others) == 0 or any(line in masks for line in first)

    def _wider(self, mutant: Mutant) -> list[Iterable[int]]:
        source = (self._folder / mutant.path).read_text()
        every = range(1, len(source.splitlines()) + 1)
        last = mutant.line + mutant.old.count("\n")
        around = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.body]
        inside = [node for node in around if node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)]
        if not inside:
            return [every]
        function = max(inside, key=lambda node: node.lineno)
        body = range(function.body[0].lineno, (function.end_lineno or 0) + 1)
        return [range(mutant.line, last + 1), body, every]

    def _within(self, budget: float, mask: int, kind: str) -> list[str]:
        reaching = [test for number, test in enumerate(self._tests) if mask >> number & 1]
        if kind == "sqlite":
            found = [test for test in reaching if not is_on("postgresql", test[0])]
        else:
            twins = ((nodeid.replace("sqlite", kind), seconds) for nodeid, seconds in reaching)
            found = list(dict(test for test in twins if is_on(kind, test[0])).items())
        found.sort(key=lambda test: (function_of(test[0]), test[1]))
        ranked = []
        for _, variants in groupby(found, key=lambda test: function_of(test[0])):
            ranked += [(number, seconds, nodeid) for number, (nodeid, seconds) in enumerate(variants)]
        chosen, together = [], 0.0
        for _, seconds, nodeid in sorted(ranked):
            if together + seconds <= budget:
                together += seconds
                chosen.append(nodeid)
        return chosen


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def is_on(kind: str, nodeid: str) -> bool:
    """Whether the test is one on this kind of database."""
    return kind in nodeid.partition("[")[2]


def function_of(nodeid: str) -> str:
    """The test without its parameters."""
    return re.sub(r"\[.*", "", nodeid)
