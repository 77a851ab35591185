"""The log of operations: what each client was about to do, and what came of it. One file per client, one JSON object per line.

An operation is an ``invoke`` and at most one of ``ok``, ``fail`` (it had no effect) and ``unknown`` (it may have had one, also
later). Times are those of the system's monotonic clock, which all processes of a machine share. A line is one write: it stays when
its process is killed.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".log"


class LogWriter:
    """Appends to the log of one client; it goes on counting where the client's last process was killed."""

    def __init__(self, folder: Path, client: str) -> None:
        path = folder / f"{client}{SUFFIX}"
        self._client = client
        self._lock = threading.Lock()
        before = path.read_bytes() if path.exists() else b""
        #: Number of the last operation.
        self.number = max((json.loads(line)["n"] for line in _whole(before)), default=0)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if before and not before.endswith(b"\n"):
            os.write(self._file, b"\n")

    def invoke(self, operation: str, **arguments: Any) -> int:
        """Write that an operation begins; return its number."""
        with self._lock:
            self.number += 1
            number = self.number
        self._write({"n": number, "event": "invoke", "operation": operation, "arguments": arguments})
        return number

    def end(self, number: int, event: str, result: Any = None, **more: Any) -> None:
        """Write what came of it."""
        self._write({"n": number, "event": event, "result": result, **more})

    def close(self) -> None:
        os.close(self._file)

    def _write(self, entry: dict[str, Any]) -> None:
        line = {"time": round(time.monotonic(), 6), "process": self._client, **entry}
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass
class Operation:
    """One operation as the log shows it."""

    process: str
    number: int
    name: str
    arguments: dict[str, Any]
    invoked: float
    status: str = "unknown"
    returned: float = math.inf
    result: Any = None
    error: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def failed(self) -> bool:
        return self.status == "fail"


def read_log(folder: Path) -> list[Operation]:
    """The operations of all clients, in the order in which they began."""
    found: list[Operation] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        begun: dict[int, Operation] = {}
        for text in _whole(path.read_bytes()):
            entry, line = json.loads(text), text.decode()
            if entry["event"] == "invoke":
                operation = Operation(
                    entry["process"], entry["n"], entry["operation"], entry["arguments"], entry["time"], lines=[line]
                )
                begun[entry["n"]] = operation
                found.append(operation)
                continue
            operation = begun[entry["n"]]
            operation.status, operation.returned = entry["event"], entry["time"]
            operation.result, operation.error = entry["result"], entry.get("error", "")
            operation.lines.append(line)
    return sorted(found, key=lambda one: one.invoked)


def _whole(text: bytes) -> Iterable[bytes]:
    """The lines that were written to their end."""
    return [line for line in text.split(b"\n") if line.startswith(b"{") and line.endswith(b"}")]
