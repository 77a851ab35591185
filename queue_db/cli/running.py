"""How ``queue-db work`` runs a worker: in this process, as the supervisor of several processes, or as one of those."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from queue_db.cli import statuses
from queue_db.core import process_name
from queue_db.processes.children import PARENT_PIPE, PROCESS_NUMBER
from queue_db.processes.supervisor import Supervisor, SupervisorLink
from queue_db.worker import Summary, Worker
from queue_db.worker.logs import described
from queue_db.worker.registration import rescue

log = logging.getLogger("queue_db.worker")


@contextmanager
def process_number(processes: int) -> Iterator[None]:
    """Set ``QUEUE_DB_PROCESS`` for the modules that are imported in the ``with`` block; restore it afterwards.

    It is 1 in the only process, the number from the supervisor in one of several, and absent in the supervisor.
    """
    if PARENT_PIPE in os.environ:  # a supervisor has set the number
        yield
        return
    before = os.environ.pop(PROCESS_NUMBER, None)
    if processes == 1:
        os.environ[PROCESS_NUMBER] = "1"
    try:
        yield
    finally:
        os.environ.pop(PROCESS_NUMBER, None)
        if before is not None:
            os.environ[PROCESS_NUMBER] = before


def run(worker: Worker, processes: int, *, until_empty: bool) -> Summary | int:
    """Run the worker; return its summary, or the exit status of the supervised processes."""
    worker.handlers.require(worker.options.names)
    supervisor = SupervisorLink.from_environment(os.environ)
    if supervisor is not None:
        return _run_supervised(worker, supervisor, until_empty=until_empty)
    if processes == 1:
        return worker.run(until_empty=until_empty)
    return _supervise(worker, processes)


def _supervise(worker: Worker, processes: int) -> int:
    worker.db.check()
    worker.check_start()
    command = [sys.executable, "-m", "queue_db", *sys.argv[1:]]
    return_jobs = partial(rescue, worker.db)
    text, fields = described(worker)
    log.info("supervising %d processes on %s", processes, text, extra=fields | {"processes": processes})
    status = Supervisor(command, processes, environment=os.environ, return_jobs=return_jobs).run()
    return statuses.INTERRUPTED if status == -signal.SIGINT else status


def _run_supervised(worker: Worker, supervisor: SupervisorLink, *, until_empty: bool) -> Summary:
    def supervisor_died() -> None:
        log.warning("the supervisor is gone: no more claims, up to %g s for running jobs", worker.options.grace)
        worker.stop()

    # A configured worker name may belong to several processes; the jobs of such a worker are not returned when one dies.
    name = worker.db.worker if worker.db.worker == process_name() else ""
    supervisor.watch(supervisor_died)
    summary = worker.run(until_empty=until_empty, started=lambda: supervisor.report_started(name))
    if summary.recycled:
        supervisor.report_recycled()
    elif not summary.stuck:  # otherwise the supervisor starts a replacement
        supervisor.report_ended()
    return summary
