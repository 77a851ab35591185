"""A copy of the checkout, in which one file at a time is changed, and tests that run in it."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import alembic.command  # noqa: F401 - for the processes that are forked
import psycopg2  # noqa: F401
import pytest
import sqlalchemy.orm  # noqa: F401

from tests.databases import KINDS
from tests.mutants.areas import ROOT
from tests.mutants.mutate import Mutant

_COPIED = ("queue_db", "tests", "tools", "migrations", "benchmarks", "spark_jobs", "docs", "pyproject.toml", "README.md")

#: Seconds that each test may take, and how many times as long as it took when it was recorded: a mutant may make it endless.
_PATIENCE, _TIMES = 30.0, 20.0


class Chosen:
    """A plugin of pytest: these tests alone, in this order, each with a limit of its own."""

    def __init__(self, nodeids: Sequence[str], seconds: Callable[[str], float]) -> None:
        self._rank = {nodeid: number for number, nodeid in enumerate(nodeids)}
        self._seconds = seconds
        self._output = os.fdopen(os.dup(1), "w")  # pytest is going to redirect the number 1

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        mine = sorted((item for item in items if item.nodeid in self._rank), key=lambda item: self._rank[item.nodeid])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._rank])
        items[:] = mine

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        print(f"\nBEGAN {item.nodeid}", file=self._output, flush=True)
        faulthandler.dump_traceback_later(_PATIENCE + _TIMES * self._seconds(item.nodeid), exit=True, file=self._output)
        try:
            return (yield)  # type: ignore[return-value]
        finally:
            faulthandler.cancel_dump_traceback_later()


class Bench:
    """The copy, and the server of its tests."""

    def __init__(self, folder: Path, url: str, limit: float) -> None:
        self.folder = folder
        self._limit = limit
        self._environment = {"QUEUE_DB_TEST_POSTGRES_URL": url, "PYTHONPATH": str(folder)}
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, folder / name)

    @contextmanager
    def changed(self, together: list[Mutant]) -> Iterator[None]:
        """The copy with these mutants in it; of two that overlap only the last one."""
        before: dict[Path, str] = {}
        try:
            for path in {one.path for one in together}:
                file = self.folder / path
                before[file] = text = file.read_text()
                begin = len(text.encode())
                for one in sorted((one for one in together if one.path == path), key=lambda one: -one.start):
                    if one.end <= begin:
                        text, begin = one.applied(text), one.start
                self._write(file, text)
            yield
        finally:
            for file, text in before.items():
                self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # it goes by size and second, which may be those of the text before

    def pytest(
        self, arguments: Sequence[str], kinds: Sequence[str] = KINDS, *plugins: Callable[[], object], limit: float | None = None
    ) -> tuple[int | None, str]:
        """Exit status of pytest up to the first failure (None: it was ended at the limit), and output.

        ``plugins`` are made in the child.
        """
        others = " and ".join(f"not {kind}" for kind in KINDS if kind not in kinds)
        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", *(["-k", others] if others else []), *arguments]
        return self.run(lambda: pytest.main(options, plugins=[plugin() for plugin in plugins]), limit)

    def run(self, work: Callable[[], Any], limit: float | None = None) -> tuple[int | None, str]:
        """The exit status of ``work`` in a child in the copy, and output."""
        with tempfile.TemporaryFile("w+") as output:
            sys.stdout.flush()
            pid = os.fork()  # with pytest and the drivers imported: half of the time of a short run
            if pid == 0:
                self._become(work, output.fileno())
            answer = _wait(pid, limit or self._limit)
            output.seek(0)
            return answer, output.read()

    def _become(self, work: Callable[[], Any], output: int) -> NoReturn:
        status = 3
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.folder)
            os.environ |= self._environment
            sys.path[:] = [str(self.folder), *(path for path in sys.path if path not in {"", str(ROOT)})]
            for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", "tools", "queue_db"}]:
                del sys.modules[name]
            status = int(work())
        except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(status)


def _wait(pid: int, limit: float) -> int | None:
    """The exit status of a child, or None if it had to be ended; its own children end with it."""
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return None


def first_failure(output: str) -> str:
    """The test that failed, or what else ended the run."""
    if found := re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE):
        return found[1]
    began = re.findall(r"^BEGAN (.+)", output, re.MULTILINE)
    return f"{began[-1]} does not end" if began else "the tests cannot be collected"
