"""Start private servers, print a URL of a fresh database on each, and keep them until Ctrl-C or SIGTERM.

python -m tests.servers start postgresql [mysql] [mariadb]
"""

import signal
import sys
import threading
from types import FrameType

from tests.servers import NotPrivate, ServerFailed, ServerMissing, provide
from tests.servers.lookup import PROGRAMS


def main(arguments: list[str]) -> int:
    """Do what the command line says."""
    kinds = arguments[1:]
    if arguments[:1] != ["start"] or not kinds or not set(kinds) <= PROGRAMS.keys():
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    try:
        for kind in kinds:
            server = provide(kind)
            print(f"{server.create_database()}   # {server.describe()}", flush=True)
        print("Ctrl-C ends them.", file=sys.stderr, flush=True)
        threading.Event().wait()
    except (ServerMissing, ServerFailed, NotPrivate) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _leave(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)  # not the signal's own end: what was started is removed on the way out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
