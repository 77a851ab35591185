"""``queue-db work``: a worker for a Python function, or for any program."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from queue_db import arguments
from queue_db.cli import output, statuses
from queue_db.cli.commands import (
    URL_VARIABLE,
    JsonOption,
    MaskedFormatter,
    QueueArgument,
    SchemaOption,
    TableOption,
    UrlOption,
    command,
    opened,
)
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.worker import Handler, Program, Worker

# Connections besides one for each thread: the heartbeat's and the sweeper's.
_HELPERS = 2


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app,
        "work",
        "queue-db work mail --handler shop.mail:send --workers 8",
        "queue-db work thumbnails --exec 'python make_thumbnail.py' --timeout 300",
        "queue-db work reports --exec 'jq .customer | xargs ./report.sh' --shell --until-empty",
    )
    def work(
        queue: QueueArgument,
        *,
        exec_: Annotated[
            str | None,
            typer.Option("--exec", metavar="CMD", help="Run this program for each job, with the payload on its standard input."),
        ] = None,
        handler: Annotated[
            str | None,
            typer.Option(
                "--handler",
                metavar="MODULE:NAME",
                help="Call this Python function for each job, or the one for the job's kind if NAME is a mapping. "
                "The current folder is searched first.",
            ),
        ] = None,
        shell: Annotated[bool, typer.Option("--shell", help="Let a shell (/bin/sh) run CMD.")] = False,
        pass_url: Annotated[
            bool, typer.Option("--pass-url", help=f"Give CMD the database, with its password, in {URL_VARIABLE}.")
        ] = False,
        timeout: Annotated[
            float | None, typer.Option(metavar="SECONDS", help="End CMD after so many seconds; the attempt has failed then.")
        ] = None,
        workers: Annotated[int, typer.Option(min=1, metavar="N", help="Jobs that are worked on at once (threads).")] = 1,
        batch: Annotated[int, typer.Option(min=1, metavar="N", help="Jobs that one thread claims at once.")] = 1,
        lease: Annotated[
            float,
            typer.Option(metavar="SECONDS", help="How long a job is stuck when this process is killed. Running jobs are extended."),
        ] = 60.0,
        poll: Annotated[float, typer.Option(metavar="SECONDS", help="Longest pause between two looks at an empty queue.")] = 1.0,
        grace: Annotated[
            float, typer.Option(metavar="SECONDS", help="How long a stop waits for running jobs before it gives them back.")
        ] = 30.0,
        until_empty: Annotated[bool, typer.Option("--until-empty", help="End when no job is due.")] = False,
        strategy: Annotated[str, typer.Option(metavar="NAME", help='How jobs are claimed; see "doctor".')] = "adaptive",
        removal: Annotated[str, typer.Option(metavar="NAME", help='How completed jobs leave; see "doctor".')] = "delete",
        verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every job.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Work on the jobs of a queue until stopped, or with --until-empty until no job is due.

        A function gets the leased job. It returns nothing when the job is done, or Snooze, Retry, Cancel or Dead; an exception
        fails the attempt.

        A program finds QUEUE_DB_QUEUE, QUEUE_DB_JOB_ID, QUEUE_DB_JOB_KIND, QUEUE_DB_JOB_FENCE and QUEUE_DB_JOB_ATTEMPT in its
        environment; QUEUE_DB_URL is taken out unless --pass-url. Its exit status 0 completes the job, 75 asks for another attempt,
        65 sends it to the dead; any other fails the attempt. The end of its standard error becomes the job's last error. The words
        of CMD are split as by a shell, but no shell runs unless --shell.

        SIGTERM and Ctrl-C stop the worker in good order: no more claims, running jobs finish within --grace, the rest are given
        back. A second signal gives them back at once. After Ctrl-C the status is 130, after SIGTERM 0.

        The log goes to standard error. With --json a summary is printed at the end, and programs write to standard error only.
        """
        if (exec_ is None) == (handler is None):
            raise ArgumentError("what is to be done with a job? Give either --exec or --handler")
        if exec_ is None and (shell or pass_url or timeout is not None):
            raise ArgumentError("--shell, --pass-url and --timeout belong to --exec")
        if timeout is not None:
            arguments.seconds("timeout", timeout, zero=False)
        called: Handler | Mapping[str, Handler]
        if exec_ is not None:
            environment = {name: value for name, value in os.environ.items() if name != URL_VARIABLE}
            if pass_url and url:
                environment[URL_VARIABLE] = url
            called = Program(
                exec_,
                environment=environment,
                timeout=timeout,
                shell=shell,
                stdout=sys.stderr.buffer if as_json else None,
                stderr=sys.stderr.buffer,
            )
        else:
            called = _load(str(handler))
        with (
            _logging(url, verbose=verbose),
            opened(url, table, schema, strategy=strategy, removal=removal, pool_size=workers + _HELPERS) as db,
        ):
            worker = Worker(db.queue(queue), called, workers=workers, lease=lease, batch=batch, poll=poll, grace=grace)
            summary = worker.run(until_empty=until_empty)
        if as_json:
            output.record({"queue": queue} | asdict(summary))
        if summary.signal == signal.SIGINT:
            raise typer.Exit(statuses.INTERRUPTED)


@contextmanager
def _logging(url: str | None, *, verbose: bool) -> Iterator[None]:
    """Log to standard error, also what a user's handler logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskedFormatter(url))
    # The retry library says only that something was tried again; what failed in the end is logged by the worker.
    levels = {"": logging.INFO, "queue_db": logging.DEBUG if verbose else logging.INFO, "stamina": logging.ERROR}
    before = {name: logging.getLogger(name).level for name in levels}
    logging.getLogger().addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _load(name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise ArgumentError(f"--handler {name!r}: must be MODULE:NAME, for example shop.mail:send")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path has strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(f"--handler {name!r}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"--handler {name!r}: there is no {attribute} in {module_name}") from None
    return found
