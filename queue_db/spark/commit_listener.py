"""Completes the micro-batches of streams as soon as Spark has committed them, so that a stopped query holds no jobs."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from sqlalchemy import URL

from queue_db.spark.masked_errors import described
from queue_db.spark.streams import store as streams
from queue_db.spark.streams.registry import offsets_in
from queue_db.spark.target import REPEATABLE, Target, target_of

log = logging.getLogger("queue_db.spark")


class CommitListener(StreamingQueryListener):
    """Spark calls it after a micro-batch is in the commit log, in the process that made the session."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._completed: dict[str, set[streams.Offset]] = {}  # by run id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is committed yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new is committed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Remove the query's offsets."""
        self._completed.pop(str(event.runId), None)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Complete what the committed micro-batch has read."""
        progress = event.progress
        committed = set(offsets_in(source.endOffset for source in progress.sources))
        new = committed - self._completed.get(str(progress.runId), set())
        if not new:
            return
        try:
            with self._target.open() as db:
                for offset in new:
                    db.core.run_reporting_deaths(REPEATABLE.named("streams.complete_claim"), streams.complete_claim, offset)
            self._completed[str(progress.runId)] = committed
        except Exception as error:  # noqa: BLE001 - the query completes it with its next claim, or at its next start
            problem = described(error, self._target.url)
            log.warning("micro-batch %d is committed, but not yet completed in the queue: %s", progress.batchId, problem)


def complete_on_commit(spark: Any, url: str | URL, *, table: str = "jobs", schema: str | None = None) -> StreamingQueryListener:
    """From now on, complete each micro-batch of this session's streams as soon as Spark has committed it.

    Without it a batch is completed with the next claim, so a stopped query holds its last batch, although it is written, until the
    next start. The listener runs in this process: keep it alive for a moment after ``query.stop()``.

    :param url: of the streams' database; streams of other databases are not affected.
    :returns: the listener, for ``spark.streams.removeListener``.
    :raises ConfigurationError: as :class:`queue_db.QueueDB` does.
    """
    target = target_of(url, table, schema)
    with target.open() as db:
        db.ready()
    listener = CommitListener(target)
    spark.streams.addListener(listener)
    return listener
