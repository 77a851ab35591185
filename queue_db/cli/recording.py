"""Who runs the command line, for the action log."""

from __future__ import annotations

import getpass
import socket
import unicodedata
from dataclasses import replace

from queue_db.cli import profiles
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
    return replace(ANYBODY, name=clean[:WHO_LENGTH].strip(), confirm=profiles.confirm)
