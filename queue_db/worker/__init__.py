"""The worker: claims jobs, calls their handlers, extends the leases, and stops gracefully."""

from queue_db.worker.handlers import Handler, Stoppable
from queue_db.worker.program import Program
from queue_db.worker.snapshot import JobSnapshot
from queue_db.worker.summary import Summary
from queue_db.worker.supervisor import Supervisor
from queue_db.worker.worker import Worker

__all__ = ["Handler", "JobSnapshot", "Program", "Stoppable", "Summary", "Supervisor", "Worker"]
