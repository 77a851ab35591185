"""``queue-db enqueue``: one job, or many from JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import Progress

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument, decoded, moment
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, DuplicateJobError, EnqueueError
from queue_db.model import OnDuplicate as Policy

# A shell removes one pair of quotes.
_PAYLOAD_HINT = """(a JSON string needs its own quotes: '"hello"')"""

_KEYS = ("kind", "payload", "delay", "run_at", "priority", "unique_key", "unique_for", "group", "max_attempts", "headers")

app = typer.Typer(rich_help_panel=panels.JOBS)


class OnDuplicate(StrEnum):
    """What happens when a live job has the unique key."""

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"
    DEBOUNCE = "debounce"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of one job, as they are given on the command line."""

    delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="Not due until SECONDS have passed.")] = None
    run_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not due before this time: 2026-01-31T08:00:00+01:00, or with Z for UTC.")
    ] = None
    priority: Annotated[int | None, typer.Option(metavar="N", show_default="0", help="Lower numbers run first.")] = None
    unique_key: Annotated[str | None, typer.Option(metavar="KEY", help="At most one live job of the queue has this key.")] = None
    unique_for: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Reserve the key for SECONDS, even if the job ends earlier.")
    ] = None
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Jobs of one group run one at a time, in the order in which they were enqueued."),
    ] = None
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="The job is dead after N failed attempts.")] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=TEXT", help="Metadata, for example for tracing; repeatable.")
    ] = None

    def parsed(self) -> dict[str, Any]:
        """Return the given options as arguments of :meth:`queue_db.Queue.enqueue`."""
        values = asdict(self)
        values["headers"] = _headers(values.pop("header"))
        values["run_at"] = None if self.run_at is None else moment("--run-at", self.run_at)
        return {name: value for name, value in values.items() if value is not None}


@command(
    app,
    "enqueue",
    """queue-db enqueue mail welcome '{"to": "ada@example.org"}' --delay 60""",
    "queue-db enqueue reports daily --unique-key 2026-01-31 --on-duplicate skip",
    "queue-db enqueue mail --jsonl jobs.jsonl",
    "generate-jobs | queue-db enqueue mail --jsonl - --json",
)
def enqueue(
    queue: QueueArgument,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="Name that selects the handler. Not with --jsonl.")] = None,
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="""Data for the handler, as JSON: '{"to": 1}', 5, or '"a text"'. Default: null."""),
    ] = None,
    *,
    jsonl: Annotated[
        str | None,
        typer.Option(
            "--jsonl",
            metavar="FILE|-",
            help="Enqueue one job per line of a file or of standard input. Each line is a JSON object with kind, payload and "
            "optionally delay, run_at, priority, unique_key, unique_for, group, max_attempts, headers. All or none are added.",
        ),
    ] = None,
    job: JobOptions,
    on_duplicate: Annotated[
        OnDuplicate,
        typer.Option(
            metavar="raise|skip|replace|debounce",
            help="When a live job has the unique key. raise: fail with status 1. skip: add nothing. replace: give it the new "
            "content; a running job loses its lease. debounce: the same, but a running job continues, without the key.",
        ),
    ] = OnDuplicate.RAISE,
    common: CommonOptions,
) -> None:
    """Add one job, or many from JSON lines, and print their ids."""
    options = job.parsed()
    if jsonl is not None:
        if kind is not None or options:
            raise ArgumentError("with --jsonl each line has its own kind and options; only --on-duplicate applies to all")
        _enqueue_lines(queue, jsonl, on_duplicate.value, common)
        return
    if kind is None:
        raise ArgumentError("no kind given: give KIND, or --jsonl FILE for many jobs")
    content = decoded(f"the payload {_PAYLOAD_HINT} is", payload)
    with common.open() as db:
        profiles.confirm(f"enqueue a job of queue {queue}")
        job_id = db.queue(queue).enqueue(kind, content, on_duplicate=on_duplicate.value, **options)
    _print_id(job_id, common)
    if job_id is None and not common.as_json:
        output.note("skipped: a live job has the unique key")


def _enqueue_lines(queue: str, source: str, on_duplicate: Policy, common: CommonOptions) -> None:
    with _open(source) as lines, common.open() as db:
        profiles.confirm(f"enqueue jobs of queue {queue}")
        with output.counting("enqueueing") as progress:
            ids = _enqueue_all(db, queue, lines, on_duplicate, progress)
    for job_id in ids:
        _print_id(job_id, common)
    added = sum(1 for job_id in ids if job_id is not None)
    output.note(f"enqueued {added:,} jobs" + (f", skipped {len(ids) - added:,}" if added < len(ids) else ""))


def _print_id(job_id: int | None, common: CommonOptions) -> None:
    if common.as_json:
        output.record({"id": job_id})
    elif job_id is not None:
        output.line(job_id)


def _enqueue_all(db: QueueDB, queue: str, lines: BinaryIO, on_duplicate: Policy, progress: Progress) -> list[int | None]:
    read = 0

    def jobs() -> Iterator[tuple[str, Any, dict[str, Any]]]:
        nonlocal read
        for text in lines:
            read += 1
            progress.update(progress.task_ids[0], completed=read)
            if text.strip():
                yield _job(text, first=read == 1)

    try:
        return db.queue(queue).enqueue_many(jobs(), on_duplicate=on_duplicate)
    except DuplicateJobError:
        raise
    except (ArgumentError, EnqueueError) as error:
        # enqueue_many checks each job before it reads the next one, so the error belongs to the last line.
        raise ArgumentError(f"line {read}: {error.text}; nothing was enqueued") from error


def _job(text: bytes, *, first: bool) -> tuple[str, Any, dict[str, Any]]:
    try:
        line = text.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"not UTF-8 ({error.reason})") from None
    job = decoded("the line is", line)
    if not isinstance(job, dict):
        raise ArgumentError('must be a JSON object such as {"kind": "mail", "payload": {"to": 1}}')
    if unknown := set(job) - set(_KEYS):
        raise ArgumentError(f"unknown keys {', '.join(sorted(unknown))}; known: {', '.join(_KEYS)}")
    if "kind" not in job:
        raise ArgumentError("the key kind is missing")
    options = {name: value for name, value in job.items() if name not in ("kind", "payload") and value is not None}
    if "run_at" in options:
        options["run_at"] = moment("run_at", options["run_at"])
    return job["kind"], job.get("payload"), options


@contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; only an error of opening is caught here
    except OSError as error:
        raise ArgumentError(f"{name}: {error.strerror}") from None
    with file:
        yield file


def _headers(texts: list[str] | None) -> dict[str, str] | None:
    if not texts:
        return None
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ArgumentError(f"header {text!r}: must be NAME=TEXT")
        found[name] = value
    return found
