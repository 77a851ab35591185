"""``queue-db serve --processes``: processes that answer on one port, and the supervisor that replaces those that die.

The supervisor opens the port, and each process inherits it: a connection that one of them has not taken is taken by another.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from functools import partial

from queue_db.processes.children import PROCESS_NUMBER, REPLACES
from queue_db.processes.supervisor import Supervisor, SupervisorLink
from queue_db.service.http.server import Server
from queue_db.service.live.incidents import Incidents, IncidentType
from queue_db.worker.signals import STOPS

log = logging.getLogger("queue_db.service")

#: The environment variable with the number of the listening socket.
LISTENING = "QUEUE_DB_LISTENING"

#: Connections that wait until a process takes them.
BACKLOG = 2048

#: Connections that a process takes at once, so that all of them do not go to the first one that wakes up.
AT_ONCE = 4


class SharedSocket(socket.socket):
    """A listening socket of several processes. An event loop gives it the number of connections that it takes at once."""

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen; ``backlog`` is not that of the kernel."""
        super().listen(max(backlog, BACKLOG))


def supervise(listening: socket.socket, processes: int) -> int:
    """Run this command as several processes until they end; their exit status, or -2 after SIGINT."""
    number = listening.fileno()
    command = [sys.executable, "-m", "queue_db", *sys.argv[1:]]
    environment = {**os.environ, LISTENING: str(number)}
    return Supervisor(command, processes, environment=environment, pass_fds=[number], forwards=STOPS).run()


def link() -> SupervisorLink | None:
    """The pipe to the supervisor; None: nobody supervises this process."""
    return SupervisorLink.from_environment(os.environ) if LISTENING in os.environ else None


def inherited() -> socket.socket:
    """The socket of the supervisor."""
    number = int(os.environ.pop(LISTENING))
    os.set_inheritable(number, False)
    return SharedSocket(fileno=number)


def own_port(first: int) -> int:
    """The port of this process alone.

    :param first: that of the first process; the second one has the next one, and so on.
    """
    return first + int(os.environ.get(PROCESS_NUMBER, "1")) - 1


def report(supervisor: SupervisorLink, running: Server, incidents: Incidents) -> None:
    """Tell the supervisor when the server has started, and stop it when the supervisor is gone. Record a replacement."""

    def stop() -> None:
        log.warning("the supervisor is gone: this process ends")
        running.should_exit = True

    # Without a name: what clients have claimed is theirs, whatever becomes of this process.
    running.on_start = partial(supervisor.report_started, "")
    supervisor.watch(stop)
    died = os.environ.pop(REPLACES, None)
    if died is not None:
        number = os.environ.get(PROCESS_NUMBER)
        incidents.record(IncidentType.PROCESS_REPLACED, f"process {number}, by pid {os.getpid()}; replaced so far: {died}")
