"""A backup, more work, and a restore with the commands of the guide: what comes back is what it promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url

from queue_db import CursorHeldError, LeasedJob, QueueDB, State, Verdict
from queue_db.errors import JobNotFoundError, PositionError
from tests.databases import FILES
from tests.guide import page, programs

TITLES = {
    "postgresql": "# PostgreSQL: back up",
    "mysql": "# MySQL: back up",
    "mariadb": "# MariaDB: back up",
    "sqlite": "# SQLite: back up",
}


@dataclass(frozen=True)
class Operator:
    """A person with the guide, in a folder, on the machine of a database."""

    kind: str
    url: str
    environment: dict[str, str]
    folder: Path

    def _type(self, commands: str) -> str:
        name = str(make_url(self.url).database)
        wanted = "queue.db" if self.kind in FILES else "shop"
        there = re.sub(rf"\b{re.escape(wanted)}(?!\.(dump|sql))(?=\b|-)", name, commands)
        return programs.run(there, self.environment, self.folder)

    def backs_up(self) -> None:
        self._type(page.commands(TITLES[self.kind]).partition("# restore")[0])

    def restores(self) -> None:
        self._type(page.commands(TITLES[self.kind]).partition("# restore")[2])

    def declares(self) -> str:
        return self._type(page.commands("# after a restore"))

    def queue_db(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "queue_db", *words]
        return subprocess.run(
            command,
            env=self.environment | {"PYTHONPATH": str(page.ROOT)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )


@pytest.fixture
def operator(kind: str, own_url: str, tmp_path: Path) -> Operator:
    environment = programs.shell(kind, own_url, tmp_path / "home")
    script = tmp_path / "home" / "bin" / "queue-db"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m queue_db "$@"\n')
    script.chmod(0o755)
    return Operator(kind, own_url, environment | {"PYTHONPATH": str(page.ROOT)}, tmp_path)


def test_jobs_after_a_restore(operator: Operator) -> None:
    with QueueDB(operator.url, worker="host:1-a") as db:
        queue = db.queue("mail")
        held, lapsed, done = queue.enqueue_many([("k", "held"), ("k", "lapsed"), ("k", "done")])
        (in_hand,) = queue.claim(lease=3600)
        (over,) = queue.claim(lease=0.001)
        assert (in_hand.id, over.id) == (held, lapsed)
    operator.backs_up()
    with QueueDB(operator.url) as db:
        assert db.queue("mail").cancel(lapsed)
    said = operator.queue_db("work", "mail", "--exec", "true", "--until-empty", "--verbose", "--log-format", "json")
    ran = {entry["job_id"] for entry in map(json.loads, said.stderr.splitlines()) if entry.get("outcome") == "completed"}
    assert ran == {done}
    with QueueDB(operator.url) as not_stopped:
        gone = not_stopped.queue("mail").enqueue("k", "gone")
        (stale,) = not_stopped.queue("mail").claim()
        assert stale.id == gone
        if operator.kind in FILES:  # who has the file open damages what is copied over it
            not_stopped.close()
        operator.restores()
        _after(operator, held, lapsed, done, stale)


def _after(operator: Operator, held: int, lapsed: int, done: int, stale: LeasedJob) -> None:
    with QueueDB(operator.url) as db:
        queue = db.queue("mail")
        with pytest.raises(JobNotFoundError):
            db.get(stale.id)
        assert db.state(held) is State.RUNNING
        again = queue.claim(10)
        assert {job.id: job.payload for job in again} == {lapsed: "lapsed", done: "done"}
        # Whoever was not stopped still has its lease, and a restored lease can be ended.
        assert db.rescue("host:1-a") == 1
        (rescued,) = queue.claim(10)
        assert rescued.id == held
        # The reason why all stop before a restore: a lease of what is gone is that of another job.
        other = queue.enqueue("k", "another")
        assert other == stale.id
        (taken,) = queue.claim()
        assert stale.fence == taken.fence
        if operator.kind not in FILES:
            assert stale.complete() is Verdict.APPLIED
            assert taken.complete() is Verdict.LOST
        operator.queue_db("jobs", "cancel", str(done))
        assert db.state(done) is State.UNKNOWN


def test_feeds_after_a_restore(operator: Operator) -> None:
    with QueueDB(operator.url) as db:
        feed = db.feed("orders")
        feed.publish_many([("n", number) for number in range(3)])
        holder = feed.cursor("billing", lease=3600)
        holder.ack(holder.read(limit=1)[0])
        start = feed.start()
        operator.backs_up()
        feed.publish_many([("n", "lost 1"), ("n", "lost 2")])
        kept = feed.read().position  # a reader keeps it elsewhere
    operator.restores()
    with QueueDB(operator.url) as db:
        feed = db.feed("orders")
        with pytest.raises(PositionError, match="restored from a backup"):
            feed.read(kept)
        # The danger: the numbers are used again, and the reader misses what has them.
        feed.publish_many([("n", "new 1"), ("n", "new 2")])
        feed.rank()
        assert feed.read(kept).messages == []
        with pytest.raises(CursorHeldError):
            feed.cursor("billing")
    operator.declares()
    with QueueDB(operator.url) as db:
        feed = db.feed("orders")
        for position in (kept, start):
            with pytest.raises(PositionError):
                feed.read(position)
        assert [message.payload for message in feed.read(feed.start()).messages] == [0, 1, 2, "new 1", "new 2"]
        with feed.cursor("billing") as cursor:
            assert [message.payload for message in cursor.read()] == [1, 2, "new 1", "new 2"]


def test_schedules_and_tokens_after_a_restore(operator: Operator) -> None:
    with QueueDB(operator.url) as db:
        db.schedules.set("hourly", "mail", "report", every=3600, first_at=datetime.now(UTC) - timedelta(minutes=5))
        revoked = db.tokens.create("revoked", ["read"])
        operator.backs_up()
        assert db.schedules.tick()[0] == 1
        assert db.schedules.tick()[0] == 0
        assert db.tokens.revoke("revoked")
        made = db.tokens.create("made", ["read"])
        assert (db.tokens.find(revoked), db.tokens.find(made) is None) == (None, False)
    operator.restores()
    operator.declares()
    with QueueDB(operator.url) as db:
        assert db.schedules.tick()[0] == 1
        assert db.schedules.tick()[0] == 0
        assert db.tokens.find(revoked) is not None
        assert db.tokens.find(made) is None
        operator.queue_db("tokens", "revoke", "revoked")
        assert db.tokens.find(revoked) is None
