"""Another checkout of this project as a row, ``--old FOLDER``: each worker starts a process that imports its ``queue_db``."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, Table, make_url

from benchmarks.peers.common import Peer
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.database.database import COUNTED
from queue_db.dialects import dialect_for
from queue_db.errors import QueueDBError

_PROGRAM = Path(__file__).with_name("checkout_process.py")

#: Seconds between two looks whether the run was stopped from outside.
_LOOK_EVERY = 0.25

#: Fields of the notes, and the product's counters that they come from.
_COUNTERS = {"rounds": "attempts", "candidates": "candidates", "won": "claimed", "statements": "statements"}


class CheckoutError(QueueDBError):
    """A process of another checkout failed."""


class _EndedError(Exception):
    """The process has ended too early."""


@dataclass(frozen=True)
class Checkout(Peer):
    """The default strategy of another checkout.

    :param folder: where its ``queue_db`` and ``migrations`` are.
    :param one_verb: jobs are completed with the next claim.
    """

    name: str = "old"
    claim: str = "its default strategy"
    removal: str = "its default"
    index: str = "that of its migrations"
    folder: Path | None = None
    one_verb: bool = False

    databases = ("postgresql", "mysql", "mariadb", "sqlite")

    def set_up(self, target: Target, jobs: int) -> None:
        """Let the checkout create its tables and enqueue; count from 0."""
        self._tally(target).write_bytes(array("q", [jobs, 0, *([0] * target.workers)]).tobytes())
        with self._process(target, jobs=jobs) as process:
            if _line(process) != "filled":
                raise _EndedError
        with autocommitting(target.url) as engine, engine.connect() as connection:
            table = Table("jobs", MetaData(schema=target.schema))
            Laboratory.of(dialect_for(engine.dialect.name)).analyze(connection, table)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Let a process of the checkout work, and take over its record."""
        counters = [*_COUNTERS.values(), *COUNTED.values()]
        asked = {"number": context.number, "batch": self.batch, "one_verb": self.one_verb, "counters": counters}
        with self._process(target, tally=str(self._tally(target)), **asked) as process:
            if _line(process) != "ready":
                raise _EndedError
            context.wait_for_start()
            print("go", file=process.stdin, flush=True)
            assert process.stdout is not None  # noqa: S101 - requested below
            while not select.select([process.stdout.fileno()], [], [], _LOOK_EVERY)[0]:
                if context.over:
                    with self._tally(target).open("r+b") as file:
                        file.seek(8)
                        file.write(array("q", [1]).tobytes())
            try:
                record = json.loads(_line(process))
            except ValueError:
                raise _EndedError from None
        counted = record["counters"]
        own = {name: counted[counter] for name, counter in _COUNTERS.items()}
        context.notes = replace(context.notes, **record["notes"], **own)
        for fault, counter in COUNTED.items():
            context.notes.faults[fault] += counted[counter]
        context.tally.add(context.number, begun=len(context.notes.jobs), left=context.notes.left)
        clock = context.cpu_clock
        context.cpu_clock = lambda: clock() + record["cpu"]

    def tear_down(self, target: Target) -> None:
        """Drop the tables with their schema."""
        self._tally(target).unlink(missing_ok=True)
        with autocommitting(target.url) as engine:
            laboratory, schema = Laboratory.of(dialect_for(engine.dialect.name)), target.schema or ""
            with engine.connect() as connection:
                laboratory.drop_scratch_schema(connection, schema)
            with engine.connect() as connection:
                laboratory.make_scratch_schema(connection, schema)

    def _tally(self, target: Target) -> Path:
        """The file in which the processes count: the jobs at the start, 1 to stop at once, and what each has removed."""
        name = target.schema or Path(make_url(target.url).database or "").stem
        return Path(tempfile.gettempdir()) / f"{name}.tally"

    @contextmanager
    def _process(self, target: Target, **task: Any) -> Iterator[subprocess.Popen[str]]:
        """Start a process with this task, and wait for its end."""
        folder = str(self.folder)
        # A file and no pipe for what it writes about its errors: nobody reads that before its end.
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(  # noqa: S603 - a script of this repository
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": folder},
            )
            try:
                task |= {"folder": folder, "url": target.url, "schema": target.schema}
                print(json.dumps(task), file=process.stdin, flush=True)
                yield process
            except _EndedError:
                process.communicate()
                errors.seek(0)
                lines = errors.read().strip().splitlines() or [f"ended with status {process.returncode}"]
                raise CheckoutError(f"old: {lines[-1]}") from None
            except BaseException:
                process.kill()
                raise
            finally:
                process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101 - requested above
    return process.stdout.readline().strip()
