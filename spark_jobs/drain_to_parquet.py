"""Work off a queue in parallel tasks, and keep a row for each job as Parquet.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/drain_to_parquet.py --queue orders --output /data/orders
    spark-submit --py-files work.py spark_jobs/drain_to_parquet.py --queue orders --output /data/t --function work:total --schema …

Without --function the rows are the jobs: kind, and payload as JSON text. A function of yours gets a pandas DataFrame of jobs (id,
kind, payload, attempts, fence) and returns one with id and the columns of --schema, such as "number long, total double": a row for
each job. A job without a row has failed and is tried again. Every executor must reach the database. The output is an address that
Spark writes to, s3a://bucket/orders, or a folder that the driver and all executors see under the same name. Whatever dies, each job
is in the queue or its row is there. Read that with queue_db.spark.read_results: a job that was worked on twice has two rows there,
and one of them counts.
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
    """The jobs themselves, payloads as JSON."""
    texts = [json.dumps(payload, ensure_ascii=False) for payload in jobs["payload"]]
    return pd.DataFrame({"id": jobs["id"], "kind": jobs["kind"], "payload": texts})


def function(text: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """``module:function``, imported."""
    module, _, name = text.partition(":")
    try:
        found: Callable[[pd.DataFrame], pd.DataFrame] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; write module:function, and give the module to --py-files") from None
    return found


def main() -> int:
    """Do what the command line says."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument(
        "--output", required=True, help="folder for the Parquet files, or its address, s3a://…; later drains may add to it"
    )
    parser.add_argument("--function", type=function, default=as_text, metavar="MODULE:FUNCTION", help="what works on the jobs")
    parser.add_argument("--schema", default=SCHEMA, help='columns of its rows, without id (default: "%(default)s")')
    parser.add_argument("--partitions", type=int, default=8, help="tasks that claim at the same time (%(default)s)")
    parser.add_argument("--batch", type=int, default=1000, help="jobs in one claim, one call and one file (%(default)s)")
    parser.add_argument("--lease", type=float, default=60.0, help="seconds that a batch may take (%(default)s)")
    parser.add_argument(
        "--until", choices=["empty", "idle"], default="empty", help="idle: leave jobs that are scheduled for later (%(default)s)"
    )
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if options.function is not as_text and options.schema == SCHEMA:
        parser.error("--function needs a --schema of its own")
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
