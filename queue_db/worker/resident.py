"""How much memory a process has."""

from __future__ import annotations

import os
from pathlib import Path

from queue_db import arguments
from queue_db.errors import ArgumentError

_MEGABYTE = 1024 * 1024


def resident(pid: int | None = None) -> float | None:
    """The resident memory of a process, megabytes; None: the process has ended, or the system does not tell.

    :param pid: default: this process.
    """
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE


def check(max_memory: object) -> None:
    """Check the option of a worker.

    :raises ArgumentError: it is no number above 0, or this system does not tell how much memory a process has.
    """
    if arguments.number("max_memory", max_memory) <= 0:
        raise arguments.wrong("max_memory", max_memory, ": must be more than 0 megabytes")
    if resident() is None:
        raise ArgumentError("max_memory needs a system with /proc, such as Linux; max_jobs works everywhere")
