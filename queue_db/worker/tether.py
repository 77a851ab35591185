"""What ties a worker process to its supervisor: a pipe between the two, at whose end each sees the other go.

The process says when it starts to claim, and under which name, and when it has ended in good order. When the supervisor is gone,
however it ended, the process reads the end of the pipe.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Self

#: The environment variable with the number of the pipe.
VARIABLE = "QUEUE_DB_ONE_OF"

#: The environment variable with the number of the process, 1 to N; one that takes the place of another has its number. The
#: supervisor has none: that is how a module that both import knows where jobs are worked on.
NUMBER = "QUEUE_DB_PROCESS"

_STARTED = b"started "
_ENDED = b"ended"


@dataclass(slots=True)
class Life:
    """What a process has said."""

    started: bool = False
    #: Its name as a worker; empty: other processes may have the same.
    name: str = ""
    ended: bool = False


class Tether:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._pipe, self.theirs = Pipe()
        self.life = Life()

    def hear(self) -> Life:
        """Read what has come; what a dead process has said before is still there."""
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                said = self._pipe.recv_bytes()
                if said == _ENDED:
                    self.life.ended = True
                elif said.startswith(_STARTED):
                    self.life.started, self.life.name = True, said.removeprefix(_STARTED).decode()
        return self.life

    def close(self) -> None:
        """The process is gone."""
        self._pipe.close()


class Tied:
    """The process's end."""

    def __init__(self, number: int) -> None:
        os.set_inheritable(number, False)
        self._pipe = Connection(number)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self | None:
        """The pipe that the environment names, which is taken out of it; None: this process has no supervisor."""
        number = environment.pop(VARIABLE, "")
        with suppress(ValueError, OSError):
            if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                return cls(int(number))
        return None

    def started(self, name: str) -> None:
        """From now on jobs are claimed."""
        self._say(_STARTED + name.encode())

    def ended(self) -> None:
        """It has ended in good order, and has nothing in hand."""
        self._say(_ENDED)

    def watch(self, gone: Callable[[], None]) -> None:
        """Call ``gone`` from another thread when the supervisor is gone."""
        threading.Thread(target=self._watch, args=(gone,), name="queue_db supervisor", daemon=True).start()

    def _watch(self, gone: Callable[[], None]) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._pipe.recv_bytes()
        gone()

    def _say(self, what: bytes) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(what)
