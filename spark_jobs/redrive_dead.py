"""Show what the dead jobs of a queue died of, and bring them back by kind.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/redrive_dead.py --queue orders                                   # look only
    spark-submit spark_jobs/redrive_dead.py --queue orders --kind invoice --redrive          # and bring these back

The table has a line for each kind and error: of an error its first line, numbers replaced by dots, so that errors which differ by
an id count as one. With --redrive the jobs are due now and untried, under their old ids; --kind and --limit say which and how many.
A job whose unique key another job has by now stays dead. Dead jobs are read by the driver, 10,000 at a time.
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
    """The dead jobs of ``queue`` as a DataFrame of :data:`SCHEMA`, with the first line of each error."""
    return spark.createDataFrame(list(_all(db, queue, kind)), SCHEMA)


def _all(db: QueueDB, queue: str, kind: str | None) -> Iterator[tuple[object, ...]]:
    last = None
    while page := db.dead.list(queue, kind=kind, limit=_PAGE, after=last):
        for job in page:
            yield job.kind, (job.last_error or "").strip().partition("\n")[0], job.attempts, job.available_at
        last = page[-1]


def causes(dead: DataFrame) -> DataFrame:
    """``jobs, kind, error, attempts, last``: how many died of what, with how many attempts, until when; most first."""
    alike = f.regexp_replace("error", r"\d+", "…").alias("error")
    counted = dead.groupBy("kind", alike).agg(
        f.count("*").alias("jobs"), f.max("attempts").alias("attempts"), f.max("died_at").alias("last")
    )
    return counted.select("jobs", "kind", "error", "attempts", "last").orderBy(f.desc("jobs"), "kind", "error")


def main() -> int:
    """Do what the command line says."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument("--kind", help="only jobs of this kind")
    parser.add_argument("--redrive", action="store_true", help="bring the jobs back")
    parser.add_argument("--limit", type=int, metavar="JOBS", help="with --redrive: at most so many, lowest ids first")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if options.limit is not None and (options.limit < 1 or not options.redrive):
        parser.error("--limit is a number above 0, and for --redrive")
    with applications.session("redrive_dead", verbose=options.verbose) as spark, QueueDB(url) as db:
        dead = dead_jobs(spark, db, options.queue, options.kind)
        causes(dead).show(1000, truncate=_WIDEST)
        print(f"{dead.count():,} dead jobs")
        if options.redrive:
            back = len(db.dead.redrive(queue=options.queue, kind=options.kind, limit=options.limit))
            left = db.queue(options.queue).stats().dead
            print(f"{back:,} brought back; {left:,} dead jobs of any kind are left in queue {options.queue!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
