"""``queue-db work``: runs a Worker object of a Python module, or makes a worker of tasks, a function or a program."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any

import typer

from queue_db.cli import output, panels, profiles, statuses
from queue_db.cli.commands import command
from queue_db.cli.lasting import started
from queue_db.cli.loading import load
from queue_db.cli.logs import log_to_stderr
from queue_db.cli.options import CommonOptions
from queue_db.cli.running import process_number, run
from queue_db.cli.work_options import ClaimOptions, HandlerOptions, LogOptions, WorkerOptions
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.processes.children import PARENT_PIPE
from queue_db.tasks import Tasks
from queue_db.worker import Summary, Worker

app = typer.Typer(rich_help_panel=panels.WORKERS)


@command(
    app,
    "work",
    "queue-db work shop.jobs:worker --processes 2 --concurrency 10",
    "queue-db work shop.jobs:tasks --concurrency 8",
    "queue-db work mail --handler shop.mail:send --concurrency 8",
    "queue-db work thumbnails --exec 'python make_thumbnail.py' --timeout 300",
    "queue-db work --feed orders:mailers=4 --handler shop.mail:send",
    "queue-db work high low --exec 'jq .customer | xargs ./report.sh' --shell --until-empty",
)
def work(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKER|QUEUE...]",
            help="MODULE:NAME of a Worker or Tasks object; or, with --exec or --handler, the queues to claim from, in order of "
            "priority; by default those where messages of --feed become jobs.",
        ),
    ] = None,
    *,
    handler: HandlerOptions,
    worker: WorkerOptions,
    claims: ClaimOptions,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes. If one dies, it is replaced, and its jobs are rescued.")
    ] = 1,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when no job is due.")] = False,
    log: LogOptions,
    common: CommonOptions,
) -> None:
    """Run jobs until stopped, or with --until-empty until no job is due.

    Modules are imported from the current folder first. A Worker object has its own database, queues and handlers; options given
    here override its settings. A Tasks object has its own queues and handlers, and runs on the database given here.

    Functions (--handler): the function is called with the leased job. If it returns a Snooze, Retry, Cancel or Dead, that is done;
    any other return value completes the job; an exception fails the attempt.

    Programs (--exec): CMD is split into words like a shell command, but runs without a shell unless --shell is given. Its
    environment has QUEUE_DB_QUEUE, QUEUE_DB_JOB_ID, QUEUE_DB_JOB_KIND, QUEUE_DB_JOB_FENCE and QUEUE_DB_JOB_ATTEMPT, and no
    QUEUE_DB_URL unless --pass-url is given. Exit status 0 completes the job, 65 makes it dead, any other (75 by convention) fails
    the attempt. The end of its standard error becomes the job's last error.

    Signals: SIGTERM, SIGHUP and Ctrl-C stop the worker: it claims no more jobs, releases those that have not started, waits up to
    --grace for running jobs, and releases the rest. A second signal (except SIGHUP) releases them at once. SIGTSTP pauses claiming,
    SIGCONT resumes it. SIGUSR1 logs the stack of every thread. The exit status is 130 after Ctrl-C and 0 after SIGTERM and SIGHUP.

    Start: while the database is away the command waits for it, for a minute at most, and logs that once.

    Processes: each worker process has its number, 1 to N, in QUEUE_DB_PROCESS. With --processes, a supervisor process starts them.
    It imports the module too and has no number; if it dies, its processes stop as after SIGTERM.

    Output: the log, and the standard error of programs, go to standard error. With --json each process prints a summary at its end,
    and the standard output of programs goes to standard error.
    """
    with (
        process_number(processes),
        log_to_stderr(common.url, log.log_format, verbose=log.verbose),
        _configured(target or [], handler, worker, claims, common) as configured,
    ):
        ended = run(configured, processes, until_empty=until_empty)
    if isinstance(ended, Summary):
        if common.as_json:
            named: dict[str, Any] = {"queues": list(configured.options.limits)}
            if configured.options.feeds:
                named["feeds"] = dict(configured.options.feeds)
            output.record(named | asdict(ended))
        again = ended.stuck or ended.recycled
        ended = statuses.INTERRUPTED if ended.signal == signal.SIGINT else statuses.STUCK if again else statuses.OK
    if ended:
        raise typer.Exit(ended)


@contextmanager
def _configured(
    target: list[str], handler: HandlerOptions, options: WorkerOptions, claims: ClaimOptions, common: CommonOptions
) -> Iterator[Worker]:
    """The Worker object that ``target`` names, or a new one for these queues with the given handler."""
    if not handler.given:
        found = _load_target(target)
        if isinstance(found, Worker):
            _refuse_typed_database(target)
            found.configure(**options.given())
            yield found
            return
        with _opened(claims, common) as db:
            yield found.worker(db, **options.given())
        return
    for name in target:
        if _may_name_worker(name):
            output.note(f"{name} is taken for a queue; a Worker object is given alone, without --exec and --handler")
    if not target and not options.feed:
        raise ArgumentError("no queue: give the queues to claim from, or --feed")
    loaded = handler.load(common)
    with _opened(claims, common) as db:
        worker = Worker(db, target or None, **options.given())
        functions = loaded if isinstance(loaded, Mapping) else {None: loaded}
        for kind, function in functions.items():
            worker.handles(kind)(function)
        yield worker


@contextmanager
def _opened(claims: ClaimOptions, common: CommonOptions) -> Iterator[QueueDB]:
    """The database of the command line, for a worker that has none of its own."""
    if PARENT_PIPE not in os.environ:  # the supervisor has asked
        profiles.confirm("run jobs")
    with common.open(waits=True, **asdict(claims)) as db:
        yield db


def _may_name_worker(name: str) -> bool:
    """Whether a queue's name may be meant as ``MODULE:NAME``. Nothing is imported for that: it would run somebody's module."""
    module, colon, _ = name.partition(":")
    top = module.partition(".")[0]
    return (
        bool(colon)
        and top.isidentifier()
        and (top in sys.modules or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None)
    )


def _refuse_typed_database(target: list[str]) -> None:
    """Refuse a database that was typed for a Worker object: it would not be used.

    :raises ArgumentError: ``--url`` or another option of the database is on the command line.
    """
    for name in profiles.typed():
        raise ArgumentError(f"--{name} names no database for {target[0]}: this Worker object has a QueueDB of its own")


def _load_target(target: list[str]) -> Worker | Tasks:
    if len(target) != 1 or ":" not in target[0]:
        raise ArgumentError(
            "no handler: give MODULE:NAME of a Worker object or of tasks, or the queues and either --exec or --handler"
        )
    found = started("importing the worker", lambda: load("worker", target[0]))
    if not isinstance(found, Worker | Tasks):
        raise ArgumentError(
            f"{target[0]} is {found!r}, neither a queue_db.worker.Worker nor a queue_db.tasks.Tasks; to use a function, give the "
            "queues and --handler"
        )
    return found
