"""What Airflow's list of providers shows of this one. It is read at each start, so it imports nothing."""

from __future__ import annotations

from typing import Any

_HERE = "queue_db.contrib.airflow"
_NAME = "queue_db"


def get_provider_info() -> dict[str, Any]:
    """The description of the provider, in the form that Airflow documents for ``apache_airflow_provider``."""
    return {
        "package-name": "queue-db",
        "name": _NAME,
        "description": "A job queue with feeds in PostgreSQL, MySQL, MariaDB or SQLite.",
        "integrations": [{"integration-name": _NAME, "tags": ["software"]}],
        "connection-types": [
            {"connection-type": "queue_db", "hook-class-name": f"{_HERE}.hook.QueueHook", "hook-name": _NAME},
        ],
        "hooks": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.hook"]}],
        "operators": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.operators"]}],
        "triggers": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.triggers"]}],
        "queues": [f"{_HERE}.messages.FeedProvider"],
    }
