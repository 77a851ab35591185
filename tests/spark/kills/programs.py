"""The programs of the rounds: the driver's orders, how jobs come in meanwhile, and what must be there at the end."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, text

from tests.spark.kills.faults import Round
from tests.spark.kills.world import World

# Jobs of a stream: there before; that come in at a time, whenever fewer than twice as many are waiting; in all; in all if a fault
# is still to come. Seconds between two polls.
_BEFORE, _PIECE, _ENOUGH, _MOST = 1500, 200, 3000, 30_000
_PAUSE = 0.1


@dataclass(frozen=True)
class Count:
    """How often each job of a round is in its result."""

    jobs: int
    lost: int
    repeated: int  #: times that are too many, and what was never a job

    @classmethod
    def of(cls, jobs: int, found: list[int]) -> Count:
        """Jobs have the numbers from 0."""
        there = Counter(found)
        lost = sum(n not in there for n in range(jobs))
        return cls(jobs, lost, len(found) - (jobs - lost))


class Program:
    """One run of a program, which may take several drivers."""

    #: Run again after it was done, it does nothing.
    once: ClassVar[bool] = False

    jobs = 0

    def __init__(self, world: World, one: Round, folder: Path, url: str) -> None:
        self.world, self.round, self.folder, self.url = world, one, folder, url
        self.queue = f"q-{uuid.uuid4().hex[:12]}"
        self.db = world.db(one.database)
        folder.mkdir()

    def order(self) -> dict[str, Any]:
        """A driver's orders; the same for each driver of a round."""
        raise NotImplementedError

    def feed(self, more: bool) -> None:
        """Let jobs come in, if it is time; ``more`` than it would need, because something is still to happen."""

    def found(self, answer: dict[str, Any]) -> list[int]:
        """The numbers of the jobs in the result, each as often as it is there."""
        raise NotImplementedError

    def complaints(self, happened: int) -> list[str]:
        """What is wrong beside that."""
        return []

    def file(self, folder: str) -> int:
        """The highest number among Spark's files of this name; -1 if there is none."""
        return -1

    def tidy(self) -> None:
        """Remove what lies on the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def in_queue(self, queue: str) -> list[int]:
        def numbers(connection: Connection) -> list[int]:
            rows = connection.execute(text("SELECT payload FROM jobs WHERE queue = :queue"), {"queue": queue})
            return [json.loads(row.payload)["n"] for row in rows]

        return self.db.database.run(numbers, name="in_queue", write=False)


class Write(Program):
    jobs = 20_000
    once = True

    def order(self) -> dict[str, Any]:
        to = {"url": self.url, "queue": self.queue, "guarantee": self.round.guarantee}
        if self.round.guarantee == "exactly_once":
            to |= {"txnAppId": self.queue, "txnVersion": "1"}
        return {"program": "write", "jobs": self.jobs, "partitions": 4, "to": to}

    def found(self, answer: dict[str, Any]) -> list[int]:
        return self.in_queue(self.queue)


class _Stream(Program):
    """Jobs come in while it runs: a part is there before, the rest comes piece by piece."""

    def __init__(self, world: World, one: Round, folder: Path, url: str) -> None:
        super().__init__(world, one, folder, url)
        self._next = 0.0
        # Few and small jobs travel in the tasks' messages; these must be staged. A third of the rounds has them as they come.
        stages = any(fault.name in ("stage", "*") for fault in one.faults)
        self._pad = "x" * 1000 if stages or one.number % 3 else ""
        self._give(_BEFORE)

    def feed(self, more: bool) -> None:
        if self._last.exists() or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE
        if self.jobs >= (_MOST if more else _ENOUGH):
            self._last.touch()
        elif self.db.queue(self.queue).stats().available < 2 * _PIECE:
            self._give(_PIECE)

    @property
    def _last(self) -> Path:
        return self.folder / "last"

    def _give(self, count: int) -> None:
        key = (lambda n: {"unique_key": str(n)}) if self.round.keyed else (lambda n: {})
        jobs = [("k", {"n": n, "pad": self._pad}, key(n)) for n in range(self.jobs, self.jobs + count)]
        self.db.queue(self.queue).enqueue_many(jobs)
        self.jobs += count

    def _reading(self) -> dict[str, Any]:
        # More than a thousand jobs in a batch make two tasks of it.
        most = "500" if self.round.number % 2 else "1500"
        options = {"url": self.url, "queue": self.queue, "stream": self.queue, "maxJobsPerTrigger": most, "partitions": "2"}
        return {"from": options, "checkpoint": str(self.folder / "checkpoint"), "last": str(self._last)}

    def file(self, folder: str) -> int:
        where = self.folder / "out" / "_spark_metadata" if folder == "sink" else self.folder / "checkpoint" / folder
        try:
            return max((int(path.name.removesuffix(".compact")) for path in where.iterdir() if path.name[0].isdigit()), default=-1)
        except FileNotFoundError:
            return -1

    def complaints(self, happened: int) -> list[str]:
        stats = self.db.queue(self.queue).stats()
        left = stats.available + stats.running + stats.scheduled + stats.dead
        return [f"{left} jobs are left in the queue"] if left else []


class StreamWrite(_Stream):
    def order(self) -> dict[str, Any]:
        return {"program": "stream-write", "to": {"url": self.url, "queue": f"{self.queue}-sink"}, **self._reading()}

    def found(self, answer: dict[str, Any]) -> list[int]:
        return self.in_queue(f"{self.queue}-sink")


class StreamFeed(_Stream):
    """From a feed into another."""

    def feed(self, more: bool) -> None:
        if self._last.exists() or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE
        if self.jobs >= (_MOST if more else _ENOUGH):
            self._last.touch()
        else:
            self._give(_PIECE)

    def _give(self, count: int) -> None:
        messages = [("k", {"n": n, "pad": self._pad}) for n in range(self.jobs, self.jobs + count)]
        self.db.feed(self.queue).publish_many(messages)
        self.jobs += count

    def order(self) -> dict[str, Any]:
        reading = self._reading()
        given = reading["from"]
        options = {"url": self.url, "feed": self.queue, "cursor": "rounds", "partitions": "2"}
        reading["from"] = options | {"maxMessagesPerTrigger": given["maxJobsPerTrigger"]}
        return {"program": "stream-write", "to": {"url": self.url, "feed": f"{self.queue}-sink"}, **reading}

    def found(self, answer: dict[str, Any]) -> list[int]:
        sink, after, found = self.db.feed(f"{self.queue}-sink"), None, []
        while (page := sink.read(after, 10_000)).messages:
            found += [message.payload["n"] for message in page.messages]
            after = page.position
        return found

    def complaints(self, happened: int) -> list[str]:
        return []


class StreamRead(_Stream):
    def order(self) -> dict[str, Any]:
        return {"program": "stream-read", "out": str(self.folder / "out"), **self._reading()}

    def found(self, answer: dict[str, Any]) -> list[int]:
        return list(answer["found"])


class Drain(Program):
    jobs = 600
    batch = 20
    tasks = 2  #: at a time

    def __init__(self, world: World, one: Round, folder: Path, url: str) -> None:
        super().__init__(world, one, folder, url)
        self.db.queue(self.queue).enqueue_many(("k", {"n": n}) for n in range(self.jobs))

    def order(self) -> dict[str, Any]:
        # Longer than a database needs to come back, and no longer than the rounds can wait.
        how = {"partitions": self.tasks, "batch": self.batch, "lease": 10.0}
        where = {"url": self.url, "queue": self.queue, "out": str(self.folder / "out"), "worked": str(self.folder / "worked")}
        return {"program": "drain", "how": how, **where}

    def found(self, answer: dict[str, Any]) -> list[int]:
        return list(answer["found"])

    @property
    def worked_again(self) -> int:
        """How often a job was worked on that had been worked on before."""
        notes = self.folder / "worked"
        worked = [int(line) for line in notes.read_text().split()] if notes.exists() else []
        return len(worked) - len(set(worked))

    def complaints(self, happened: int) -> list[str]:
        stats = self.db.queue(self.queue).stats()
        left = stats.available + stats.running + stats.scheduled + stats.dead
        held = happened * self.tasks * self.batch
        notes = [f"{left} jobs are left in the queue"] if left else []
        if self.worked_again > held:
            notes.append(f"{self.worked_again} jobs were worked on again, and {held} were held at the most")
        return notes


PROGRAMS: dict[str, type[Program]] = {
    "write": Write,
    "stream-write": StreamWrite,
    "stream-feed": StreamFeed,
    "stream-read": StreamRead,
    "drain": Drain,
}
