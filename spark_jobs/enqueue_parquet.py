"""Enqueue one job per row of a folder of Parquet: all rows or none.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/enqueue_parquet.py --queue orders --input /data/orders --payload number,total --unique-key number
    spark-submit spark_jobs/enqueue_parquet.py --queue orders --input /data/2026-03-01 --txn-app-id orders --txn-version 20260301

A payload is a JSON object with the columns of --payload. With --unique-key a row is skipped if a waiting or running job has its
key. --txn-app-id and --txn-version name the load: a second run of the same load adds nothing. Without them a second run adds all
rows again. Every executor must reach the database and the folder.
"""

import sys

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from queue_db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.spark import applications, register


def enqueue_parquet(
    spark: SparkSession,
    url: str,
    queue: str,
    folder: str,
    *,
    kind: str,
    payload: list[str] | None = None,
    unique_key: str | None = None,
    load: tuple[str, int] | None = None,
) -> int:
    """Enqueue the rows of ``folder`` and return their number.

    :param payload: columns of the payload; None: all.
    :param unique_key: column with the unique keys.
    :param load: name and version of the load; the rows of a load are enqueued only once.
    """
    with QueueDB(url) as db:
        db.check()
    rows = spark.read.parquet(folder)
    selected = rows.columns if payload is None else payload
    for name in [*selected, *([] if unique_key is None else [unique_key])]:
        if name not in rows.columns:
            raise ArgumentError(f"{folder} has no column {name!r}; it has {', '.join(rows.columns)}")
    columns = [f.struct(*map(_column, selected)).alias("payload")]
    if unique_key is not None:
        columns.append(_column(unique_key).cast("string").alias("unique_key"))
    options = {"url": url, "queue": queue, "kind": kind}
    if load is not None:
        options |= {"txnAppId": load[0], "txnVersion": str(load[1])}
    register(spark)
    rows.select(*columns).write.format("queue_db").options(**options).mode("append").save()
    return rows.count()  # read from the files' footers


def _column(name: str) -> Column:
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", required=True, help="name of the queue")
    parser.add_argument("--input", required=True, metavar="PATH", help="folder, file or pattern for spark.read.parquet")
    parser.add_argument("--kind", default="default", help="kind of the jobs (%(default)s)")
    parser.add_argument("--payload", type=_names, metavar="COLUMN,…", help="columns of the payload (default: all)")
    parser.add_argument("--unique-key", metavar="COLUMN", help="column with the unique key of each job")
    parser.add_argument("--txn-app-id", metavar="NAME", help="name of the load; needs --txn-version")
    parser.add_argument("--txn-version", type=int, metavar="NUMBER", help="version of the load: a date, a batch, a run")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if (options.txn_app_id is None) != (options.txn_version is None):
        parser.error("--txn-app-id and --txn-version belong together")
    load = None if options.txn_app_id is None else (options.txn_app_id, options.txn_version)
    with applications.session("enqueue_parquet", verbose=options.verbose) as spark:
        rows = enqueue_parquet(
            spark,
            url,
            options.queue,
            options.input,
            kind=options.kind,
            payload=options.payload,
            unique_key=options.unique_key,
            load=load,
        )
    skipped = ", without those whose key a live job has" if options.unique_key else ""
    once = "" if load is None else f" (version {load[1]} of load {load[0]!r}; nothing is added if it was enqueued before)"
    print(f"{rows:,} rows enqueued to queue {options.queue!r}{skipped}{once}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
