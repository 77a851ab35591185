"""Read the files enqueued by ``enqueue_files.py``, and write size, lines and SHA-256 of each as Parquet.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/drain_files.py --queue files --output /data/results

Every executor needs access to the files and to the output folder. Read the results with ``queue_db.spark.read_results``.
"""

import hashlib
import os
import sys
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pandas as pd
from pyspark.sql import SparkSession
from sqlalchemy import URL

from queue_db.spark import Drained, applications, drain_to

#: ``lines`` counts newline bytes, like ``wc -l``. A file that cannot be read has only an ``error``.
SCHEMA = "uri string, size long, lines long, sha256 string, error string"

_BLOCK = 1 << 20


def measure(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per file."""
    rows = [{"id": job_id} | measure_file(payload["uri"]) for job_id, payload in zip(jobs["id"], jobs["payload"], strict=True)]
    # Objects: numbers in a column with missing values would become inexact floats.
    return pd.DataFrame(rows, columns=["id", "uri", "size", "lines", "sha256", "error"], dtype="object")


def measure_file(uri: str) -> dict[str, str | int | None]:
    """Return size, lines and SHA-256 of a file; a missing or unreadable file is a result, not a failure."""
    size = lines = 0
    digest = hashlib.sha256()
    try:
        with Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://")))).open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                lines += block.count(b"\n")
                digest.update(block)
    except OSError as error:
        return {"uri": uri, "error": f"{type(error).__name__}: {error.strerror}"}
    return {"uri": uri, "size": size, "lines": lines, "sha256": digest.hexdigest()}


def drain_files(spark: SparkSession, url: str | URL, queue: str, output: Path, tasks: int, lease: float) -> Drained:
    """Drain ``queue`` into ``output`` with the optimistic strategy."""
    return drain_to(spark, url, queue, measure, SCHEMA, output, partitions=tasks, lease=lease, strategy="optimistic")


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", default="files", help="name of the queue (%(default)s)")
    parser.add_argument("--output", required=True, type=Path, help="folder for the Parquet files")
    parser.add_argument("--tasks", type=int, default=4, help="number of parallel tasks (%(default)s)")
    parser.add_argument("--lease", type=float, default=60.0, help="time limit for a batch of 100 files, seconds (%(default)s)")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    with applications.session("drain_files", verbose=options.verbose) as spark:
        done = drain_files(spark, url, options.queue, options.output, options.tasks, options.lease)
    print(f"{done.completed} jobs completed, {done.failed} attempts failed, {done.counters.lost} leases lost; {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
