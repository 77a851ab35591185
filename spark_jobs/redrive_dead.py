"""Count the errors of a queue's dead jobs, and return jobs to the queue.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/redrive_dead.py --queue orders                                   # only show
    spark-submit spark_jobs/redrive_dead.py --queue orders --kind invoice --redrive          # and redrive these

The table has one line per kind and error. Only the first line of an error counts, with numbers replaced by dots, so that errors
that differ in an id are counted together. With --redrive the jobs return to the queue under their old ids, due now and with no
attempts counted; --kind and --limit select them. A job whose unique key belongs to a live job stays dead. The driver reads the
dead jobs in pages of 10,000.
"""

import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from queue_db import QueueDB
from queue_db.spark import applications

SCHEMA = "kind string, error string, attempts int, died_at timestamp"

_PAGE = 10_000
_WIDEST = 100


def dead_jobs(spark: SparkSession, db: QueueDB, queue: str, kind: str | None = None) -> DataFrame:
    """Return the dead jobs of ``queue`` as a DataFrame of :data:`SCHEMA`, with the first line of each error."""
    return spark.createDataFrame(list(_all(db, queue, kind)), SCHEMA)


def _all(db: QueueDB, queue: str, kind: str | None) -> Iterator[tuple[object, ...]]:
    last = None
    while page := db.dead.list(queue, kind=kind, limit=_PAGE, after=last):
        for job in page:
            yield job.kind, (job.last_error or "").strip().partition("\n")[0], job.attempts, job.available_at
        last = page[-1]


def causes(dead: DataFrame) -> DataFrame:
    """Return ``jobs, kind, error, attempts, last``: number of jobs, largest number of attempts and last time, most jobs first."""
    alike = f.regexp_replace("error", r"\d+", "…").alias("error")
    counted = dead.groupBy("kind", alike).agg(
        f.count("*").alias("jobs"), f.max("attempts").alias("attempts"), f.max("died_at").alias("last")
    )
    return counted.select("jobs", "kind", "error", "attempts", "last").orderBy(f.desc("jobs"), "kind", "error")


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument("--kind", help="only jobs of this kind")
    parser.add_argument("--redrive", action="store_true", help="return the jobs to the queue")
    parser.add_argument("--limit", type=int, metavar="JOBS", help="with --redrive: at most JOBS, lowest ids first")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if options.limit is not None and (options.limit < 1 or not options.redrive):
        parser.error("--limit must be above 0 and needs --redrive")
    with applications.session("redrive_dead", verbose=options.verbose) as spark, QueueDB(url) as db:
        dead = dead_jobs(spark, db, options.queue, options.kind)
        causes(dead).show(1000, truncate=_WIDEST)
        print(f"{dead.count():,} dead jobs")
        if options.redrive:
            redriven = len(db.dead.redrive(queue=options.queue, kind=options.kind, limit=options.limit))
            left = db.queue(options.queue).stats().dead
            print(f"{redriven:,} redriven; {left:,} dead jobs of all kinds remain in queue {options.queue!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
