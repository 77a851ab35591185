"""The frame of an application for ``spark-submit``: the option ``--url``, a session, and errors in one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from queue_db.errors import ConfigurationError, QueueDBError
from queue_db.spark.target import resolve_url

#: The environment variable with the database's URL. Passwords belong here: Spark copies command lines into its event log.
VARIABLE = "QUEUE_DB_URL"


def parser(document: str | None) -> argparse.ArgumentParser:
    """A parser with ``--url`` and ``--verbose`` that prints ``document`` unchanged as its help."""
    made = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error, also of a task's")
    made.add_argument("--url", help=f"the database, or file:/path of a file with its URL (default: ${VARIABLE})")
    return made


def database(parser: argparse.ArgumentParser, given: str | None) -> str:
    """The database's URL: ``given``, or the variable's. If it, or the file that it names, is missing, exit with status 2."""
    url = given or os.environ.get(VARIABLE)
    if not url:
        parser.error(f"give --url or set {VARIABLE}")
    try:
        return resolve_url(url)
    except ConfigurationError as error:
        parser.error(str(error))


@contextmanager
def session(name: str, *, verbose: bool = False) -> Iterator[SparkSession]:
    """A Spark session for this block. After an error of the queue or of Spark, print one line and exit with status 1.

    :param verbose: print the traceback too, with that of the task.
    :raises SystemExit: instead of a QueueDBError or a PySparkException.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        yield spark
    except (QueueDBError, PySparkException) as error:
        if verbose:
            traceback.print_exception(error)
        print(reason(error), file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from None
    finally:
        spark.stop()


def reason(error: QueueDBError | PySparkException) -> str:
    """The error in one line. Spark's errors contain a task's traceback: of that, the line with the task's error."""
    if isinstance(error, QueueDBError):
        return str(error)
    found = re.findall(r"SparkTaskError: (.+)", str(error))
    return found[-1] if found else str(error).strip().partition("\n")[0]
