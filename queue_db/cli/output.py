"""What commands print: results to standard output, notes and questions to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from queue_db.cli.statuses import NegativeError
from queue_db.errors import ConfigurationError
from queue_db.model import Job
from queue_db.steps import Step

# Most characters of a text in a table cell.
_LONGEST = 60


def record(data: Mapping[str, Any]) -> None:
    """Print one line of JSON; times are ISO 8601 with microseconds."""
    line = json.dumps(data, ensure_ascii=False, default=_plain)
    # JSON allows a lone surrogate and UTF-8 does not: it is printed as its JSON escape.
    typer.echo(line.encode("utf-8", "backslashreplace"))


def line(text: object) -> None:
    """Print one result as text."""
    typer.echo(shown(text))


def note(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(shown(text, newlines=True), err=True)


def shown(value: object, *, newlines: bool = False) -> str:
    """Return ``value`` as text with control characters escaped: a payload must not send commands to the terminal."""
    allowed = "\n" if newlines else ""
    return "".join(
        character if character.isprintable() or character in allowed else character.encode("unicode_escape").decode()
        for character in str(value)
    )


def brief(value: object) -> str:
    """Return ``value`` as text that fits into a table cell."""
    text = shown(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, columns of numbers aligned to the right, times to the second."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(columns):
        numbers = all(isinstance(row[index], int | float) for row in rows)
        grid.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(_cell(one)) for one in row))
    _console().print(grid)


def sheet(rows: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for title, value in rows.items():
        grid.add_row(Text(title), Text("–" if value is None else shown(value, newlines=True)))
    _console().print(grid)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return "–" if value is None else shown(value)


def _plain(value: object) -> str:
    return moment(value) if isinstance(value, datetime) else str(value)


def _console() -> Console:
    # Nothing is wrapped or cut in a pipe.
    return Console(width=None if sys.stdout.isatty() else 10_000, markup=False, highlight=False, emoji=False)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is deleted. ``--yes`` answers the question; without a terminal it is required.

    :raises ConfigurationError: there is no terminal, and no ``--yes``.
    :raises NegativeError: the answer was no.
    """
    if not yes:
        if not is_interactive():
            raise ConfigurationError(f"{question} Confirm with --yes: standard input is not a terminal")
        if not typer.confirm(question, err=True):
            raise NegativeError("nothing was changed", "declined")


def is_interactive() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


@contextmanager
def counting(what: str) -> Iterator[Progress]:
    """Show a counter on standard error while the ``with`` block runs, if it is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=None)
        yield progress


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner on standard error while the ``with`` block runs, if it is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def share(part: float | None) -> str | None:
    """Return a fraction as a percentage, for people."""
    return None if part is None else f"{part:.0%}"


def at_least(number: int, more: bool) -> int | str:
    """Return a count for a table; with a plus where there may be more."""
    return f"{number:,}+" if more else number


def moment(when: datetime) -> str:
    """Return a time as ISO 8601 with microseconds."""
    return when.isoformat(timespec="microseconds")


def span(seconds: float | None) -> str | None:
    """Return a duration for people."""
    if seconds is None:
        return None
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def job_record(job: Job) -> dict[str, Any]:
    """Return a job for JSON: the attributes of :class:`queue_db.Job` and its fence."""
    return {
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "state": job.state.value,
        "payload": job.payload,
        "headers": dict(job.headers),
        "priority": job.priority,
        "available_at": job.available_at,
        "created_at": job.created_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "unique_key": job.unique_key,
        "group": job.group,
        "batch": job.batch,
        "worker": job.worker,
        "version": job.version,
        "fence": job.fence,
        "last_error": job.last_error,
        "progress": job.progress,
        "progress_note": job.progress_note,
    }


def step_record(step: Step) -> dict[str, Any]:
    """Return a step of a job for JSON, without its value."""
    return {
        "what": step.what,
        "name": step.name,
        "done": step.done,
        "changed_at": step.changed_at,
        "ends_at": step.ends_at,
    }


def step_text(step: Step) -> str:
    """Return a step of a job as a line."""
    what = f"{step.what} {step.name}".rstrip()
    if step.done or step.what == "step":
        return f"{what}: {'done' if step.done else 'begun'} {_cell(step.changed_at)}"
    return f"{what}: waits" + ("" if step.ends_at is None else f" until {_cell(step.ends_at)}")


def payload_text(payload: object) -> str:
    """Return a payload as JSON text."""
    return json.dumps(payload, ensure_ascii=False, default=_plain)
