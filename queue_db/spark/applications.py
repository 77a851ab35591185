"""What an application for ``spark-submit`` has beside its work: where the database is, a session, and errors in one line."""

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

#: The environment variable with the database's URL. Spark copies command lines into its event log, so a password belongs there.
VARIABLE = "QUEUE_DB_URL"


def parser(document: str | None) -> argparse.ArgumentParser:
    """A parser that shows ``document`` as it is, with ``--url``."""
    made = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-v", "--verbose", action="store_true", help="show the whole traceback of an error, also of a task's")
    made.add_argument("--url", help=f"the database, or file:/path of a file with its URL (default: ${VARIABLE})")
    return made


def database(parser: argparse.ArgumentParser, given: str | None) -> str:
    """The database's URL: ``given``, or the variable's. Without it, or without the file that it names, the application ends (2)."""
    url = given or os.environ.get(VARIABLE)
    if not url:
        parser.error(f"give --url or set {VARIABLE}")
    try:
        return resolve_url(url)
    except ConfigurationError as error:
        parser.error(str(error))


@contextmanager
def session(name: str, *, verbose: bool = False) -> Iterator[SparkSession]:
    """Spark for this block. An error of the queue or of Spark is told in one line, and the application ends (1).

    :param verbose: print the error with its traceback, and with those of the task that it came from.
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
    """What was wrong: of Spark's answers, which bring a task's whole traceback along, the line in which the task says it."""
    if isinstance(error, QueueDBError):
        return str(error)
    found = re.findall(r"SparkTaskError: (.+)", str(error))
    return found[-1] if found else str(error).strip().partition("\n")[0]
