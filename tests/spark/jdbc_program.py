"""A Spark program that knows nothing of queue_db: ``python jdbc_program.py JAR...``, with the ways to go as JSON on its input.

Each way is ``{"url", "properties", "queue", "jobs", "schema"}``. It appends so many jobs, with the two columns that a job needs,
reads the table back, appends jobs with unique keys twice, counts by Spark's own catalog for JDBC, and prints what it saw as JSON.
"""

import json
import sys
import uuid
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

CATALOG = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"


def by_catalog(spark: SparkSession, way: dict[str, Any]) -> dict[str, Any]:
    """Count the due jobs in SQL, through a catalog of Spark's."""
    catalog = f"catalog_{uuid.uuid4().hex}"
    for name, value in {"url": way["url"], **way["properties"]}.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{name}", value)
    spark.conf.set(f"spark.sql.catalog.{catalog}", CATALOG)
    table = f"{catalog}.`{way['schema']}`.jobs"
    counted = spark.sql(f"SELECT kind, count(*) AS jobs FROM {table} WHERE queue = '{way['queue']}' GROUP BY kind")
    plan = counted._sc._jvm.PythonSQLUtils.explainString(counted._jdf.queryExecution(), "formatted")  # type: ignore[union-attr]
    return {"counts": [list(row) for row in counted.collect()], "pushed": "PushedAggregates: [COUNT(*)]" in plan}


def go(spark: SparkSession, way: dict[str, Any]) -> dict[str, Any]:
    """Append and read back."""
    jobs = [(way["queue"], json.dumps({"n": number, "text": "\N{GRINNING FACE}"})) for number in range(way["jobs"])]
    frame = spark.createDataFrame(jobs, "queue string, payload string")
    frame.write.jdbc(way["url"], "jobs", mode="append", properties=way["properties"])
    table = spark.read.jdbc(way["url"], "jobs", properties=way["properties"])
    mine = table.where(F.col("queue") == way["queue"])
    first = mine.orderBy("id").first()
    keyed = frame.select(
        F.lit(way["queue"] + "-keyed").alias("queue"), "payload", F.get_json_object("payload", "$.n").alias("unique_key")
    )
    refusals = []
    for _ in range(2):
        try:
            keyed.write.jdbc(way["url"], "jobs", mode="append", properties=way["properties"])
        except Py4JJavaError as error:
            refusals.append(str(error))
    return {
        "types": dict(table.dtypes),
        "rows": mine.count(),
        "due": mine.where(F.col("available_at") > 0).count(),
        "first": first.asDict() if first else None,
        "keyed": table.where(F.col("queue") == way["queue"] + "-keyed").count(),
        "refusals": refusals,
        "catalog": by_catalog(spark, way),
    }


def main(jars: list[str]) -> None:
    """Go every way in one session."""
    ways = json.load(sys.stdin)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    print(json.dumps({name: go(spark, way) for name, way in ways.items()}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
