"""Checks before Spark runs the package: the calling thread's session, and a Python that has the dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import lru_cache
from typing import Any

from queue_db.errors import ConfigurationError

# Modules that every Python worker imports. The database's driver depends on the URL, and is checked when it is opened.
_NEEDED = ("sqlalchemy", "pyarrow")

# Prints the version of the Python, and the missing ones of the modules.
_PROBE = """
import importlib.util, sys
print("%d.%d" % sys.version_info[:2], *(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""

# Seconds for that program.
_TIMEOUT = 60.0


def use_here(spark: Any) -> None:
    """Make ``spark`` the active session of the calling thread, as ``spark.createDataFrame`` does.

    Spark finds data sources in the session that is active in the calling thread of the JVM. In a thread started by Python there is
    none.
    """
    # With Spark Connect each call carries its session.
    jvm, session = getattr(spark, "_jvm", None), getattr(spark, "_jsparkSession", None)
    if jvm is not None and session is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)


def check(spark: Any, *, on_the_driver: bool) -> None:
    """Refuse a session whose Python workers lack a dependency of the package.

    Spark runs them with ``PYSPARK_PYTHON``, else with ``python3`` from ``PATH``, and not with the program's own Python. Only this
    machine is checked; on others the first task names what is missing, before it touches a job.

    :param on_the_driver: a worker will run on this machine, whatever the master is.
    :raises ConfigurationError: naming what is missing, and the setting that fixes it.
    """
    context = getattr(spark, "_sc", None)
    executable = getattr(context, "pythonExec", None)
    if context is None or executable is None or spark.conf.get("spark.executorEnv.PYTHONPATH", None) is not None:
        return
    local = str(context.master).startswith("local")
    if not (local or on_the_driver):
        return
    found = shutil.which(executable)
    if found is None or found == sys.executable:
        return  # missing: Spark reports that itself; the same as this one: nothing to check
    wrong = _wrong_with(found)
    if wrong:
        raise ConfigurationError(
            f"Spark runs its Python workers with {found}, which {wrong}; this program runs with {sys.executable}. Set "
            f"PYSPARK_PYTHON={sys.executable} in the environment before the session is made (or spark-submit --conf "
            f"spark.pyspark.python={sys.executable}), or install what is missing there"
        )


@lru_cache(maxsize=16)
def _wrong_with(python: str) -> str | None:
    """Why a Python cannot run the package; None: it can, or it could not be asked."""
    try:
        answer = subprocess.run(  # noqa: S603 - Spark is about to run it
            [python, "-c", _PROBE, *_NEEDED], capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version, *missing = answer.stdout.split() or [""]
    if version != "{}.{}".format(*sys.version_info[:2]):
        return f"is Python {version}, and Spark needs the version of the program"
    return f"lacks {', '.join(missing)}" if missing else None
