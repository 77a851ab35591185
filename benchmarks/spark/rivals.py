"""The comparisons for Spark: a plain Python process with the same task, started per run by ``lab.alone``."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.lab import QUEUE, Spent, payload, peak
from queue_db import QueueDB
from queue_db.compare.engines import autocommitting

if TYPE_CHECKING:
    import pandas as pd

#: Jobs per claim of a drain.
BATCH = 1000

#: Columns of a drain's results besides ``id`` and ``version``.
RESULT = "n long, length long"

# Rows per executemany; the driver sends statements of up to 1,024,000 bytes.
_ROWS = 10_000


@contextmanager
def _timed() -> Iterator[Callable[[], Spent]]:
    began, cpu = time.perf_counter(), time.process_time()
    ended: list[float] = []
    try:
        yield lambda: Spent(ended[0] - began, ended[1] - cpu, peak(os.getpid()))
    finally:
        ended += [time.perf_counter(), time.process_time()]


@contextmanager
def _cursor(url: str) -> Iterator[Any]:
    with autocommitting(url) as engine:
        raw = engine.raw_connection()
        try:
            yield raw.cursor()
        finally:
            raw.close()


def copy(url: str, table: str, jobs: int) -> Spent:
    """COPY a prepared CSV."""
    lines = ('{},"{}"'.format(QUEUE, payload(number).replace('"', '""')) for number in range(jobs))
    buffer = io.BytesIO(("\n".join(lines) + "\n").encode())
    with _cursor(url) as cursor:
        with _timed() as spent:
            cursor.copy_expert(f"COPY {table} (queue, payload) FROM STDIN (FORMAT csv)", buffer)
        return spent()


def insert_many(url: str, table: str, jobs: int) -> Spent:
    """``executemany`` of prepared rows in one transaction."""
    rows = [(QUEUE, payload(number)) for number in range(jobs)]
    with _cursor(url) as cursor:
        place = "?" if url.startswith("sqlite") else "%s"
        statement = f"INSERT INTO {table} (queue, payload) VALUES ({place}, {place})"  # noqa: S608
        with _timed() as spent:
            cursor.execute("BEGIN IMMEDIATE" if url.startswith("sqlite") else "BEGIN")
            for start in range(0, jobs, _ROWS):
                cursor.executemany(statement, rows[start : start + _ROWS])
            cursor.execute("COMMIT")
        return spent()


def load_data(url: str, table: str, jobs: int, folder: str) -> Spent:
    """LOAD DATA LOCAL of a prepared file."""
    from sqlalchemy import make_url

    from queue_db.dialects import dialect_for
    from queue_db.spark.dialects import SparkDialect

    file = Path(folder) / "load.tsv"
    file.write_text("".join(f"{QUEUE}\t{payload(number)}\n" for number in range(jobs)))
    parsed = make_url(url)
    options = SparkDialect.of(dialect_for(parsed.get_backend_name())).short_lived_options(parsed, local_infile=True)
    options.setdefault("connect_args", {})["local_infile"] = True
    from sqlalchemy import NullPool, create_engine

    engine = create_engine(parsed, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True, **options)
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        with _timed() as spent:
            cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} CHARACTER SET utf8mb4 (queue, payload)")
        return spent()
    finally:
        raw.close()
        file.unlink()


def look_at(jobs: pd.DataFrame) -> pd.DataFrame:
    """Process the jobs of a drain: minimal work."""
    import pandas as pd

    payloads: Sequence[Any] = jobs["payload"]
    return pd.DataFrame({"id": jobs["id"], "n": [one["n"] for one in payloads], "length": [len(one["text"]) for one in payloads]})


def drain(url: str, schema: str | None, folder: str) -> Spent:
    """Claim, process, write the results and complete like a task of ``queue_db.spark.drain``, without Spark."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("n", pa.int64()), ("length", pa.int64())])
    place = Path(folder)
    with QueueDB(url, schema=schema) as db:
        queue = db.queue(QUEUE)
        queue.stats()  # connect
        with _timed() as spent:
            number = 0
            while jobs := queue.claim(BATCH, 600.0):
                frame = pd.DataFrame(
                    {
                        "id": pd.Series([job.id for job in jobs], dtype="int64"),
                        "kind": [job.kind for job in jobs],
                        "payload": pd.Series([job.payload for job in jobs], dtype="object"),
                        "attempts": pd.Series([job.attempts for job in jobs], dtype="int64"),
                        "fence": [job.fence for job in jobs],
                    }
                )
                done = look_at(frame).assign(version=[job.version for job in jobs])
                _write(pa.Table.from_pandas(done, schema=columns, preserve_index=False), place, number, pq)
                number += 1
                queue.complete_many(jobs)
        return spent()


def _write(table: Any, folder: Path, number: int, parquet: Any) -> None:
    """Write a file under a new name and flush it to disk."""
    hidden = folder / f".{number}.parquet"
    with hidden.open("wb") as file:
        parquet.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(folder / f"{number}.parquet")
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
