"""Handlers for processes of their own, and how a test meets them: each connects to a socket of the test and obeys its commands."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import select
import socket
import subprocess
import threading
from typing import Any, Self

from queue_db import Cancel, Dead, Retry, Snooze, UnknownKindError
from tests.patience import PATIENCE


class Meeting:
    """Where the handlers of a test come."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(PATIENCE)
        self.port = self._server.getsockname()[1]
        self._visitors: list[Visitor] = []

    def visitor(self) -> Visitor:
        """The next one that comes."""
        self._visitors.append(Visitor(self._server.accept()[0]))
        return self._visitors[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.close()
        for one in self._visitors:
            one.leave()


class Visitor:
    """A handler that has connected and waits for a command."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        self._connection = connection
        self._lines = connection.makefile("rw")
        self.pid, program = map(int, self._lines.readline().split())
        # A process id may be used again; these stand for the processes themselves.
        self._process = os.pidfd_open(self.pid)
        self._program = os.pidfd_open(program) if program else self._process

    def tell(self, what: str) -> None:
        print(what, file=self._lines, flush=True)

    def hear(self) -> str:
        return self._lines.readline().strip()

    @property
    def alive(self) -> bool:
        return not select.select([self._process], [], [], 0)[0]

    def ends(self) -> bool:
        """Wait until its process has ended."""
        return bool(select.select([self._process], [], [], PATIENCE)[0])

    def program_ends(self) -> bool:
        """Wait until the program that it has started has ended."""
        return bool(select.select([self._program], [], [], PATIENCE)[0])

    def leave(self) -> None:
        self._lines.close()
        self._connection.close()
        for one in {self._process, self._program}:
            os.close(one)


def meets(job: Any) -> int:
    """Come to the port in the payload, and do what is said there."""
    with socket.create_connection(("127.0.0.1", job.payload["port"])) as connection, connection.makefile("rw") as lines:
        program = subprocess.Popen(["sleep", "1000"]).pid if job.payload.get("starts") else 0
        print(os.getpid(), program, file=lines, flush=True)
        try:
            while (command := lines.readline().strip()) != "return":
                if command == "progress":
                    job.progress(0.25, "a quarter")
                if command == "die":
                    os._exit(3)
        except SystemExit:
            print("asked to end", file=lines, flush=True)
            while job.payload.get("stubborn"):
                lines.readline()
            raise
    return os.getpid()


def tells_of_its_job(job: Any) -> dict[str, Any]:
    assert not hasattr(job, "complete")
    return {
        "fence": job.fence,
        "due": job.due_at.isoformat(),
        **{
            name: getattr(job, name)
            for name in ("id", "queue", "kind", "payload", "headers", "attempts", "unique_key", "last_error")
        },
    }


OUTCOMES = {"snooze": Snooze(1000), "retry": Retry("not yet", 1000), "cancel": Cancel(), "dead": Dead("hopeless"), "done": "fine"}


def returns_by_kind(job: Any) -> object:
    return OUTCOMES[job.kind]


def number(job: Any) -> str:
    return os.environ.get("QUEUE_DB_PROCESS", "none")


def logs(job: Any) -> None:
    logging.getLogger("shop").debug("too small")
    logging.getLogger("shop").info("%s for %r", "painted", "ä", extra={"color": "blue"})
    try:
        raises(job)
    except ValueError:
        logging.getLogger("shop").exception("spilt")


def knows_nothing(job: Any) -> None:
    raise UnknownKindError(job.kind, message=f"no code for {job.kind}")


def raises(job: Any) -> None:
    raise ValueError(f"a bad one: {job.payload}")


class TwoThings(Exception):
    """Cannot be pickled: it would be made anew of one argument."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def raises_what_cannot_be_pickled(job: Any) -> None:
    raise TwoThings(1, 2)


def returns_what_cannot_be_pickled(job: Any) -> object:
    return threading.Lock()


@dataclasses.dataclass
class Picture:
    width: int


def doubles(job: Any) -> int:
    assert isinstance(job.payload, Picture)
    return 2 * job.payload.width


class Holder:
    @staticmethod
    def raises(job: Any) -> None:
        raise KeyError(job.id)

    def bound(self, job: Any) -> None:
        """Nobody else has this object."""


bound = Holder().bound
part = functools.partial(returns_by_kind)


async def coroutine(job: Any) -> None:
    """Belongs on a loop."""


def talks_without_end(job: Any) -> None:
    """Something is always to be read from it."""
    while True:
        job.progress(0.5)


def returns_a_coroutine(job: Any) -> Any:
    """What its decorator has made of it."""
    return coroutine(job)


def pid(job: Any) -> int:
    return os.getpid()
