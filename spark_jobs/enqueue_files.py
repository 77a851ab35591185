"""Enqueue one job per file of a folder tree.

    export QUEUE_DB_URL=postgresql+psycopg2://user:password@host/database
    spark-submit spark_jobs/enqueue_files.py --queue files --dir /data

Every executor needs access to the folder. Links and special files (pipes, sockets, devices) are skipped. A second run adds only
files without a live job.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import URL

from queue_db.spark import applications, enqueue

KIND = "file"


def file_uri(path: str | Path) -> str:
    """Return an absolute path as a ``file:`` URI; percent-encoding represents file names that are not valid text."""
    return "file://" + quote_from_bytes(os.fsencode(path))


def file_path(uri: str) -> Path:
    """Return the path of a :func:`file_uri`."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))


def walk(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Map ``folder, deep`` to ``uri, key`` of the regular files in each folder and, if ``deep``, in its subfolders."""
    for folders in batches:
        for start, deep in zip(folders["folder"], folders["deep"], strict=True):
            for folder, below, names in os.walk(file_path(start)):
                uris = [file_uri(path) for path in (Path(folder, name) for name in names) if _is_file(path)]
                # A path may exceed the length of a key.
                keys = [hashlib.sha256(uri.encode()).hexdigest() for uri in uris]
                yield pd.DataFrame({"uri": uris, "key": keys}, dtype="str")
                if not deep:
                    below.clear()


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # deleted meanwhile
        return False


def list_files(spark: SparkSession, folder: Path, tasks: int, skip: frozenset[str] = frozenset()) -> DataFrame:
    """Return ``uri, key`` of the files below ``folder``, listed by ``tasks`` tasks; ``skip``: names of subfolders to skip."""
    tops = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False) and entry.name not in skip]
    starts = [(file_uri(str(folder)), False), *((file_uri(top), True) for top in tops)]
    return (
        spark.createDataFrame(starts, "folder string, deep boolean").repartition(tasks).mapInPandas(walk, "uri string, key string")
    )


def enqueue_files(
    spark: SparkSession, url: str | URL, queue: str, folder: Path, tasks: int, skip: frozenset[str] = frozenset()
) -> int:
    """Enqueue the files below ``folder`` and return how many jobs were added."""
    files = list_files(spark, folder, tasks, skip)
    return enqueue(files, url, queue, kind=KIND, payload=["uri"], unique_key="key")


def main() -> int:
    """Run the application; return the exit status."""
    parser = applications.parser(__doc__)
    parser.add_argument("--queue", default="files", help="name of the queue (%(default)s)")
    parser.add_argument("--dir", required=True, type=Path, help="folder whose files are enqueued")
    parser.add_argument("--tasks", type=int, default=4, help="number of parallel tasks (%(default)s)")
    options = parser.parse_args()
    url = applications.database(parser, options.url)
    if not options.dir.is_dir():
        parser.error(f"--dir {options.dir}: no such folder")
    with applications.session("enqueue_files", verbose=options.verbose) as spark:
        added = enqueue_files(spark, url, options.queue, options.dir.resolve(), options.tasks)
    print(f"{added} jobs added to queue {options.queue!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
