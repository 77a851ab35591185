"""The worker: claims jobs, calls their handlers, extends the leases, and stops gracefully."""

from queue_db.worker.events import Summary
from queue_db.worker.handlers import Handler, Stoppable
from queue_db.worker.process_main import JobSnapshot
from queue_db.worker.processes import Supervisor
from queue_db.worker.program import Program
from queue_db.worker.worker import Worker

__all__ = ["Handler", "JobSnapshot", "Program", "Stoppable", "Summary", "Supervisor", "Worker"]
