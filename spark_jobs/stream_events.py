"""Stream a queue into a folder of Parquet, each job exactly once.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/stream_events.py --queue events --output /data/events                 # process all jobs, then exit
    spark-submit spark_jobs/stream_events.py --queue events --output /data/events --trigger 10    # every 10 seconds, until Ctrl-C

Each micro-batch is written to its own folder, /data/events/batch=7, which is complete when it contains _SUCCESS. A micro-batch
that is repeated after a crash replaces its folder. The checkpoint is in /data/events/_checkpoint: a new checkpoint counts its
batches from 0 again, so it needs a new output folder. The stream has the name of the queue unless --stream is given; a queue may
have several streams, which share its jobs, and each needs its own output folder. Progress is shown on a terminal.
"""

import argparse
import json
import sys
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from queue_db import QueueDB
from queue_db.errors import ConfigurationError
from queue_db.spark import applications, register

_POLL_INTERVAL = 1.0


def start(spark: SparkSession, url: str, queue: str, stream: str, output: str, trigger: float | None, most: int) -> StreamingQuery:
    """Start the stream.

    :param trigger: seconds between micro-batches; None: process all available jobs, then end.
    :param most: most jobs in a micro-batch.
    """
    with QueueDB(url) as db:
        db.check()
    checkpoint = f"{output}/_checkpoint"
    if not _exists(spark, checkpoint) and _exists(spark, f"{output}/batch=0"):
        raise ConfigurationError(
            f"{output} has batches and no _checkpoint: give a new folder, otherwise new batches would replace the old ones"
        )
    register(spark)
    source = spark.readStream.format("queue_db").options(url=url, queue=queue, stream=stream, maxJobsPerTrigger=most).load()

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{output}/batch={batch}")

    writer = source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=f"{trigger} seconds")
    return writer.start()


def _exists(spark: SparkSession, path: str) -> bool:
    # Checked by Spark: the path may be on HDFS, in a bucket, or on the Connect server's disk.
    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException:
        return False
    return True


def follow(query: StreamingQuery, *, show: bool) -> None:
    """Wait for the end of a query, and print its progress to standard error."""
    shown: Any = None
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(_POLL_INTERVAL))
        last = query.lastProgress
        if show and last is not None and last["batchId"] != shown and last["numInputRows"]:
            shown = last["batchId"]
            print(line(last), file=sys.stderr)


def line(progress: Any) -> str:
    """Return a line about a micro-batch."""
    offset = progress["sources"][0]["latestOffset"]
    found = json.loads(offset) if isinstance(offset, str) else offset or {}
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    text = f"batch {progress['batchId']}: {progress['numInputRows']:,} jobs in {seconds:.1f} s"
    if found:
        text += f"; backlog {found['backlog']:,}, held {found['held']:,}, oldest {found['oldestSeconds']:.0f} s"
    return text


def _trigger(text: str) -> float | None:
    if text == "available-now":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be available-now or a number of seconds")
    return seconds


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument("--output", required=True, metavar="PATH", help="folder for batches and checkpoint: s3a://…, hdfs://…, /…")
    parser.add_argument("--stream", metavar="NAME", help="name of the stream (default: name of the queue)")
    parser.add_argument(
        "--trigger", type=_trigger, default="available-now", help="available-now, or seconds between micro-batches (%(default)s)"
    )
    parser.add_argument("--max-jobs", type=int, default=100_000, help="most jobs in a micro-batch (%(default)s)")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    output = options.output.rstrip("/")
    with applications.session("stream_events", verbose=options.verbose) as spark:
        stream = options.stream or options.queue
        query = start(spark, url, options.queue, stream, output, options.trigger, options.max_jobs)
        try:
            follow(query, show=sys.stderr.isatty())
        except KeyboardInterrupt:
            query.stop()  # the current batch is repeated at the next start
    print(f"queue {options.queue!r} was written to {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
