"""Jobs from and for Spark: :func:`enqueue` a DataFrame, :func:`drain` a queue in parallel tasks, :func:`read_results`.

Needs ``pip install "queue-db[spark]"`` on the driver and on every executor. What a retried task may repeat, and why nothing is
lost, is in ``docs/spark.md``.
"""

from queue_db.spark.draining import Drained, drain
from queue_db.spark.enqueuing import enqueue
from queue_db.spark.results import read_results
from queue_db.spark.source import QueueDataSource

__all__ = ["Drained", "QueueDataSource", "drain", "enqueue", "read_results"]
