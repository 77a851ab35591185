"""Rehearse an upgrade from the previous version to this checkout and back, with workers running.

python -m tests.rehearsal [--kinds sqlite postgresql mysql mariadb] [--from COMMIT] [--each N]
    COMMIT is the version that you run; without it the last tag, else the commit before the newest migration. Private servers are
    started; QUEUE_DB_TEST_POSTGRES_URL and the like name your own (tests/servers/lookup.py). Status 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.databases import FILES, KINDS
from tests.rehearsal.rehearsal import Failed, Rehearsal
from tests.rehearsal.versions import NoHistory, previous, this
from tests.servers import ServerFailed, ServerMissing, provide


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.rehearsal", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["sqlite", "postgresql", "mariadb"])
    parser.add_argument("--from", dest="commit", metavar="COMMIT")
    parser.add_argument("--each", type=int, default=60, metavar="N")
    options = parser.parse_args(arguments)
    broken = False
    with tempfile.TemporaryDirectory() as name:
        try:
            old = previous(Path(name) / "old", options.commit)
            for kind in options.kinds:
                folder = Path(name) / kind
                folder.mkdir()
                url = f"{kind}:///{folder}/queue.db" if kind in FILES else provide(kind).create_database()
                print(kind, flush=True)
                with Rehearsal(url, folder, old, this(), options.each, say=lambda line: print(line, flush=True)) as rehearsal:
                    found = rehearsal.run()
                print("".join(f"  {one}\n" for one in found), end="", flush=True)
                broken = broken or bool(found)
        except (Failed, NoHistory, ServerFailed, ServerMissing) as error:
            print(error, file=sys.stderr)
            return 1
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
