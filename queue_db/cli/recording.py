"""The entries of the command line in the action log: each command that changes something writes one."""

from __future__ import annotations

import getpass
import socket
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from queue_db.cli import output
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.monitoring.tables import WHO_LENGTH
from queue_db.operations.actor import ANYBODY, Actor


def user() -> Actor:
    """Who runs the command, and may do everything: ``cli:``, the name of the operating system's user, ``@`` and the machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id without a name
        name = "unknown"
    text = f"cli:{name}@{socket.gethostname()}"
    clean = "".join(character for character in text if unicodedata.category(character) not in {"Cc", "Cs"})
    return replace(ANYBODY, name=clean[:WHO_LENGTH].strip())


def record(db: QueueDB, action: str, target: str, number: int | None = None, detail: Mapping[str, Any] | None = None) -> None:
    """Record what a command has changed; where the log takes no entry, the change stands, and this is printed.

    :param action: a verb: ``pause``, ``redrive``.
    :param target: what was changed: ``queue mail``, ``job 17``.
    :param number: how many jobs or rows.
    :param detail: more; what is None there is left out.
    """
    given = {name: value for name, value in (detail or {}).items() if value is not None}
    try:
        db.actions.add(user().name, action, target, number, given or None)
    except QueueDBError as error:
        output.note(f"not in the action log: {error}")
