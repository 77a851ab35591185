"""Queues in Spark: a data source for batches and streams, and a parallel drain.

- :func:`register` registers ``format("queue_db")`` with a session, for ``read``, ``write``, ``readStream`` and ``writeStream``;
- :func:`enqueue` makes jobs of a DataFrame's rows; :func:`drain` works a queue off in parallel tasks;
- :func:`complete_on_commit` completes written micro-batches at once, so that a stopped query holds no jobs;
- :func:`lags` reads the lag of a query out of its progress, for listeners;
- :func:`dead_letter` sends jobs of a stream to the dead table; :func:`jdbc_options` is for Spark's own JDBC source.

Needs ``pip install "queue-db[spark]"`` on the driver. The guarantees under failures, and why they hold, are in ``docs/spark.md``;
those of streams in ``docs/spark-streams.md``. To follow one write, read ``writer``; one streaming read, ``stream_reader``; one
drain, ``draining``. ``streams`` (``db.streams``) and ``tables`` run without pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue_db.spark.code_bundle import register
    from queue_db.spark.commit_listener import complete_on_commit
    from queue_db.spark.dead_lettering import dead_letter
    from queue_db.spark.draining import Drained, drain, drain_to
    from queue_db.spark.enqueuing import enqueue
    from queue_db.spark.jdbc import jdbc_options
    from queue_db.spark.progress import Lag, lags
    from queue_db.spark.results import read_results
    from queue_db.spark.source import QueueDataSource
    from queue_db.spark.streams.registry import Stream, Streams

# Imported when they are first used: all but the streams need pyspark.
_MODULES = {
    "Drained": "draining",
    "Lag": "progress",
    "QueueDataSource": "source",
    "Stream": "streams.registry",
    "Streams": "streams.registry",
    "complete_on_commit": "commit_listener",
    "dead_letter": "dead_lettering",
    "drain": "draining",
    "drain_to": "draining",
    "enqueue": "enqueuing",
    "jdbc_options": "jdbc",
    "lags": "progress",
    "read_results": "results",
    "register": "code_bundle",
}

__all__ = [
    "Drained",
    "Lag",
    "QueueDataSource",
    "Stream",
    "Streams",
    "complete_on_commit",
    "dead_letter",
    "drain",
    "drain_to",
    "enqueue",
    "jdbc_options",
    "lags",
    "read_results",
    "register",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
