"""An upgrade and its way back on a real database, with producers and workers of both versions at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import create_engine

from tests.rehearsal import ledger
from tests.rehearsal.versions import Version

PROGRAM = Path(__file__).with_name("program.py")

#: Seconds after which a rehearsal gives up what it waits for.
PATIENCE = 120.0


class Failed(Exception):
    """A step of the rehearsal did not succeed; the text has what its process said."""


@dataclass
class Rehearsal:
    """``old`` → ``new`` → ``old`` in a database without tables of the queue.

    :param each: what each process makes and does in each stage before the next one begins, jobs and messages.
    """

    url: str
    folder: Path
    old: Version
    new: Version
    each: int = 60
    say: Callable[[str], None] = lambda line: None
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._engine = create_engine(self.url)
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._engine.dispose()

    def run(self) -> list[str]:
        """Rehearse; return what was against the promises.

        :raises Failed: a command or a process ended with an error, or did not go on.
        """
        self._tell(f"{self.old.name} with tables {self.old.head} → {self.new.name} with tables {self.new.head}")
        self.queue_db(self.old, "migrate")
        ledger.create(self._engine)
        self._start(self.old, "old-worker-1", "old-worker-2", "old-producer")
        self._all_go_on("the old version works")
        additive = self._additive()
        if not additive:
            self._tell(f"migration {self.new.head} is not additive: all processes stop for it")
            self._stop("old-worker-1", "old-worker-2", "old-producer")
        self.queue_db(self.new, "migrate")
        self._tell("the tables are new")
        if additive:
            self._all_go_on("the old version works on new tables")
        self._start(self.new, "new-worker-1", "new-producer")
        self._all_go_on("both versions work side by side" if additive else "the new version works")
        if additive:
            self._stop("old-worker-1", "old-worker-2", "old-producer")
            self._all_go_on("the new version works alone")
            self._start(self.old, "returned-worker-1", "returned-producer")
            self._all_go_on("the code goes back beside the new one, the tables stay")
        self._stop("new-worker-1", "new-producer")
        self.queue_db(self.new, "migrate", "--revision", self.old.head, "--yes")
        self._tell("the tables are old again")
        if not additive:
            self._start(self.old, "returned-worker-1", "returned-producer")
        self._all_go_on("the old version works on tables that were migrated down")
        self._stop("returned-producer")
        self._wait("all is done", lambda: not ledger.open_ones(self._engine))
        self._stop("returned-worker-1")
        self.queue_db(self.old, "doctor")
        found = ledger.violations(self._engine, self.folder)
        self._tell(f"{sum(ledger.made_by(self._engine).values())} jobs and messages, {len(found)} violations")
        return found

    def queue_db(self, version: Version, *arguments: str) -> str:
        """Run a command of a version."""
        command = [sys.executable, "-m", "queue_db", *arguments]
        done = subprocess.run(
            command, env=self._environment(version), capture_output=True, text=True, cwd=self.folder, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise Failed(f"queue-db {' '.join(arguments)} of {version.name}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _additive(self) -> bool:
        """Whether the old code works with the new tables, as the migrations declare it."""
        code = (
            "from alembic.script import ScriptDirectory\n"
            "from queue_db.administration.migrate import configuration, works_since\n"
            "from queue_db.store.schema.tables import HEAD, tables\n"
            "print(works_since(ScriptDirectory.from_config(configuration(tables())), HEAD))"
        )
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(command, env=self._environment(self.new), cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip() <= self.old.head

    def _environment(self, version: Version) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUEUE_DB"))}
        return kept | {"PYTHONPATH": str(version.folder), "QUEUE_DB_URL": self.url}

    def _start(self, version: Version, *names: str) -> None:
        for name in names:
            role = "producer" if "producer" in name else "worker"
            with (self.folder / f"{name}.err").open("ab") as said:
                self._running[name] = subprocess.Popen(
                    [sys.executable, "-P", str(PROGRAM), role, self.url, str(self.folder), name],
                    env=self._environment(version),
                    cwd=self.folder,
                    stdout=said,
                    stderr=said,
                )

    def _stop(self, *names: str) -> None:
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        for name in names:
            status = self._running[name].wait(PATIENCE)
            del self._running[name]
            if status:
                raise Failed(f"{name} ended with status {status}\n{self._said(name)}")

    def _all_go_on(self, stage: str) -> None:
        """Wait until each running process has made or done ``each`` more."""
        before = self._progress()

        def went_on() -> bool:
            now = self._progress()
            return all(now[name] >= before[name] + self.each for name in self._running)

        self._wait(stage, went_on)
        self._tell(stage)

    def _progress(self) -> dict[str, int]:
        made, done = ledger.made_by(self._engine), ledger.done_by(self._engine)
        return {name: made[name] + done[name] for name in self._running}

    def _wait(self, stage: str, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not reached():
            for name, process in self._running.items():
                if (status := process.poll()) is not None:
                    raise Failed(f"{stage}: {name} ended by itself with status {status}\n{self._said(name)}")
            if time.monotonic() > until:
                said = "\n".join(self._said(name) for name in self._running)
                raise Failed(f"{stage}: not within {PATIENCE:.0f} s; {self._progress()}\n{said}")
            time.sleep(0.05)

    def _said(self, name: str) -> str:
        files = [self.folder / f"{name}.{end}" for end in ("log", "err")]
        return "".join(path.read_text()[-3000:] for path in files if path.exists())

    def _tell(self, line: str) -> None:
        self.say(f"{time.monotonic() - self._started:5.1f} s  {line}")
