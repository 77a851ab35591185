"""Dead jobs: how to list, redrive, count and purge them."""

from queue_db.dead.dead_jobs import MOST_COUNTED, DeadJobs

__all__ = ["MOST_COUNTED", "DeadJobs"]
