"""What commands print: results on standard output, remarks on standard error; tables for people, lines of JSON for programs."""

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

from queue_db.model import Job

# Longest text in a table's cell, characters.
_CELL = 60


def record(data: Mapping[str, Any]) -> None:
    """One line of JSON."""
    line = json.dumps(data, ensure_ascii=False, default=str)
    # A lone surrogate, which JSON allows and UTF-8 does not, comes out as its JSON escape.
    typer.echo(line.encode("utf-8", "backslashreplace"))


def line(text: object) -> None:
    """One result for people and simple scripts."""
    typer.echo(shown(text))


def note(text: str) -> None:
    """A remark that is no result."""
    typer.echo(shown(text, newlines=True), err=True)


def shown(value: object, *, newlines: bool = False) -> str:
    """As text without characters that could command a terminal: jobs hold whatever somebody has enqueued."""
    allowed = "\n" if newlines else ""
    return "".join(
        character if character.isprintable() or character in allowed else character.encode("unicode_escape").decode()
        for character in str(value)
    )


def brief(value: object) -> str:
    """As text, cut to a table's cell."""
    text = shown(value)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table with numbers to the right."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(columns):
        numbers = all(isinstance(row[place], int | float) for row in rows)
        grid.add_column(title, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text("–" if cell is None else shown(cell)) for cell in row))
    _console().print(grid)


def sheet(rows: Mapping[str, object]) -> None:
    """Names and their values, one below the other."""
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for title, value in rows.items():
        grid.add_row(Text(title), Text("–" if value is None else shown(value, newlines=True)))
    _console().print(grid)


def _console() -> Console:
    # In a pipe nothing is wrapped or cut: what reads it has no width.
    return Console(width=None if sys.stdout.isatty() else 10_000, markup=False, highlight=False, emoji=False)


@contextmanager
def counting(what: str) -> Iterator[Progress]:
    """A counter on a terminal's standard error while long work runs; nothing elsewhere."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=None)
        yield progress


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A moving sign on a terminal's standard error while long work runs; nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def share(part: float | None) -> str | None:
    """A part of the whole for people."""
    return None if part is None else f"{part:.0%}"


def moment(when: datetime) -> str:
    """ISO 8601, UTC, microseconds."""
    return when.isoformat(timespec="microseconds")


def span(seconds: float | None) -> str | None:
    """A duration for people."""
    if seconds is None:
        return None
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def job_record(job: Job) -> dict[str, Any]:
    """A job as JSON: the attributes of :class:`queue_db.Job` and its fence, times in ISO 8601."""
    return {
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "state": job.state.value,
        "payload": job.payload,
        "headers": dict(job.headers),
        "priority": job.priority,
        "available_at": moment(job.available_at),
        "created_at": moment(job.created_at),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "unique_key": job.unique_key,
        "group": job.group,
        "worker": job.worker,
        "version": job.version,
        "fence": job.fence,
        "last_error": job.last_error,
        "progress": job.progress,
        "progress_note": job.progress_note,
    }


def payload_text(payload: object) -> str:
    """A payload for people."""
    return json.dumps(payload, ensure_ascii=False, default=str)
