"""The log of ``queue-db work`` and ``queue-db serve``: text or JSON on standard error, without passwords."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from queue_db.cli import output
from queue_db.database.masking import mask, secrets_in
from queue_db.errors import ArgumentError, QueueDBError
from queue_db.instrumentation.logging import JSONFormatter
from queue_db.processes.children import PROCESS_NUMBER
from queue_db.worker.logs import current

log = logging.getLogger("queue_db.cli")


class MaskedFormatter(logging.Formatter):
    """Log lines as text, with the secrets of a URL masked, in tracebacks too."""

    def __init__(self, url: str | Sequence[str] | None) -> None:
        number = os.environ.get(PROCESS_NUMBER)
        process = f"{number}/%(process)d" if number else "%(process)d"
        super().__init__(f"%(asctime)s %(levelname)s {process} %(threadName)s: %(message)s")
        self._secrets = secrets_in(url)

    def format(self, record: logging.LogRecord) -> str:
        return output.shown(mask(super().format(record), self._secrets), newlines=True)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in the standard library
        job = current.get()
        if job is not None and not hasattr(record, "job_id"):  # a handler's own line
            record.message = f"job {job.id}: {record.message}"
        return super().formatMessage(record)


class MaskedJSONFormatter(JSONFormatter):
    """Log lines as JSON objects, with the secrets of a URL masked in every field."""

    def __init__(self, url: str | Sequence[str] | None) -> None:
        super().__init__()
        self._secrets = secrets_in(url)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {name: self._masked(value) for name, value in super().fields(record).items()}

    def _masked(self, value: object) -> object:
        match value:
            case None | int() | float():
                return value
            case list() | tuple():
                return [self._masked(one) for one in value]
            case dict():
                return {mask(str(key), self._secrets): self._masked(one) for key, one in value.items()}
        return mask(str(value), self._secrets)


@contextmanager
def log_to_stderr(url: str | Sequence[str] | None, log_format: str, *, verbose: bool) -> Iterator[None]:
    """Write all log records, those of handlers included, to standard error during the ``with`` block.

    :raises ArgumentError: an unknown format.
    """
    formatters: dict[str, type[MaskedFormatter | MaskedJSONFormatter]] = {"text": MaskedFormatter, "json": MaskedJSONFormatter}
    if log_format not in formatters:
        raise ArgumentError(f"--log-format {log_format!r}: must be one of {', '.join(formatters)}")
    handler = logging.StreamHandler()
    handler.setFormatter(formatters[log_format](url))
    # Alembic logs its plugins when a module migrates.
    levels = {"": logging.INFO, "queue_db": logging.DEBUG if verbose else logging.INFO}
    levels["alembic.runtime.plugins"] = logging.WARNING
    before = {name: logging.getLogger(name).level for name in levels}
    logging.getLogger().addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    except Exception as error:
        if log_format == "json" and not isinstance(error, typer.Exit):  # in text, the line with which the command ends has it
            bug = None if isinstance(error, QueueDBError) else error
            log.error("ended by an error: %s", error, exc_info=bug, extra={"error": type(error).__name__})  # noqa: TRY400
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
