"""The options of ``queue-db work``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from queue_db import arguments
from queue_db.cli.loading import load
from queue_db.cli.options import CommonOptions
from queue_db.database.urls import URL_VARIABLE
from queue_db.errors import ArgumentError
from queue_db.processes.children import PARENT_PIPE
from queue_db.processes.program import Program
from queue_db.worker import Worker

# Headings in --help.
_HANDLER = "Handler"
_WORKER = "Worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """What runs a job, if the target is not a Worker object."""

    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            rich_help_panel=_HANDLER,
            help="Run this program for each job, with the payload on standard input.",
        ),
    ] = None
    handler: Annotated[
        str | None,
        typer.Option(
            "--handler",
            metavar="MODULE:NAME",
            rich_help_panel=_HANDLER,
            help="Call this Python function for each job; or, if NAME maps kinds to functions, the one for the job's kind.",
        ),
    ] = None
    shell: Annotated[bool, typer.Option("--shell", rich_help_panel=_HANDLER, help="Run CMD in a shell (/bin/sh).")] = False
    pass_url: Annotated[
        bool,
        typer.Option(
            "--pass-url", rich_help_panel=_HANDLER, help=f"Give CMD the database URL, password included, in {URL_VARIABLE}."
        ),
    ] = False
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", rich_help_panel=_HANDLER, help="Stop CMD after SECONDS; the attempt fails."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether there is one of ``--exec`` and ``--handler``.

        :raises ArgumentError: both, or options of ``--exec`` without it.
        """
        if self.exec_ is not None and self.handler is not None:
            raise ArgumentError("give either --exec or --handler, not both")
        if self.exec_ is None and (self.shell or self.pass_url or self.timeout is not None):
            raise ArgumentError("--shell, --pass-url and --timeout belong to --exec")
        return self.exec_ is not None or self.handler is not None

    def load(self, common: CommonOptions) -> Any:
        """Return the function, the mapping of functions, or the program."""
        if self.timeout is not None:
            arguments.seconds("timeout", self.timeout, zero=False)
        if self.exec_ is None:
            found = load("--handler", str(self.handler))
            if isinstance(found, Worker):
                raise ArgumentError(f"--handler {self.handler} is a Worker object: give it alone, without queues and --handler")
            return found
        environment = {name: value for name, value in os.environ.items() if name not in (URL_VARIABLE, PARENT_PIPE)}
        if self.pass_url and common.url:
            environment[URL_VARIABLE] = common.url
        return Program(
            self.exec_,
            environment=environment,
            timeout=self.timeout,
            shell=self.shell,
            stdout=sys.stderr.buffer if common.as_json else None,
            stderr=sys.stderr.buffer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Arguments of :class:`queue_db.worker.Worker`; None: as the Worker object has it, or its default."""

    concurrency: Annotated[
        int | None,
        typer.Option(
            *("--concurrency", "-c"),
            min=1,
            metavar="N",
            show_default="10",
            rich_help_panel=_WORKER,
            help="Jobs that each process runs at a time.",
        ),
    ] = None
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default="0",
            rich_help_panel=_WORKER,
            help="Jobs that each process claims before it can run them; makes many short jobs faster.",
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            show_default="at_least_once",
            rich_help_panel=_WORKER,
            help="at_least_once; or at_most_once: jobs are deleted when they are claimed, and lost if their worker dies.",
        ),
    ] = None
    lease: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="60",
            rich_help_panel=_WORKER,
            help="Lease of a claimed job, extended while it runs. If this machine dies, its jobs are due again when it ends.",
        ),
    ] = None
    poll: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="0.5",
            rich_help_panel=_WORKER,
            help="Longest interval between two polls of empty queues.",
        ),
    ] = None
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="30",
            rich_help_panel=_WORKER,
            help="How long a stop waits for running jobs before it releases them.",
        ),
    ] = None
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="wait|dead",
            show_default="wait",
            rich_help_panel=_WORKER,
            help="Jobs of a kind without a handler: wait snoozes them, because another worker may have a handler; dead makes them "
            "dead at once.",
        ),
    ] = None
    unknown_grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="3600",
            rich_help_panel=_WORKER,
            help="How long jobs of a kind without a handler wait before they are dead.",
        ),
    ] = None
    exit_when_stuck: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_WORKER,
            help="Exit with status 75 when N handlers have not returned after their timeouts or lost leases: they occupy their "
            "slots until the supervisor (--processes, systemd, a container runtime) starts a new process.",
        ),
    ] = None
    max_jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_WORKER,
            help="Exit with status 75 after N jobs, against leaks of memory: the supervisor (--processes, systemd, a container "
            "runtime) starts a new process.",
        ),
    ] = None
    max_memory: Annotated[
        float | None,
        typer.Option(
            metavar="MB",
            rich_help_panel=_WORKER,
            help="The same when the process has more than MB megabytes of resident memory. Processes of executor='process' are "
            "replaced one by one.",
        ),
    ] = None
    max_interruptions: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default="5",
            rich_help_panel=_WORKER,
            help="The first N attempts of a job that the stop of a worker interrupts do not count.",
        ),
    ] = None

    feed: Annotated[
        list[str] | None,
        typer.Option(
            "--feed",
            metavar="FEED:CURSOR=N",
            rich_help_panel=_WORKER,
            help="Also run the messages of this shared cursor, N spans at a time (repeatable). One that fails becomes a job of the "
            "queue with the cursor's name.",
        ),
    ] = None
    span: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="100",
            rich_help_panel=_WORKER,
            help="Most messages of a feed that are claimed at once.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given.

        :raises ArgumentError: one of ``--feed`` has another form.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if feeds := given.pop("feed", None):
            given["feeds"] = dict(map(_slots, feeds))
        return given


def _slots(text: str) -> tuple[str, int]:
    """``feed:cursor=4`` as a pair."""
    name, _, number = text.rpartition("=")
    if not number.isdecimal():
        raise ArgumentError(f"--feed {text}: must be FEED:CURSOR=N, such as orders:mailers=4")
    return name, int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """How a worker that is not a Worker object claims and completes jobs."""

    strategy: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=_WORKER, help='How jobs are claimed; "queue-db doctor" lists the names.')
    ] = "adaptive"
    removal: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=_WORKER, help='How completed jobs are removed; "queue-db doctor" lists the names.'
        ),
    ] = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How the log is written."""

    log_format: Annotated[
        str,
        typer.Option(
            envvar="QUEUE_DB_LOG_FORMAT",
            show_envvar=True,
            metavar="text|json",
            help="Format of the log; json: one object per line, with fields for the job.",
        ),
    ] = "text"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every job.")] = False
