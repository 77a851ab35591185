"""What Spark must know before it uses the package: the calling thread's session, and a Python that has what is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import lru_cache
from typing import Any

from queue_db.errors import ConfigurationError

# What the package imports in every Python worker; drivers of databases come with the URL.
_NEEDED = ("sqlalchemy", "stamina", "pyarrow")

# Prints the version of the Python, and which of the modules it lacks.
_LOOK = """
import importlib.util, sys
print("%d.%d" % sys.version_info[:2], *(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""

# Seconds for a Python to start and look.
_PATIENCE = 60.0


def use_here(spark: Any) -> None:
    """Make ``spark`` the session in which the calling thread looks data sources up, as ``spark.createDataFrame`` does.

    Spark looks in the session that is active in the calling thread of the JVM; in a thread that Python has started, none is.
    """
    # With Spark Connect the server knows whose call it is.
    jvm, session = getattr(spark, "_jvm", None), getattr(spark, "_jsparkSession", None)
    if jvm is not None and session is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)


def check(spark: Any, *, on_the_driver: bool) -> None:
    """Refuse a session whose Python workers cannot import what the package needs.

    Spark runs them with ``PYSPARK_PYTHON``, else with ``python3`` from ``PATH``, and not with the program's own Python. What runs
    on other machines is not looked at; there the first task says what is missing, before it has touched a job.

    :param on_the_driver: a worker will run on this machine whatever the master is.
    :raises ConfigurationError: naming what is missing, and the setting that cures it.
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
        return  # Spark itself says that it cannot start it
    wrong = _wrong_with(found)
    if wrong:
        raise ConfigurationError(
            f"Spark runs its Python workers with {found}, which {wrong}; this program runs with {sys.executable}. Set "
            f"PYSPARK_PYTHON={sys.executable} in the environment before the session is made (or spark-submit --conf "
            f"spark.pyspark.python={sys.executable}), or install what is missing there"
        )


@lru_cache(maxsize=16)
def _wrong_with(python: str) -> str | None:
    """What keeps a Python from running the package; None: nothing, or nobody knows."""
    try:
        answer = subprocess.run(  # noqa: S603 - Spark is about to run it
            [python, "-c", _LOOK, *_NEEDED], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version, *missing = answer.stdout.split() or [""]
    if version != "{}.{}".format(*sys.version_info[:2]):
        return f"is Python {version}, and Spark needs the version of the program"
    return f"lacks {', '.join(missing)}" if missing else None
