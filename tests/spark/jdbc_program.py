"""A Spark program that knows nothing of queue_db: ``python jdbc_program.py JAR...``, with the ways to go as JSON on its input.

Each way is ``{"url", "properties", "queue", "jobs"}``. It appends so many jobs, with the two columns that a job needs, reads the
table back, appends jobs with unique keys twice, and prints what it saw as JSON.
"""

import json
import sys
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


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
