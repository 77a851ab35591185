"""The headings under which ``queue-db --help`` lists the commands."""

from __future__ import annotations

SETUP = "Set up and check"
JOBS = "Jobs"
QUEUES = "Queues"
WORKERS = "Workers"
