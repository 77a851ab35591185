"""The entries of the command line in the log of actions: with the name of the operating system's user."""

from __future__ import annotations

import getpass
import unicodedata
from collections.abc import Mapping
from typing import Any

from queue_db.cli import output
from queue_db.db import QueueDB
from queue_db.errors import StorageError

_LONGEST = 100


def user() -> str:
    """The name of the user who runs the command."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id without a name
        return "unknown"
    clean = "".join(character for character in name if unicodedata.category(character) not in {"Cc", "Cs"})
    return clean.strip()[:_LONGEST].strip() or "unknown"


def record(db: QueueDB, action: str, target: str, number: int | None = None, detail: Mapping[str, Any] | None = None) -> None:
    """Write down what a command has changed; where the log takes no entry, the change stands, and this is printed."""
    try:
        db.actions.add(user(), action, target, number, detail)
    except StorageError as error:
        output.note(f"not in the log of actions: {error}")
