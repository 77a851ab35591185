"""``queue-db compare``: every locking strategy on your own database, side by side."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from queue_db.cli import output
from queue_db.cli.commands import command
from queue_db.database.database import URL_VARIABLE
from queue_db.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from queue_db.compare.contestant import Contestant
    from queue_db.compare.results import Row

#: What ``--quick`` puts in the place of the options that are not given.
_QUICK_ROWS = "product,DBP-0-1-1,DBP-0-0-5,DBO-0,DBO-1"
_QUICK_JOBS, _QUICK_REPEAT = 1_000, 1
_JOBS, _REPEAT = 10_000, 10


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app,
        "compare",
        "queue-db compare --url postgresql://me@localhost/test --quick",
        "queue-db compare --url mysql://me@localhost/test --strategies article --repeat 3 --verify --report article",
        "queue-db compare --strategies adaptive,skip_locked --batch 1,100 --work-ms 5 --workers 32",
        "queue-db compare --load comparison/results.json --report again",
    )
    def compare(
        *,
        url: Annotated[
            list[str] | None,
            typer.Option(
                "--url",
                envvar=URL_VARIABLE,
                show_envvar=True,
                metavar="URL",
                help="Database to compare on; more than once for several. A user who may create a schema (a database, on MySQL and "
                "MariaDB) is needed.",
            ),
        ] = None,
        strategies: Annotated[
            str | None,
            typer.Option(
                metavar="NAMES",
                show_default=f"all; with --quick {_QUICK_ROWS}",
                help="Which rows: all, product, article, peers, or names like adaptive,skip_locked,DBO-1,DBP-0-1-1.",
            ),
        ] = None,
        jobs: Annotated[
            int | None,
            typer.Option(
                min=1,
                metavar="N",
                show_default=f"{_JOBS}; with --quick {_QUICK_JOBS}",
                help="Jobs in one run; runs with batches from 10 get 5 times as many, from 100 10 times.",
            ),
        ] = None,
        workers: Annotated[int, typer.Option(min=1, metavar="N", help="Worker processes that race.")] = 10,
        repeat: Annotated[
            int | None,
            typer.Option(min=1, metavar="N", show_default=f"{_REPEAT}; with --quick {_QUICK_REPEAT}", help="Runs of each row."),
        ] = None,
        work_ms: Annotated[float, typer.Option(min=0.0, metavar="MS", help="How long a job takes, milliseconds.")] = 0.0,
        clone: Annotated[float, typer.Option(metavar="P", help="Probability that a job enqueues another one, 0 to below 1.")] = 0.0,
        batch: Annotated[str, typer.Option(metavar="N,…", help="Jobs per claim, for the product's rows.")] = "1,10,100",
        verify: Annotated[
            bool, typer.Option("--verify/--no-verify", help="Workers write each execution into a protocol table. Slower.")
        ] = False,
        threads: Annotated[bool, typer.Option("--threads", help="Threads of one process instead of processes.")] = False,
        lease: Annotated[float, typer.Option(metavar="SECONDS", help="After how long the article's rows run a job again.")] = 4.0,
        limit: Annotated[float, typer.Option(metavar="SECONDS", help="A run that takes longer is stopped and marked.")] = 300.0,
        report: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the report: a page, plots and results.json.")] = Path(
            "comparison"
        ),
        json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results here too.")] = None,
        load: Annotated[
            Path | None, typer.Option("--load", metavar="FILE", help="Measure nothing; draw the report of these saved results.")
        ] = None,
        with_: Annotated[
            list[str] | None,
            typer.Option("--with", metavar="MODULE", help="Add the rows that this Python module lists as CONTESTANTS."),
        ] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Few rows, few jobs, one run: a first look, in minutes.")] = False,
    ) -> None:
        """Run every locking strategy on your own server, see what each costs, and be told which to use and why.

        It works in a schema of its own, which it makes and drops; your tables are not touched. The server is under full load
        while it runs, so do not run it on one that others need.

        The rows of the product go through the public API. The article's rows are the strategies of the article that this project
        comes from, in its own table layout. docs/compare.md says what each row and each measure means.
        """
        _needs_packages()
        from queue_db.compare import report as reporting
        from queue_db.compare.laboratory import Plan
        from queue_db.compare.laboratory import compare as run
        from queue_db.compare.machine import machine
        from queue_db.compare.report.wording import caveats
        from queue_db.compare.results import Comparison

        if load is not None:
            comparison = Comparison.load(load)
        else:
            if not url:
                raise ConfigurationError(f"which database? Give --url, or set {URL_VARIABLE}")
            plan = Plan(
                strategies=tuple(_words("strategies", strategies or (_QUICK_ROWS if quick else "all"))),
                jobs=jobs or (_QUICK_JOBS if quick else _JOBS),
                workers=workers,
                repeat=repeat or (_QUICK_REPEAT if quick else _REPEAT),
                work_ms=work_ms,
                clone=clone,
                batches=tuple(_numbers("batch", batch)),
                verify=verify,
                lease=lease,
                limit=limit,
                kind="threads" if threads else "processes",
            )
            more = [row for name in with_ or () for row in _rows_of(name)]
            for caveat in caveats([], machine()):
                output.note(caveat)
            with _display() as display:
                comparison = run(url, plan, more=more, audience=display)
        if json is not None:
            comparison.save(json)
        written = reporting.write(comparison, report)
        for bench in comparison.benches:
            reporting.show(bench, comparison.machine)
        output.note(f"the report: {next((path for path in written if path.suffix == '.html'), report)}")


def _needs_packages() -> None:
    for package in ("jinja2", "matplotlib", "msgspec", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(f'{package} is not installed: pip install "queue-db[compare]"')


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ArgumentError(f"--{option} {text!r}: give at least one name")
    return words


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(word) for word in _words(option, text)]
    except ValueError:
        raise ArgumentError(f"--{option} {text!r}: must be whole numbers, for example 1,10,100") from None


def _rows_of(module: str) -> list[Contestant]:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return list(importlib.import_module(module).CONTESTANTS)
    except AttributeError:
        raise ConfigurationError(f"--with {module}: it has no list CONTESTANTS") from None
    except Exception as error:
        raise ConfigurationError(f"--with {module}: importing it failed: {type(error).__name__}: {error}") from error


class _Display:
    """Progress on a terminal; a line for each row elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None
        self._words = ""
        self._server = ""

    def bench(self, server: str, rows: int, runs: int) -> None:
        """A database begins."""
        self._server = server
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(server, total=runs, what="")
        if self._progress.disable:
            output.note(f"{server}: {rows} rows, {runs} runs")

    def run(self, name: str, batch: int, number: int, jobs: int) -> None:
        """A run begins."""
        self._words = f"{_titled(name, batch)}, {jobs:,} jobs"
        self._progress.update(self._task, what=self._words)

    def progress(self, left: int, seconds: float) -> None:
        """So many jobs have left so far."""
        rate = left / seconds if seconds > 0 else 0.0
        self._progress.update(self._task, what=f"{self._words}: {left:,}, {rate:,.0f}/s")

    def ran(self) -> None:
        """A run has ended."""
        self._progress.advance(self._task)

    def done(self, row: Row, skipped: int) -> None:
        """A row has all its runs, or was refused."""
        self._progress.advance(self._task, skipped)
        if row.refused is not None:
            said = f"not here: {row.refused}"
        elif row.failed is not None:
            said = f"failed: {row.failed.strip()}"
        elif row.rate is None:
            said = "did not finish"
        else:
            said = f"{row.rate.median:,.0f} jobs/s, repeated executions {row.repeats:,}, errors {sum(row.faults.values()):,}"
        if self._progress.disable:
            output.note(f"{self._server}: {_titled(row.name, row.batch)}: {said}")
        else:
            self._progress.console.print(f"{_titled(row.name, row.batch)}: {said}", markup=False, highlight=False)


def _titled(name: str, batch: int) -> str:
    return name if batch == 1 else f"{name} ×{batch}"


@contextmanager
def _display() -> Iterator[_Display]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _Display(progress)
