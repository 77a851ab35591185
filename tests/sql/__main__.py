"""The command line of the golden files. It needs no server.

``python -m tests.sql write``: what the code sends goes into ``tests/sql/<database>``, and into the docs that show it; ``check``
compares.
"""

from __future__ import annotations

import sys

from tests.sql import golden


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status."""
    if arguments == ["write"]:
        for path in golden.write() + golden.write_docs():
            print(f"{'wrote' if path.exists() else 'removed'} {path.relative_to(golden.FOLDER.parents[1])}")
        return 0
    if arguments == ["check"]:
        found = list(golden.differences())
        for line in found:
            print(line)
        if found:
            print("Look at the change with: make golden && git diff tests/sql docs")
        return 1 if found else 0
    print("usage: python -m tests.sql write | check")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
