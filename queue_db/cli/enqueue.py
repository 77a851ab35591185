"""``queue-db enqueue``: one job, or a stream of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import Progress

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, QueueArgument, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, DuplicateJobError, EnqueueError

# A shell takes one pair of quotes away.
_PAYLOAD_HINT = """(a text in it needs quotes of its own: '"hello"')"""

_KEYS = ("kind", "payload", "delay", "run_at", "priority", "unique_key", "unique_for", "group", "max_attempts", "headers")


class OnDuplicate(StrEnum):
    """What to do about a live job with the unique key."""

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"
    DEBOUNCE = "debounce"


def add_to(app: typer.Typer) -> None:
    """Add the command."""

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
        kind: Annotated[str | None, typer.Argument(metavar="KIND", help="What is to be done. Not with --jsonl.")] = None,
        payload: Annotated[
            str | None,
            typer.Argument(metavar="PAYLOAD", help="""With what, as JSON: '{"to": 1}', 5, or '"a text"'. Default: null."""),
        ] = None,
        *,
        jsonl: Annotated[
            str | None,
            typer.Option(
                "--jsonl",
                metavar="FILE|-",
                help="Enqueue the lines of a file or of standard input, each a JSON object with kind, payload and, if wanted, "
                "delay, run_at, priority, unique_key, unique_for, group, max_attempts, headers. One transaction: all or none.",
            ),
        ] = None,
        delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="Not due before so many seconds are over.")] = None,
        run_at: Annotated[
            str | None, typer.Option(metavar="TIME", help="Not due before this time: 2026-01-31T08:00:00+01:00, or Z for UTC.")
        ] = None,
        priority: Annotated[int | None, typer.Option(metavar="N", help="Lower number first; 0 if not given.")] = None,
        unique_key: Annotated[
            str | None, typer.Option(metavar="KEY", help="At most one live job of the queue has this key.")
        ] = None,
        unique_for: Annotated[
            float | None, typer.Option(metavar="SECONDS", help="The key stays taken for so long, also when the job is done before.")
        ] = None,
        group: Annotated[
            str | None, typer.Option(metavar="NAME", help="Jobs of one group run one at a time, in the order of their enqueueing.")
        ] = None,
        on_duplicate: Annotated[
            OnDuplicate,
            typer.Option(
                metavar="raise|skip|replace|debounce",
                help="When a live job has the unique key: fail (status 1), keep that job, or give it the new content; debounce: "
                "unless a worker has it, which keeps it then without the key.",
            ),
        ] = OnDuplicate.RAISE,
        max_attempts: Annotated[
            int | None, typer.Option(metavar="N", help="After so many failed attempts the job is dead.")
        ] = None,
        header: Annotated[
            list[str] | None, typer.Option("--header", metavar="NAME=TEXT", help="For tracing and the like; repeatable.")
        ] = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Add one job, or many from JSON lines, and print their ids."""
        options: dict[str, Any] = {
            "delay": delay,
            "run_at": None if run_at is None else _time(run_at),
            "priority": priority,
            "unique_key": unique_key,
            "unique_for": unique_for,
            "group": group,
            "max_attempts": max_attempts,
            "headers": _headers(header),
        }
        options = {name: value for name, value in options.items() if value is not None}
        if jsonl is None:
            if kind is None:
                raise ArgumentError("which kind of job? Give KIND, or --jsonl FILE for many jobs")
            content = None if payload is None else _json(f"the payload {_PAYLOAD_HINT}", payload)
            with opened(url, table, schema) as db:
                job_id = db.queue(queue).enqueue(kind, content, on_duplicate=on_duplicate.value, **options)
            _tell([job_id], as_json=as_json)
            return
        if kind is not None or options:
            raise ArgumentError("with --jsonl each line has its own kind and options; only --on-duplicate is for all")
        with _source(jsonl) as lines, opened(url, table, schema) as db, output.counting("enqueueing") as progress:
            ids = _stream(db, queue, lines, on_duplicate.value, progress)
        _tell(ids, as_json=as_json)
        added = sum(1 for job_id in ids if job_id is not None)
        output.note(f"enqueued {added:,} jobs" + (f", skipped {len(ids) - added:,}" if added < len(ids) else ""))


def _tell(ids: list[int | None], *, as_json: bool) -> None:
    for job_id in ids:
        if as_json:
            output.record({"id": job_id})
        elif job_id is not None:
            output.line(job_id)
        elif len(ids) == 1:
            output.note("skipped: a live job has the unique key")


def _stream(db: QueueDB, queue: str, lines: BinaryIO, on_duplicate: str, progress: Progress) -> list[int | None]:
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
        # The library checks each job before it takes the next one: the last line that was read is the one.
        problem = str(error).partition(": ")[2] if str(error).startswith("job ") else str(error)
        raise ArgumentError(f"line {read}: {problem}; nothing was enqueued") from error


def _job(text: bytes, *, first: bool) -> tuple[str, Any, dict[str, Any]]:
    try:
        line = text.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"not UTF-8 ({error.reason})") from None
    job = _json("the line", line)
    if not isinstance(job, dict):
        raise ArgumentError('must be a JSON object such as {"kind": "mail", "payload": {"to": 1}}')
    if unknown := set(job) - set(_KEYS):
        raise ArgumentError(f"unknown keys {', '.join(sorted(unknown))}; known: {', '.join(_KEYS)}")
    if "kind" not in job:
        raise ArgumentError("the key kind is missing")
    options = {name: value for name, value in job.items() if name not in ("kind", "payload") and value is not None}
    if "run_at" in options:
        options["run_at"] = _time(options["run_at"])
    return job["kind"], job.get("payload"), options


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; an error while it is read is not one of opening it
    except OSError as error:
        raise ArgumentError(f"{name}: {error.strerror}") from None
    with file:
        yield file


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise ArgumentError(f"{what} is nested too deeply") from None


def _time(text: object) -> datetime:
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        raise ArgumentError(f"run_at={text!r}: must be a time like 2026-01-31T08:00:00+01:00") from None
    if when.tzinfo is None:
        raise ArgumentError(f"run_at={text!r} has no time zone: append Z for UTC, or an offset like +01:00")
    return when


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
