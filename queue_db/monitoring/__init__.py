"""What operators look at: numbers over time, failures by kind, the action log, and what is stuck."""

from queue_db.monitoring.actions import Action
from queue_db.monitoring.failures import FailureGroup
from queue_db.monitoring.metrics import QueueMetrics

__all__ = ["Action", "FailureGroup", "QueueMetrics"]
