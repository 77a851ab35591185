"""``queue-db compare``: measures the locking strategies on your own database."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.lasting import Interrupts
from queue_db.cli.loading import import_module
from queue_db.cli.options import ProfileOption
from queue_db.compare.progress import show_progress
from queue_db.database.urls import URL_VARIABLE
from queue_db.errors import ArgumentError, ConfigurationError, QueueDBError

if TYPE_CHECKING:
    from queue_db.compare.contestant import Contestant
    from queue_db.compare.plan import Plan
    from queue_db.compare.results import Comparison

#: What is measured unless ``--strategies`` says more; peers are those of ``--with``.
_ROWS = "product,peers"

# Of ``--quick`` and without it, if the options are not given.
_QUICK_JOBS, _QUICK_REPEAT = 1_000, 1
_JOBS, _REPEAT = 10_000, 3

# Seconds of one turn of a strategy under a fixed arrival rate.
_QUICK_TURN, _TURN = 1.5, 5.0

#: Name of the results in the folder of the report.
RESULTS = "results.json"

app = typer.Typer(rich_help_panel=panels.SETUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """Where it is measured."""

    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            envvar=URL_VARIABLE,
            show_envvar=True,
            metavar="URL",
            help="Database to measure; repeatable. The user needs the right to create a schema (a database, on MySQL and MariaDB). "
            "With several addresses and nodes=all: a cluster, measured on one node, on two and so on.",
        ),
    ] = None
    profile: ProfileOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What is measured."""

    strategies: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="What to measure: product, article, peers, all, or names like adaptive,skip_locked,DBO-1."
        ),
    ] = _ROWS
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default=f"{_JOBS}; with --quick {_QUICK_JOBS}",
            help="Jobs per run; 5 times as many with batches of 10 or more, 10 times as many from 100.",
        ),
    ] = None
    workers: Annotated[int, typer.Option(metavar="N", help="Worker processes that race for the jobs.")] = 10
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", show_default=f"{_REPEAT}; with --quick {_QUICK_REPEAT}", help="Runs of each strategy, in turns."
        ),
    ] = None
    work_ms: Annotated[float, typer.Option(min=0.0, metavar="MS", help="Duration of a job, milliseconds.")] = 0.0
    clone: Annotated[float, typer.Option(metavar="P", help="Probability that a job enqueues another one, 0 to below 1.")] = 0.0
    batch: Annotated[str, typer.Option(metavar="N,…", help="Jobs per claim, for the strategies of queue_db.")] = "1,10,100"
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Workers also write each execution into a table, in order. Slower.")
    ] = False
    threads: Annotated[bool, typer.Option("--threads", help="Use threads of one process instead of processes.")] = False
    lease: Annotated[float, typer.Option(metavar="SECONDS", help="Lease, for the strategies of the article.")] = 4.0
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="A run that takes longer is stopped and marked as unfinished.")
    ] = 300.0
    start_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the workers may take to connect and prepare a run.")
    ] = 60.0
    stop_limit: Annotated[float, typer.Option(metavar="SECONDS", help="How long they may take to stop after a run.")] = 30.0
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            show_default="a quarter of the default strategy's jobs/s",
            help="Jobs per second that arrive while the wait of a job is measured.",
        ),
    ] = None
    arrivals: Annotated[
        bool, typer.Option("--arrivals/--no-arrivals", help="Also measure how long jobs wait at a fixed arrival rate.")
    ] = True
    quick: Annotated[
        bool, typer.Option("--quick", help="Few strategies, few jobs, one run each: an indication within minutes; nothing wins.")
    ] = False

    def plan(self) -> Plan:
        """Return the plan.

        :raises ArgumentError: a value is outside its range.
        """
        from queue_db.compare.plan import Plan

        turn = _QUICK_TURN if self.quick else _TURN
        return Plan(
            strategies=tuple(_names("strategies", self.strategies)),
            jobs=self.jobs or (_QUICK_JOBS if self.quick else _JOBS),
            workers=self.workers,
            quick=self.quick,
            repeat=self.repeat or (_QUICK_REPEAT if self.quick else _REPEAT),
            work_ms=self.work_ms,
            clone=self.clone,
            batches=tuple(_numbers("batch", self.batch)),
            verify=self.verify,
            lease=self.lease,
            limit=self.limit,
            start_limit=self.start_limit,
            stop_limit=self.stop_limit,
            kind="threads" if self.threads else "processes",
            arrivals=turn if self.arrivals else 0.0,
            rate=self.rate,
        )


@command(
    app,
    "compare",
    "queue-db compare --url postgresql://me@localhost/test --quick",
    "queue-db compare --url mysql://me@localhost/test --strategies product,article --verify --report article",
    "queue-db compare --strategies adaptive,skip_locked --batch 1,100 --work-ms 5 --workers 32",
    "queue-db compare --load comparison/results.json --report again",
)
def compare(
    *,
    databases: DatabaseOptions,
    options: PlanOptions,
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the report: an HTML page, its chart and results.json.")
    ] = Path("comparison"),
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results to this file too.")] = None,
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Measure nothing; write the report of saved results.")
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="MODULE", help="Also measure what this Python module lists in CONTESTANTS; repeatable."),
    ] = None,
) -> None:
    """Measure every locking strategy on your own server, with its costs, and recommend one.

    The server is under full load during the comparison: do not run it where others work. It creates a schema of its own and drops
    it at the end; your tables are not touched.

    product: the strategies of queue_db, through its public API. peers: other queues, by --with benchmarks.peers in a clone.
    article: those of the article behind this project, in the article's own tables.

    results.json is written after each run: what was measured before Ctrl-C, an error or a crash is kept, and --load reads it.
    """
    _require_packages()
    from queue_db.compare.results import Comparison

    _require_places(report, json)
    if load is not None:
        _report(Comparison.load(load), report, json)
        return
    kept: list[Comparison] = []

    def keep(comparison: Comparison) -> None:
        kept[:] = [comparison]
        report.mkdir(parents=True, exist_ok=True)
        comparison.save(report / RESULTS)

    try:
        comparison = _measure(databases.url, options, with_ or (), keep)
    except (KeyboardInterrupt, QueueDBError):
        if kept:
            output.note("interrupted: this is what was measured before")
            _report(kept[0], report, json)
        raise
    _report(comparison, report, json)


def _report(comparison: Comparison, report: Path, json: Path | None) -> None:
    from queue_db.compare import report as reporting

    if json is not None:
        comparison.save(json)
    written = reporting.write(comparison, report)
    for bench in comparison.benches:
        reporting.show(bench, comparison.machine)
    reporting.show_clusters(comparison.benches)
    output.note(f"report: {next((path for path in written if path.suffix == '.html'), report)}")


def _measure(
    urls: list[str] | None, options: PlanOptions, modules: list[str] | tuple[str, ...], keep: Callable[[Comparison], None]
) -> Comparison:
    from queue_db.compare.laboratory import compare as run
    from queue_db.compare.machine import machine
    from queue_db.compare.report.wording import caveats

    if not urls:
        raise ConfigurationError(f"no database given: use --url or --profile, or set {URL_VARIABLE}")
    plan = options.plan()
    more = [row for module in modules for row in _rows_of(module)]
    for caveat in caveats([], machine()):
        output.note(caveat)
    profiles.confirm("measure under full load, in a schema that is made and dropped,")
    # Also after SIGTERM, as from `timeout` or a stopped container, the schema is dropped.
    with Interrupts(), show_progress() as progress:
        return run(urls, plan, more=more, listener=progress, keep=keep)


def _require_packages() -> None:
    for package in ("jinja2", "matplotlib", "msgspec", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(f'{package} is not installed: pip install "queue-db[compare]"')


def _require_places(report: Path, json: Path | None) -> None:
    """Refuse places that cannot be written to, before anything is measured: the results would be lost at the end."""
    place = next(one for one in (report, *report.absolute().parents) if _exists(one))
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ArgumentError(f"--report {report}: {place} is not a folder that can be written to")
    if json is None:
        return
    place = json if _exists(json) else json.parent
    if not os.access(place, os.W_OK) or place.is_dir() is (place is json):
        raise ArgumentError(f"--json {json}: must be a file that can be written to, in a folder that exists")


def _exists(path: Path) -> bool:
    # Path.exists raises an error for what is in a folder that may not be read.
    return os.access(path, os.F_OK)


def _names(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--{option} {text!r}: give at least one name")
    return names


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(number) for number in _names(option, text)]
    except ValueError:
        raise ArgumentError(f"--{option} {text!r}: must be whole numbers, for example 1,10,100") from None


def _rows_of(module: str) -> list[Contestant]:
    found = import_module(f"--with {module}", module)
    try:
        return list(found.CONTESTANTS)
    except (AttributeError, TypeError):
        raise ConfigurationError(f"--with {module}: the module has no list CONTESTANTS") from None
