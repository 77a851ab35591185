"""The driver's program: takes orders, a line of JSON each, until its input ends, and answers each with a file.

``python client.py FOLDER``; what it writes there is ``ready.json`` and ``answer-<number>.json``.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from queue_db.spark import drain_to, read_results, register

SCHEMA = "n long"

#: Most starts of a query.
STARTS = 30


def write(spark, order):
    """All rows or none, under the same name and version however often it is run."""
    rows = spark.range(0, order["jobs"], 1, order["partitions"]).selectExpr("concat('{\"n\":', id, '}') AS payload")
    rows.write.format("queue_db").options(**order["to"]).mode("append").save()


def stream_write(spark, order):
    """From a queue into another."""
    rows = spark.readStream.format("queue_db").options(**order["from"]).load().select("payload")
    run(rows.writeStream.format("queue_db").options(**order["to"]), order)


def stream_read(spark, order):
    """From a queue into Spark's own Parquet sink; answer with what a reader of that finds."""
    rows = spark.readStream.format("queue_db").options(**order["from"]).load().select("payload")
    run(rows.writeStream.format("parquet").option("path", order["out"]), order)
    return [json.loads(row.payload)["n"] for row in spark.read.parquet(order["out"]).collect()]


def effects(spark, order):
    """From a queue into a table: the tasks insert row by row, each in a transaction of its own, at the first node that answers."""

    def apply(rows):
        from kills_hook import arrive

        connection = connected(order["nodes"])
        for row in rows:
            connection.execute(text(order["insert"]), {"job": row.job})
            arrive("effect", "after")

    rows = spark.readStream.format("queue_db").options(**order["from"]).load()
    rows = rows.selectExpr("CAST(get_json_object(payload, '$.n') AS BIGINT) AS job")
    run(rows.writeStream.foreachBatch(lambda some, _: some.foreachPartition(apply)), order)


def connected(nodes):
    for node in nodes:
        with suppress(OperationalError):
            return create_engine(node, isolation_level="AUTOCOMMIT").connect()
    raise ConnectionError("no node answers")


def run(writer, order):
    for _ in range(STARTS):
        query = writer.option("checkpointLocation", order["checkpoint"]).start()
        try:
            last = Path(order["last"])
            while not last.exists():
                if query.awaitTermination(0.05):  # it raises what went wrong
                    raise RuntimeError("the query has ended by itself")
            query.processAllAvailable()
        except StreamingQueryException as error:
            # On a busy machine Python may start in more than the ten seconds that Spark gives it.
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return
        finally:
            query.stop()
    raise RuntimeError(f"Python did not start in time, {STARTS} times")


def drain(spark, order):
    """Answer with the results by the reader's rule."""
    worked = order["worked"]

    def work(jobs):
        line = "".join(f"{payload['n']}\n" for payload in jobs["payload"])
        notes = os.open(worked, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(notes, line.encode())
        os.close(notes)
        return jobs.assign(n=[payload["n"] for payload in jobs["payload"]])[["id", "n"]]

    drain_to(spark, order["url"], order["queue"], work, SCHEMA, order["out"], **order["how"])
    return [row.n for row in read_results(spark, order["out"], SCHEMA).collect()]


PROGRAMS = {"write": write, "stream-write": stream_write, "stream-read": stream_read, "drain": drain, "effects": effects}


def report(path, what):
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(what))
    unfinished.rename(path)


def main(folder):
    """Take orders."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    report(folder / "ready.json", {"java": java})
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        began = time.monotonic()
        try:
            answer = {"found": PROGRAMS[order["program"]](spark, order)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the round judges it
            answer = {"error": f"{type(error).__name__}: {error}"}
        report(folder / f"answer-{number}.json", answer | {"seconds": time.monotonic() - began})
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
