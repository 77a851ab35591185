"""``queue-db work``: runs a Worker object of a Python module, or makes a worker of a function or a program."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from queue_db import arguments
from queue_db.cli import output, panels, statuses
from queue_db.cli.commands import command
from queue_db.cli.loading import load
from queue_db.cli.logs import log_to_stderr
from queue_db.cli.options import CommonOptions
from queue_db.cli.running import process_number, run
from queue_db.database.database import URL_VARIABLE
from queue_db.errors import ArgumentError
from queue_db.worker import Program, Summary, Worker
from queue_db.worker.child_process import PARENT_PIPE

_HANDLER = "Handler"
_WORKER = "Worker"

app = typer.Typer(rich_help_panel=panels.WORKERS)


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
            help="Call this Python function for each job; or, if NAME maps kinds to functions, the one of the job's kind.",
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
        typer.Option(metavar="SECONDS", rich_help_panel=_HANDLER, help="Stop CMD after SECONDS; the attempt has failed then."),
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
            return load("--handler", str(self.handler))
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
            help="Jobs that each process claims ahead; for short jobs.",
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
            help="Lease of a claimed job, extended while it runs. If this machine dies, its jobs wait that long at most.",
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
            help="How long a stop waits for running jobs before it returns them to their queues.",
        ),
    ] = None
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="wait|dead",
            show_default="wait",
            rich_help_panel=_WORKER,
            help="Jobs of a kind without a handler: wait returns them without counting an attempt, since another worker may have a "
            "handler; dead makes them dead at once.",
        ),
    ] = None
    unknown_grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", show_default="3600", rich_help_panel=_WORKER, help="How long such jobs wait before they are dead."
        ),
    ] = None
    exit_when_stuck: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_WORKER,
            help="Exit with status 75 when N handlers have not returned after their timeouts or lost leases: they occupy their "
            "slots until a supervisor, such as --processes, starts a new process.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the options that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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


@command(
    app,
    "work",
    "queue-db work shop.jobs:worker --processes 2 --concurrency 10",
    "queue-db work mail --handler shop.mail:send --concurrency 8",
    "queue-db work thumbnails --exec 'python make_thumbnail.py' --timeout 300",
    "queue-db work high low --exec 'jq .customer | xargs ./report.sh' --shell --until-empty",
)
def work(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKER|QUEUE...",
            help="MODULE:NAME of a Worker object; or, with --exec or --handler, the queues to claim from, in order of priority.",
        ),
    ],
    *,
    handler: HandlerOptions,
    worker: WorkerOptions,
    claims: ClaimOptions,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes. One that dies is replaced, and its jobs return at once.")
    ] = 1,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when no job is due.")] = False,
    log_format: Annotated[
        str,
        typer.Option(
            envvar="QUEUE_DB_LOG_FORMAT",
            show_envvar=True,
            metavar="text|json",
            help="Format of the log; json writes one object per line, with the fields of the job concerned.",
        ),
    ] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every job.")] = False,
    common: CommonOptions,
) -> None:
    """Run jobs until stopped, or with --until-empty until no job is due.

    Modules are imported from the current folder first. A Worker object has its own database, queues and handlers; options given
    here override its settings.

    Functions: a function is called with the leased job. Its return value completes the job, unless it is a Snooze, Retry, Cancel or
    Dead; an exception fails the attempt.

    Programs: CMD is split into words as by a shell, but runs without one unless --shell is given. Its environment has
    QUEUE_DB_QUEUE, QUEUE_DB_JOB_ID, QUEUE_DB_JOB_KIND, QUEUE_DB_JOB_FENCE and QUEUE_DB_JOB_ATTEMPT, and no QUEUE_DB_URL unless
    --pass-url is given. Exit status 0 completes the job, 75 requests another attempt, 65 makes the job dead, any other fails the
    attempt. The end of its standard error becomes the job's last error.

    Signals: SIGTERM, SIGHUP and Ctrl-C stop the worker: it claims no more jobs, returns those that have not started, waits up to
    --grace for running jobs, and returns the rest. A second signal (except SIGHUP) returns them at once. SIGTSTP pauses claiming,
    SIGCONT resumes it; SIGUSR1 logs what every thread is doing. The exit status is 130 after Ctrl-C and 0 after SIGTERM and SIGHUP.

    Processes: each worker process has its number, 1 to N, in QUEUE_DB_PROCESS. With --processes a supervisor, which has no number,
    imports the module too; if it dies, its processes stop as after SIGTERM.

    Output: the log, and the standard error of programs, go to standard error. With --json each process prints a summary at its end,
    and the standard output of programs goes to standard error.
    """
    with (
        process_number(processes),
        log_to_stderr(common.url, log_format, verbose=verbose),
        _configured(target, handler, worker, claims, common) as configured,
    ):
        ended = run(configured, processes, until_empty=until_empty)
    if isinstance(ended, Summary):
        if common.as_json:
            output.record({"queues": list(configured.shares.queues)} | asdict(ended))
        ended = statuses.INTERRUPTED if ended.signal == signal.SIGINT else statuses.STUCK if ended.stuck else statuses.OK
    if ended:
        raise typer.Exit(ended)


@contextmanager
def _configured(
    target: list[str], handler: HandlerOptions, options: WorkerOptions, claims: ClaimOptions, common: CommonOptions
) -> Iterator[Worker]:
    """The Worker object that ``target`` names, or a new one for these queues with the given handler."""
    if not handler.given:
        worker = _load_worker(target)
        worker.configure(**options.given())
        yield worker
        return
    loaded = handler.load(common)
    with common.open(**asdict(claims)) as db:
        worker = Worker(db, target, **options.given())
        functions = loaded if isinstance(loaded, Mapping) else {None: loaded}
        for kind, function in functions.items():
            worker.handles(kind)(function)
        yield worker


def _load_worker(target: list[str]) -> Worker:
    if len(target) != 1 or ":" not in target[0]:
        raise ArgumentError("no handler: give MODULE:NAME of a Worker object, or the queues and either --exec or --handler")
    found = load("worker", target[0])
    if not isinstance(found, Worker):
        raise ArgumentError(
            f"{target[0]} is {found!r}, not a queue_db.worker.Worker; to use a function, give the queues and --handler"
        )
    return found
