"""Log lines for programs: one JSON object each.

``handler.setFormatter(JSONFormatter())`` on a handler of yours; ``queue-db work --log-format json`` does it by itself. Records of
the worker about a job carry ``job_id``, ``queue``, ``kind``, ``attempt`` and ``worker``, and where they are known ``outcome`` and
``seconds``, and of jobs that died ``max_attempts`` and ``reason``; never a payload.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

# What every record has; the rest is what somebody gave it as ``extra``.
_USUAL = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Each record as a line: ``time`` (ISO 8601, UTC, microseconds), ``level``, ``logger``, ``message``, what it was given as
    ``extra``, and ``exception``, the traceback, if there is one. What is not JSON is written as its text.
    """

    def format(self, record: logging.LogRecord) -> str:
        # In ASCII: it is the same JSON whatever the stream makes of other characters, and none of them commands a terminal.
        return json.dumps(self.fields(record), default=str)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """What is written of a record; to be overridden by who wants more, or less."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _USUAL and name not in fields}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = record.stack_info
        return fields
