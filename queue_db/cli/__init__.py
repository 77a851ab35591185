"""The command line, ``queue-db``: thin functions over the library. Only this package reads the environment."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run ``queue-db`` and exit with a status of :mod:`queue_db.cli.statuses`."""
    try:
        from queue_db.cli.app import app
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed not in _NEEDED:
            raise
        print(
            f'queue-db: the command line needs {needed}, which is not installed: pip install "queue-db[cli]"',
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("queue-db: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks is printed as an escape.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="queue-db")
