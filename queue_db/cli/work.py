"""``queue-db work``: runs a worker of a Python module, or makes one of a function or of any program."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from queue_db import arguments
from queue_db.cli import output, statuses
from queue_db.cli.commands import (
    JsonOption,
    MaskedFormatter,
    MaskedJSONFormatter,
    SchemaOption,
    TableOption,
    UrlOption,
    command,
    opened,
)
from queue_db.database.database import URL_VARIABLE
from queue_db.db import process_name
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.worker import Processes, Program, Summary, Worker
from queue_db.worker.tether import NUMBER, VARIABLE, Tied

log = logging.getLogger("queue_db.worker")


def add_to(app: typer.Typer) -> None:
    """Add the command."""

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
                help="MODULE:NAME of a Worker; or with --exec or --handler the queues to work on, asked in this order.",
            ),
        ],
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
        processes: Annotated[
            int,
            typer.Option(min=1, metavar="N", help="Worker processes. One that dies is replaced, its jobs given back at once."),
        ] = 1,
        concurrency: Annotated[
            int | None,
            typer.Option(
                "--concurrency", "-c", min=1, metavar="N", show_default="10", help="Jobs that each process works on at once."
            ),
        ] = None,
        prefetch: Annotated[
            int | None,
            typer.Option(min=0, metavar="N", show_default="0", help="Jobs that each process claims ahead: for many short jobs."),
        ] = None,
        mode: Annotated[
            str | None,
            typer.Option(
                metavar="MODE",
                show_default="at_least_once",
                help="at_least_once, or at_most_once: jobs leave when they are claimed.",
            ),
        ] = None,
        lease: Annotated[
            float | None,
            typer.Option(
                metavar="SECONDS",
                show_default="60",
                help="How long a job is stuck when this machine dies. Running jobs are extended.",
            ),
        ] = None,
        poll: Annotated[
            float | None,
            typer.Option(metavar="SECONDS", show_default="0.5", help="Longest pause between two looks at empty queues."),
        ] = None,
        grace: Annotated[
            float | None,
            typer.Option(
                metavar="SECONDS", show_default="30", help="How long a stop waits for running jobs before it gives them back."
            ),
        ] = None,
        unknown: Annotated[
            str | None,
            typer.Option(
                metavar="WHAT",
                show_default="wait",
                help="What becomes of jobs without a handler for their kind. wait: they come back, not an attempt, since another "
                "worker may have one; dead: at once.",
            ),
        ] = None,
        unknown_grace: Annotated[
            float | None,
            typer.Option(metavar="SECONDS", show_default="3600", help="How long they wait; then they are dead."),
        ] = None,
        exit_when_stuck: Annotated[
            int | None,
            typer.Option(
                min=1,
                metavar="N",
                help="End with status 75 when N handlers have not come back after their timeouts or lost leases: they keep their "
                "slots, and a supervisor, such as --processes, starts a fresh process.",
            ),
        ] = None,
        until_empty: Annotated[bool, typer.Option("--until-empty", help="End when no job is due.")] = False,
        strategy: Annotated[str, typer.Option(metavar="NAME", help='How jobs are claimed; see "doctor".')] = "adaptive",
        removal: Annotated[str, typer.Option(metavar="NAME", help='How completed jobs leave; see "doctor".')] = "delete",
        log_format: Annotated[
            str,
            typer.Option(
                envvar="QUEUE_DB_LOG_FORMAT",
                show_envvar=True,
                metavar="FORMAT",
                help="text; or json: one object in each line, with the fields of the job that it is about.",
            ),
        ] = "text",
        verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every job.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Work on the jobs of queues until stopped, or with --until-empty until no job is due.

        WORKER is a Worker object of yours, which knows its database, its queues and its handlers. The current folder is searched
        first. What is said here has precedence over what it was made with.

        A function gets the leased job. What it returns completes the job, save Snooze, Retry, Cancel and Dead; an exception fails
        the attempt.

        A program finds QUEUE_DB_QUEUE, QUEUE_DB_JOB_ID, QUEUE_DB_JOB_KIND, QUEUE_DB_JOB_FENCE and QUEUE_DB_JOB_ATTEMPT in its
        environment; QUEUE_DB_URL is taken out unless --pass-url. Its exit status 0 completes the job, 75 asks for another attempt,
        65 sends it to the dead; any other fails the attempt. The end of its standard error becomes the job's last error. The words
        of CMD are split as by a shell, but no shell runs unless --shell.

        SIGTERM, SIGHUP and Ctrl-C stop the worker in good order: no more claims, jobs that were not begun are given back, running
        jobs finish within --grace, the rest are given back. A second signal (not SIGHUP) gives them back at once. SIGTSTP stops
        claiming and no more, SIGCONT begins again; SIGUSR1 logs what every thread does. After Ctrl-C the status is 130, after
        SIGTERM and SIGHUP 0. The processes of --processes stop in the same way when the one that started them is gone.

        Each process that works finds its number, 1 to N, in QUEUE_DB_PROCESS. With --processes one more imports the module: the
        supervisor, which has no number.

        The log goes to standard error; what programs write there stands between its lines. With --json each process prints a
        summary at its end, and programs write to standard error only.
        """
        given = {
            "concurrency": concurrency,
            "prefetch": prefetch,
            "mode": mode,
            "lease": lease,
            "poll": poll,
            "grace": grace,
            "unknown": unknown,
            "unknown_grace": unknown_grace,
            "exit_when_stuck": exit_when_stuck,
        }
        _number(processes)
        wishes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        with _logging(url, log_format, verbose=verbose):
            if exec_ is None and handler is None:
                if shell or pass_url or timeout is not None:
                    raise ArgumentError("--shell, --pass-url and --timeout belong to --exec")
                worker = _worker(target)
                worker.configure(**wishes)
                ended = _run(worker, processes, until_empty=until_empty)
            else:
                if exec_ is not None and handler is not None:
                    raise ArgumentError("what is to be done with a job? Give either --exec or --handler")
                if exec_ is None and (shell or pass_url or timeout is not None):
                    raise ArgumentError("--shell, --pass-url and --timeout belong to --exec")
                if timeout is not None:
                    arguments.seconds("timeout", timeout, zero=False)
                called = (
                    _load("--handler", str(handler))
                    if exec_ is None
                    else _program(exec_, url, shell=shell, pass_url=pass_url, timeout=timeout, quiet=as_json)
                )
                with opened(url, table, schema, strategy=strategy, removal=removal) as db:
                    worker = Worker(db, target, **wishes)
                    _handle(worker, called)
                    ended = _run(worker, processes, until_empty=until_empty)
        if isinstance(ended, Summary):
            if as_json:
                output.record({"queues": list(worker.shares.queues)} | asdict(ended))
            ended = statuses.INTERRUPTED if ended.signal == signal.SIGINT else statuses.STUCK if ended.stuck else 0
        if ended:
            raise typer.Exit(ended)


def _number(processes: int) -> None:
    """Before a user's module is imported: which of the processes this one is, or that it works on nothing."""
    if VARIABLE in os.environ:
        return  # the supervisor has given a number
    os.environ.pop(NUMBER, None)
    if processes == 1:
        os.environ[NUMBER] = "1"


def _run(worker: Worker, processes: int, *, until_empty: bool) -> Summary | int:
    """One worker here, or several below us; return its summary, or their exit status."""
    worker.handlers.require(worker.names)
    supervisor = Tied.of(os.environ)
    if supervisor is not None:
        return _run_supervised(worker, supervisor, until_empty=until_empty)
    if processes == 1:
        return worker.run(until_empty=until_empty)
    worker.db.check()
    command = [sys.executable, "-m", "queue_db", *sys.argv[1:]]

    def died(name: str) -> None:
        log.info("gave back %d jobs of %s", worker.db.rescue(name), name)

    status = Processes(command, processes, environment=os.environ, died=died).run()
    return statuses.INTERRUPTED if status == -signal.SIGINT else status


def _run_supervised(worker: Worker, supervisor: Tied, *, until_empty: bool) -> Summary:
    """One of the processes of ``--processes``."""

    def gone() -> None:
        log.warning("the supervisor is gone: no more claims, up to %g s for running jobs", worker.grace)
        worker.stop()

    # Other processes may share a name that somebody chose: nothing is given back under it.
    name = worker.db.worker if worker.db.worker == process_name() else ""
    supervisor.watch(gone)
    summary = worker.run(until_empty=until_empty, started=lambda: supervisor.started(name))
    if not summary.stuck:  # or else another process is to take its place
        supervisor.ended()
    return summary


def _worker(target: list[str]) -> Worker:
    if len(target) != 1 or ":" not in target[0]:
        raise ArgumentError(
            "what is to be done with a job? Give MODULE:NAME of a Worker, or name the queues and give either --exec or --handler"
        )
    found = _load("worker", target[0])
    if not isinstance(found, Worker):
        raise ArgumentError(
            f"{target[0]} is {found!r}, not a queue_db.worker.Worker; a function goes with --handler, after the queues"
        )
    return found


def _handle(worker: Worker, called: Any) -> None:
    if isinstance(called, Mapping):
        for kind, function in called.items():
            worker.handles(kind)(function)
    else:
        worker.handles(None)(called)


def _program(command: str, url: str | None, *, shell: bool, pass_url: bool, timeout: float | None, quiet: bool) -> Program:
    environment = {name: value for name, value in os.environ.items() if name not in (URL_VARIABLE, VARIABLE)}
    if pass_url and url:
        environment[URL_VARIABLE] = url
    return Program(
        command,
        environment=environment,
        timeout=timeout,
        shell=shell,
        stdout=sys.stderr.buffer if quiet else None,
        stderr=sys.stderr.buffer,
    )


@contextmanager
def _logging(url: str | None, written: str, *, verbose: bool) -> Iterator[None]:
    """Log to standard error, also what a user's handler logs."""
    formatters: dict[str, type[logging.Formatter]] = {"text": MaskedFormatter, "json": MaskedJSONFormatter}
    if written not in formatters:
        raise ArgumentError(f"--log-format {written!r}: must be one of {', '.join(formatters)}")
    handler = logging.StreamHandler()
    handler.setFormatter(formatters[written](url))
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


def _frames_of_users(error: BaseException) -> list[traceback.FrameSummary]:
    """Where a user's module failed, without the frames in which we and Python import it."""
    ours = str(Path(__file__).resolve())
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and frame.filename not in (ours, importlib.__file__)
    ]


def _load(what: str, name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise ArgumentError(f"{what} {name!r}: must be MODULE:NAME, for example shop.mail:send")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path has strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        frames = _frames_of_users(error)
        at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        problem = ConfigurationError(f"{what} {name!r}: importing {module_name} failed: {type(error).__name__}: {error}{at}")
        if frames or isinstance(error, SyntaxError):
            lines = traceback.format_list(frames) + traceback.format_exception_only(error)
            problem.add_note("Traceback (most recent call last):\n" + "".join(lines).rstrip())
        raise problem from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"{what} {name!r}: there is no {attribute} in {module_name}") from None
    return found
