"""What people look at: jobs, results and workers, numbers over time, failures by kind, the action log, and what is stuck."""

from queue_db.monitoring.actions import Action
from queue_db.monitoring.failures import FailureGroup
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.monitoring.model import Finished, JobError, JobPage, KindStats, QueueStats, WorkerInfo

__all__ = ["Action", "FailureGroup", "Finished", "JobError", "JobPage", "KindStats", "QueueMetrics", "QueueStats", "WorkerInfo"]
