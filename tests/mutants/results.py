"""The file of results: one JSON object per line; of two lines about a mutant the later one holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(results: Path) -> dict[str, Record]:
    """Name of the mutant → its record."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def append(results: Path, record: Record) -> None:
    """Add a record."""
    with results.open("a") as file:
        file.write(json.dumps(record) + "\n")
