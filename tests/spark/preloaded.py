"""Spark's daemon of Python workers, with what each worker needs already imported.

Spark forks a worker for each plan, commit and group of tasks, and it imports all for itself: more than half of the time of these
tests. Spark's daemon imports nothing because pandas and pyarrow start threads, which a fork loses; here they start none. The
cluster, the Connect server and the programs that are killed run Spark's own daemon.
"""

import os
import runpy
import sys
from pathlib import Path

PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then shift 2; exec "{python}" "{this}" "$@"; fi
exec "{python}" "$@"
"""
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def python_in(folder: Path) -> Path:
    """Write a program that is this Python, except that it runs Spark's daemon preloaded; return its path."""
    path = folder / "python"
    path.write_text(PYTHON.format(python=sys.executable, this=Path(__file__).resolve()))
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as with -m
    os.environ.update(NO_THREADS)
    import pandas as pd  # noqa: F401
    import psycopg2  # noqa: F401
    import pyarrow as pa  # noqa: F401
    import pymysql  # noqa: F401
    import pyspark.worker  # noqa: F401

    import queue_db.spark  # noqa: F401

    threads = Path("/proc/self/task")
    if threads.is_dir() and len(list(threads.iterdir())) > 1:
        sys.exit("A module that is imported here has started a thread.")
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
