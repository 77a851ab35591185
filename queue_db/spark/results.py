"""The result files of a drain: complete or absent, never changed. In a local folder there is one for each batch."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, LongType, StructField, StructType
from pyspark.sql.window import Window

from queue_db.errors import ArgumentError

#: Columns of each result beside the caller's: the job, and the version of its lease.
KEY = (StructField("id", LongType()), StructField("version", LongType()))


def result_schema(schema: StructType | str | None) -> StructType:
    """``id``, ``version`` and the columns of ``schema`` (a StructType, DDL text, or None).

    :raises ArgumentError: it has a column of these names, or is not a list of columns.
    """
    columns = DataType.fromDDL(schema) if isinstance(schema, str) else StructType([]) if schema is None else schema
    if not isinstance(columns, StructType):
        raise ArgumentError(f"schema={schema!r}: must be the columns of the results, as in 'path string, size long'")
    clash = {field.name for field in KEY} & {name.lower() for name in columns.fieldNames()}
    if clash:
        raise ArgumentError(f"the results' columns {', '.join(sorted(clash))} are added by drain: leave them out of the schema")
    return StructType([*KEY, *columns.fields])


# A scheme and a colon: the address of a file system. A single letter is a drive of Windows.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def destination(path: str | os.PathLike[str]) -> Path | str:
    """The folder for results: a Path if it is local, made absolute; a str if only Spark can reach it, as ``s3a://bucket/results``.

    :raises ArgumentError: an address that is not a str, as in ``Path("s3a://bucket")``, or one with ``file:`` and a host.
    """
    text = os.fspath(path)
    found = _SCHEME.match(text)
    if found is None:
        return Path(text).absolute()
    if not isinstance(path, str):
        raise ArgumentError(f"path={path!r}: give the address of a file system as text, and a local folder from its root")
    if found[1].lower() != "file":
        return text.rstrip("/")
    rest = text[len("file:") :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = f"/{rest}" if slash and host in ("", "localhost") else ""
    if not rest.startswith("/"):
        raise ArgumentError(f"path={path!r}: must be file:///folder")
    return Path(rest)


def without_wildcards(text: str) -> str:
    """A path, escaped for Spark, which reads paths as patterns."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", text)


def publish(folder: Path, table: pa.Table) -> None:
    """Write ``table`` as a new file of ``folder``. When this returns, the file is on the disk and visible to readers."""
    name = f"{uuid.uuid4().hex}.parquet"
    # Spark does not read files whose names begin with a dot.
    hidden = folder / f".{name}"
    try:
        with hidden.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(folder / name)
    finally:
        hidden.unlink(missing_ok=True)
    if os.name == "posix":
        # The jobs are deleted next: the new name must survive a power cut too.
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_results(spark: SparkSession, path: str | os.PathLike[str], schema: StructType | str | None) -> DataFrame:
    """The results in ``path``, one row for each job: ``id long, version long`` and the columns of ``schema``.

    A batch whose task died, or lost its lease, between publishing and completing was worked on again, so its rows are in the folder
    twice. The row of the job's last lease (the highest ``version``) counts. Other tools must apply the same rule.

    :param path: the folder or address that was given to :func:`drain`.
    :param schema: the same as there. A folder without a file gives an empty DataFrame.
    """
    folder = destination(path)
    # Where Spark writes, each round has a folder of its own.
    found = without_wildcards(folder) if isinstance(folder, str) else f"file://{without_wildcards(str(folder))}"
    reader = spark.read.schema(result_schema(schema)).option("recursiveFileLookup", str(isinstance(folder, str)).lower())
    rows = reader.parquet(found)
    latest = Window.partitionBy("id").orderBy(f.col("version").desc())
    return rows.withColumn("__rank", f.row_number().over(latest)).where("__rank = 1").drop("__rank")
