"""The worker: claims jobs, calls the handler, keeps the leases, and stops in good order."""

from queue_db.worker.handlers import Handler, Stoppable
from queue_db.worker.program import Program
from queue_db.worker.worker import Summary, Worker

__all__ = ["Handler", "Program", "Stoppable", "Summary", "Worker"]
