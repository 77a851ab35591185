"""``manage.py queue_worker``: runs the tasks of a backend."""

from __future__ import annotations

import logging
import math
from argparse import ArgumentParser, ArgumentTypeError
from copy import copy
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.utils.autoreload import run_with_reloader

from queue_db.contrib.django.databases import with_command
from queue_db.contrib.django.framework import Task
from queue_db.contrib.django.supervised import supervise
from queue_db.contrib.django.worker import backend_of, make_worker
from queue_db.errors import QueueDBError, SchemaOutOfDateError

# What Django logs of tasks, as the traceback of a failed one.
OF_TASKS = Task.__module__.rpartition(".")[0]

LOGGERS = ("queue_db", OF_TASKS)

_LEVELS = {0: logging.CRITICAL, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}

_EPILOG = """
Ctrl-C and SIGTERM stop it: it takes no more tasks, waits --grace seconds for running ones, and returns the rest to their queues.
A second signal returns them at once. Tasks of a worker that was killed run again when their lease ends (60 s), on the same machine
within 15 s of the next worker's start. Start one worker per core or machine; they share the work. With --processes a supervisor
starts N, passes signals on, logs and replaces those that die, after pauses of at most 30 s, and returns their tasks at once.
"""


class Command(BaseCommand):
    """The command."""

    help = "Run the tasks of a backend of TASKS that is queue_db.contrib.django.QueueBackend."
    requires_system_checks = "__all__"

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """The parser, with the signals below the options."""
        return super().create_parser(prog_name, subcommand, epilog=_EPILOG, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add = parser.add_argument
        add("--backend", default="default", metavar="ALIAS", help="alias in TASKS (default: default)")
        add(
            "--queue",
            action="append",
            default=[],
            metavar="NAME",
            help="serve this queue; again for more, in order; default: all QUEUES",
        )
        add("--concurrency", "--threads", type=_at_least_one, metavar="N", help="tasks at once, each in a thread (default: 10)")
        add("--until-empty", "--batch", action="store_true", help="exit when no task is due")
        add("--interval", type=_seconds, metavar="SECONDS", help="longest pause between two looks at empty queues (default: 0.5)")
        add("--lease", type=_seconds, metavar="SECONDS", help="tasks of a killed worker run again after this time (default: 60)")
        add("--grace", type=_seconds, metavar="SECONDS", help="how long a stop waits for running tasks (default: 30)")
        add("--max-tasks", type=_at_least_one, metavar="N", help="exit after N tasks, against leaks")
        add(
            "--name",
            "--worker-id",
            type=_name,
            metavar="NAME",
            help="in worker_ids; no two workers may share it (default: host:pid-random)",
        )
        add(
            "--processes",
            type=_at_least_one,
            default=1,
            metavar="N",
            help="processes; those that die are replaced (default: 1)",
        )
        add("--reload", action="store_true", help="start again when the code changes, for development")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        _log_to(self.stderr, _LEVELS[options["verbosity"]])
        if options["processes"] > 1:
            if options["reload"] or options["name"]:
                raise CommandError("--processes goes neither with --reload nor with --name, which no two workers may share")
            if not getattr(self, "_called_from_command_line", False):
                raise CommandError("--processes takes the place of its process: only from the command line")
        if options["reload"]:
            run_with_reloader(self._run, **options)
        else:
            self._run(**options)

    def _run(self, **options: Any) -> None:
        wanted = {
            "concurrency": options["concurrency"],
            "poll": options["interval"],
            "lease": options["lease"],
            "grace": options["grace"],
            "max_jobs": options["max_tasks"],
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        try:
            chosen = {"backend": options["backend"], "queues": options["queue"] or None, **given}
            worker = make_worker(**chosen, name=options["name"])
            try:
                if options["processes"] > 1:
                    worker.db.check()
                    supervise(options["processes"], chosen, until_empty=options["until_empty"])
                worker.run(until_empty=options["until_empty"])
            finally:
                worker.db.close()
        except SchemaOutOfDateError as error:
            raise CommandError(str(with_command(error, backend_of(options["backend"]).settings.database))) from error
        except (ImproperlyConfigured, QueueDBError) as error:
            raise CommandError(str(error)) from error


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ArgumentTypeError("must be a number of seconds, 0 or more")
    return max(number, 0.01)


def _name(text: str) -> str:
    if not 0 < len(text) <= 64:
        raise ArgumentTypeError("must have 1 to 64 characters")
    return text


class _Formatter(logging.Formatter):
    """Lines that any stream takes: an error's text may have bytes that are no text, as names of files do.

    The death of a job has no traceback here: Django's line about the failed task has it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, with such bytes as escapes."""
        if record.name == "queue_db.dead" and _shown(OF_TASKS):
            record = copy(record)
            record.exc_info = record.exc_text = None
        return super().format(record).encode("utf-8", "backslashreplace").decode()


def _shown(name: str) -> bool:
    """Whether errors of this logger come to the same stream: by our handler, or by Django's own on a console, which needs DEBUG."""
    logger = logging.getLogger(name)
    return any(isinstance(each.formatter, _Formatter) for each in logger.handlers) or (settings.DEBUG and logger.hasHandlers())


def _log_to(stream: Any, level: int) -> None:
    """Show what workers and tasks log, unless the setting LOGGING says where it goes."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not logger.hasHandlers():
            handler = logging.StreamHandler(stream)
            handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(level)
