"""Process the jobs of a queue in parallel tasks, and write one row per job as Parquet.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/drain_to_parquet.py --queue orders --output /data/orders
    spark-submit --py-files work.py spark_jobs/drain_to_parquet.py --queue orders --output /data/t --function work:total --schema …

Without --function a row has the job's kind and its payload as JSON text. Your own function gets a pandas DataFrame of jobs (id,
kind, payload, attempts, fence) and returns one with id and the columns of --schema, such as "number long, total double": one row
per job. A job without a row has failed and is retried. Every executor must reach the database. The output is an address that Spark
can write to, s3a://bucket/orders, or a folder that the driver and all executors share under the same name. After any failure, each
job is in the queue or has a row in the output. Read the output with queue_db.spark.read_results, which returns one row of a job
that ran twice.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable

import pandas as pd

from queue_db.spark import applications, drain_to

SCHEMA = "kind string, payload string"


def as_text(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return kind and payload of each job, the payload as JSON text."""
    texts = [json.dumps(payload, ensure_ascii=False) for payload in jobs["payload"]]
    return pd.DataFrame({"id": jobs["id"], "kind": jobs["kind"], "payload": texts})


def function(text: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Import ``module:function``."""
    module, _, name = text.partition(":")
    try:
        found: Callable[[pd.DataFrame], pd.DataFrame] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; use module:function, and ship the module with --py-files") from None
    return found


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument(
        "--output", required=True, help="folder or address (s3a://…) for the Parquet files; later drains may add to it"
    )
    parser.add_argument(
        "--function", type=function, default=as_text, metavar="MODULE:FUNCTION", help="function that processes a batch of jobs"
    )
    parser.add_argument("--schema", default=SCHEMA, help='columns of the returned rows, without id (default: "%(default)s")')
    parser.add_argument("--partitions", type=int, default=8, help="number of parallel tasks (%(default)s)")
    parser.add_argument("--batch", type=int, default=1000, help="jobs per claim, call and file (%(default)s)")
    parser.add_argument("--lease", type=float, default=60.0, help="time limit for a batch, seconds (%(default)s)")
    parser.add_argument(
        "--until", choices=["empty", "idle"], default="empty", help="idle: do not wait for scheduled jobs (%(default)s)"
    )
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if options.function is not as_text and options.schema == SCHEMA:
        parser.error("--function needs a --schema")
    with applications.session("drain_to_parquet", verbose=options.verbose) as spark:
        done = drain_to(
            spark,
            url,
            options.queue,
            options.function,
            options.schema,
            options.output,
            partitions=options.partitions,
            batch=options.batch,
            lease=options.lease,
            until=options.until,
        )
    print(f"{done.completed:,} jobs completed, {done.failed} attempts failed, {done.counters.lost} leases lost; {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
