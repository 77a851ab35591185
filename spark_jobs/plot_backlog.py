"""Plot how a stream keeps up with its queue: backlog, held jobs and age of the oldest job, as reported for each micro-batch.

    python spark_jobs/plot_backlog.py                                        # a SQLite file in a temporary folder
    QUEUE_DB_URL=postgresql+psycopg2://… spark-submit spark_jobs/plot_backlog.py --output backlog.svg

It creates a queue, fills it at a constant rate with a burst in the middle, and reads it with a stream that takes at most --max-jobs
jobs per second into a sink that discards them. Needs pip install "queue-db[spark,compare]".
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from queue_db import QueueDB
from queue_db.compare.report import drawing
from queue_db.errors import StreamError
from queue_db.spark import applications, register

# Enqueue operations per second, and the interval at which the query's progress is read, seconds.
_STEPS = 10
_POLL_INTERVAL = 0.1

# Seconds to wait at most, after the time of the run, for the first report.
_PATIENCE = 60.0

# The burst: start and end as fractions of the run, and its rate as a multiple of the constant rate.
_BURST = (0.25, 0.45)
_FACTOR = 4


@dataclass(frozen=True)
class Point:
    """The report of a stream at the start of a micro-batch."""

    seconds: float  #: since the start of the run
    backlog: int  #: due jobs that are not claimed
    held: int  #: jobs claimed by the stream and not completed
    oldest: float  #: waiting time of the oldest due job, seconds
    jobs: int  #: jobs in the micro-batch


def points(progress: list[dict[str, Any]], began: float) -> list[Point]:
    """Convert Spark's progress reports; a batch that is repeated after a restart has no report about the queue."""
    found = []
    for one in progress:
        queue = json.loads(one["sources"][0]["latestOffset"] or "{}")
        if queue:
            at = datetime.fromisoformat(one["timestamp"]).timestamp() - began
            found.append(Point(at, queue["backlog"], queue["held"], queue["oldestSeconds"], one["numInputRows"]))
    return found


@contextmanager
def filled(db: QueueDB, queue: str, rate: float, seconds: float) -> Iterator[None]:
    """Enqueue ``rate`` jobs per second, more during the burst, while the ``with`` block runs."""
    stop = threading.Event()

    def fill() -> None:
        began = last = time.monotonic()
        pending = 0.0
        while not stop.wait(1 / _STEPS):
            now = time.monotonic()
            part = (now - began) / seconds
            pending += (now - last) * rate * (_FACTOR if _BURST[0] <= part < _BURST[1] else 1)
            db.queue(queue).enqueue_many(("event", {"at": part}) for _ in range(int(pending)))
            pending, last = pending % 1, now

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run(spark: SparkSession, url: str, queue: str, seconds: float, rate: float, most: int, folder: str) -> list[Point]:
    """Fill and drain the queue for ``seconds``, and longer until there is a report; return the reports of the stream.

    :raises StreamError: there is none.
    """
    register(spark)
    reports: dict[str, dict[str, Any]] = {}
    found: list[Point] = []
    with QueueDB(url) as db:
        db.migrate()
        options = {"url": url, "queue": queue, "stream": queue, "maxJobsPerTrigger": str(most), "partitions": "2"}
        writer = spark.readStream.format("queue_db").options(**options).load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime="1 second")
        query = writer.start()
        try:
            # The start of Spark's Python processes is not measured.
            db.queue(queue).enqueue("event")
            query.processAllAvailable()
            began = time.time()
            with filled(db, queue, rate, seconds):
                while query.isActive and time.time() - began < (seconds if found else seconds + _PATIENCE):
                    query.awaitTermination(_POLL_INTERVAL)
                    if (last := query.lastProgress) is not None:
                        reports[last["timestamp"]] = last
                    found = [point for point in points(list(reports.values()), began) if point.seconds >= 0]
        finally:
            query.stop()
    if not found:
        raise StreamError(f"the stream has reported no micro-batch in {seconds + _PATIENCE:g} s: give more --seconds")
    return found


def draw(found: list[Point], seconds: float, rate: float, most: int, where: str) -> Figure:
    """Plot backlog, held jobs and age of the oldest job over time."""
    figure, panels = drawing.blank(6.2, 3, ratios=[2.2, 1.0, 1.4])
    at = [point.seconds for point in found]
    _panel(panels[0], at, [point.backlog for point in found], drawing.BLUE, "backlog: due jobs that are not claimed")
    _panel(panels[1], at, [point.held for point in found], drawing.ORANGE, "held: jobs of the current micro-batch")
    _panel(panels[2], at, [point.oldest for point in found], drawing.GREEN, "age of the oldest job in the backlog, seconds")
    for axes in panels:
        axes.axvspan(_BURST[0] * seconds, _BURST[1] * seconds, color="#F0F0F0", zorder=0, linewidth=0)
        axes.sharex(panels[0])
        axes.set_xlim(0, max([seconds, *at]))
        axes.tick_params(labelbottom=axes is panels[-1])
    _note(panels[0], (sum(_BURST) / 2 * seconds, 0.93), f"burst: {_FACTOR} × the rate", ha="center")
    panels[1].axhline(most, color=drawing.FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    panels[1].set_ylim(0, most * 1.5)
    _note(panels[1], (seconds, 0.8), "maxJobsPerTrigger", ha="right")
    panels[-1].set_xlabel("seconds", fontsize=9)
    title = f"A stream and its queue: {rate:,.0f} jobs/s enqueued, one micro-batch of at most {most:,} jobs per second"
    drawing.title(figure, title, where)
    return figure


def _panel(axes: Axes, at: list[float], values: list[float] | list[int], colour: str, what: str) -> None:
    # Steps: a report holds until the next one.
    axes.step(at, values, where="post", color=colour, linewidth=1.6)
    axes.fill_between(at, values, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, max([1, *values]) * 1.25)
    axes.set_title(what, loc="left", fontsize=9, color=drawing.INK)
    drawing.plain(axes, "y")


def _note(axes: Axes, position: tuple[float, float], text: str, ha: str) -> None:
    """Write a text at a time and a fraction of the height."""
    axes.annotate(text, position, xycoords=("data", "axes fraction"), ha=ha, va="center", fontsize=8.5, color=drawing.SOFT)


def save(figure: Figure, path: Path) -> None:
    """Save as SVG or PNG, depending on the suffix."""
    if path.suffix == ".svg":
        path.write_text(drawing.svg(figure, "backlog"), encoding="utf-8")
    else:
        path.write_bytes(drawing.png(figure))


def main() -> int:
    """Run the application; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="database URL (default: $QUEUE_DB_URL, otherwise a temporary SQLite file)")
    parser.add_argument("--output", type=Path, default=Path("backlog.svg"), help="file for the plot, .svg or .png (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the run, seconds (%(default)s)")
    parser.add_argument(
        "--rate", type=float, default=500.0, help="jobs enqueued per second; four times as many during the burst (%(default)s)"
    )
    parser.add_argument("--max-jobs", type=int, default=1000, help="maxJobsPerTrigger (%(default)s)")
    options = parser.parse_args()
    if options.output.suffix not in (".svg", ".png"):
        parser.error(f"--output {options.output}: must end in .svg or .png")
    with applications.session("plot_backlog") as spark, tempfile.TemporaryDirectory() as folder:
        url = options.url or os.environ.get("QUEUE_DB_URL") or f"sqlite:///{folder}/queue.db"
        found = run(spark, url, f"backlog-{uuid.uuid4().hex[:8]}", options.seconds, options.rate, options.max_jobs, folder)
        with QueueDB(url) as db:
            db.check()
            where = f"{db.database.server}, Spark {spark.version}"
    save(draw(found, options.seconds, options.rate, options.max_jobs, where), options.output)
    most = max(found, key=lambda point: point.backlog)
    print(f"{len(found)} micro-batches; largest backlog: {most.backlog:,} after {most.seconds:.0f} s; {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
