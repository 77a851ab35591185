"""The worker: claims jobs, calls their handlers, extends the leases, and stops gracefully."""

from typing import TYPE_CHECKING, Any

from queue_db.slices import load
from queue_db.worker.application import lifespan
from queue_db.worker.events import JobEvent, Summary
from queue_db.worker.handlers import Handler, Stoppable
from queue_db.worker.worker import Worker

if TYPE_CHECKING:
    from queue_db.processes.main import JobSnapshot
    from queue_db.processes.program import Program
    from queue_db.processes.supervisor import Supervisor

__all__ = ["Handler", "JobEvent", "JobSnapshot", "Program", "Stoppable", "Summary", "Supervisor", "Worker", "lifespan"]

# These classes, with their modules in queue_db.processes, are imported at first use: a worker without processes needs none.
_OF_PROCESSES = {"JobSnapshot": "main", "Program": "program", "Supervisor": "supervisor"}

if not TYPE_CHECKING:  # with it, a type checker would accept every name as an attribute

    def __getattr__(name: str) -> Any:
        if name not in _OF_PROCESSES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return load(f"processes.{_OF_PROCESSES[name]}", name)
