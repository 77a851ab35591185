"""The worker of ``manage.py queue_worker --processes N``: the library's command imports it from here, in each of its processes."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from queue_db.worker import Worker

# JSON: the arguments of make_worker.
_VARIABLE = "QUEUE_DB_DJANGO_WORKER"


def supervise(processes: int, arguments: Mapping[str, Any], *, until_empty: bool) -> None:
    """Let ``queue-db work --processes`` take the place of this process, with the same process id. Does not return.

    :param arguments: those of :func:`~queue_db.contrib.django.worker.make_worker`; JSON has them.
    :raises ImproperlyConfigured: the command is not installed.
    """
    if find_spec("typer") is None:
        raise ImproperlyConfigured("--processes needs the command queue-db: pip install 'queue-db[cli]'")
    command = [sys.executable, "-m", "queue_db", "work", f"{__name__}:worker", "--processes", str(processes)]
    # All paths: beside manage.py are the modules of the project, and it may have added others.
    variables = {_VARIABLE: json.dumps(dict(arguments)), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    os.execve(sys.executable, [*command, *(["--until-empty"] if until_empty else [])], os.environ | variables)  # noqa: S606


def __getattr__(name: str) -> Any:
    if name != "worker":
        raise AttributeError(name)
    return _worker()


@cache
def _worker() -> Worker:
    import django

    from queue_db.contrib.django.worker import make_worker

    django.setup()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "queue_db" and isinstance(logger, logging.Logger):
            logger.disabled = False  # LOGGING disables the loggers that are there before it
    return make_worker(**json.loads(os.environ[_VARIABLE]))
