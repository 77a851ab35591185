"""The databases of the suite."""

from __future__ import annotations

#: Those that are a file; ``tests/servers`` starts the others.
FILES = ("sqlite",)

SERVERS = ("postgresql", "mysql", "mariadb")

#: Every test that uses ``kind`` runs on each of them.
KINDS = (*FILES, *SERVERS)
