"""The lag of a streaming query, out of the progress that Spark reports.

A Python source has no metrics of its own in ``sources[].metrics``: Spark 4.3 asks only sources in Java for them. What ours report
stands in ``sources[].latestOffset``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lag:
    """How far one source of a query was behind when its last micro-batch was planned.

    :param behind: due jobs of the queues, or messages of the feed, that no micro-batch had yet.
    :param oldest: how long the first of them had waited, seconds.
    :param held: jobs that were claimed and not completed; 0 for a feed.
    """

    behind: int
    oldest: float
    held: int = 0


def lags(progress: Any) -> list[Lag]:
    """The lag of each queue_db source of a query, in the order of its sources; of a micro-batch that is repeated there may be none.

    :param progress: ``query.lastProgress``, or ``event.progress`` in ``onQueryProgress`` of a StreamingQueryListener; None: none.
    """
    found = []
    for source in progress.sources if progress is not None else ():
        try:
            shown = json.loads(source.latestOffset)
        except (TypeError, ValueError):
            continue
        if isinstance(shown, dict) and "oldestSeconds" in shown:
            behind = shown["backlog"] if "backlog" in shown else shown["behind"]
            found.append(Lag(int(behind), float(shown["oldestSeconds"]), int(shown.get("held", 0))))
    return found
