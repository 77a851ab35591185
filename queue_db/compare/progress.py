"""The progress of ``queue-db compare`` on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from queue_db.cli import output
from queue_db.compare.plan import ProgressListener

if TYPE_CHECKING:
    from queue_db.compare.results import ArrivalRow, Row


class ComparisonProgress(ProgressListener):
    """A progress bar on a terminal; one line per row elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None
        self._label = ""
        self._server = ""

    def bench_started(self, server: str, rows: int, runs: int) -> None:
        self._server = server
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(server, total=runs, label="")
        if self._progress.disable:
            output.note(f"{server}: {rows} rows, {runs} runs")

    def run_started(self, name: str, batch: int, number: int, jobs: int) -> None:
        self._label = f"{_title(name, batch)}, run {number + 1}, {jobs:,} jobs"
        self._progress.update(self._task, label=self._label)

    def run_progress(self, left: int, seconds: float) -> None:
        rate = left / seconds if seconds > 0 else 0.0
        self._progress.update(self._task, label=f"{self._label}: {left:,}, {rate:,.0f}/s")

    def run_finished(self) -> None:
        self._progress.advance(self._task)

    def row_finished(self, row: Row, skipped: int) -> None:
        self._progress.advance(self._task, skipped)
        from queue_db.compare.report.wording import several

        self._print(f"{_title(row.name, row.batch)}, {several(row.workers, 'worker')}: {_result(row)}")

    def _print(self, line: str) -> None:
        if self._progress.disable:
            output.note(f"{self._server}: {line}")
        else:
            self._progress.console.print(line, markup=False, highlight=False)

    def arrivals_started(self, name: str, rate: float) -> None:
        self._progress.update(self._task, label=f"{name}: {rate:,.0f} jobs/s arrive")

    def arrivals_finished(self, row: ArrivalRow) -> None:
        from queue_db.compare.report.wording import waiting

        self._print(f"{row.arrivals:,.0f} jobs/s arrive, {row.name}: {waiting(row)}")


def _result(row: Row) -> str:
    if row.refused is not None:
        return f"not supported: {row.refused}"
    if row.failed is not None:
        return f"failed: {row.failed.strip()}"
    if row.rate is None:
        return "did not finish"
    return f"{row.rate.median:,.0f} jobs/s, repeated executions {row.repeats:,}, errors {sum(row.faults.values()):,}"


def _title(name: str, batch: int) -> str:
    return name if batch == 1 else f"{name} ×{batch}"


@contextmanager
def show_progress() -> Iterator[ComparisonProgress]:
    """Show the progress while the ``with`` block runs."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[label]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ComparisonProgress(progress)
