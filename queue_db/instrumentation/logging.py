"""Log records as lines of JSON.

``handler.setFormatter(JSONFormatter())`` for a handler of your own; ``queue-db work --log-format json`` has it. The worker's
records about a job have ``job_id``, ``queue``, ``kind``, ``attempt`` and ``worker``, if known ``outcome`` and ``seconds``, and for
dead jobs ``max_attempts`` and ``reason``; never a payload. What a handler logs itself has the first five too.
Every record has ``pid``, and those of ``queue-db work`` have ``process``, the number of the worker process.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any

from queue_db.processes.children import PROCESS_NUMBER
from queue_db.worker.logs import about, current

# The attributes of every record; the others were passed as ``extra``.
_USUAL = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}

# What the formatter writes itself, whatever was passed as ``extra``.
_OWN = frozenset(("time", "level", "logger", "pid"))


class JSONFormatter(logging.Formatter):
    """Formats each record as a line: ``time`` (ISO 8601, UTC, microseconds), ``level``, ``logger``, ``message``, the fields of
    ``extra``, and ``exception``, the traceback, if there is one. Values that JSON lacks are written as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        # In ASCII: independent of the encoding of the stream, and without control characters for a terminal.
        return json.dumps(self.fields(record), default=str)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of a record; override it to add or remove fields."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if PROCESS_NUMBER in os.environ:
            fields["process"] = os.environ[PROCESS_NUMBER]
        if (job := current.get()) is not None:
            fields |= about(job)
        fields |= {name: value for name, value in vars(record).items() if name not in _USUAL and name not in _OWN}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = record.stack_info
        return fields
