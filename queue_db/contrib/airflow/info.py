"""What Airflow's list of providers and its form of a connection show. It is read at each start, so it imports nothing."""

from __future__ import annotations

from typing import Any

_HERE = "queue_db.contrib.airflow"
_NAME = "queue_db"

#: The fields of the form that are stored in a connection's extra. Airflow 3.2 and later ask for them here, not in the hook.
_EXTRA = {
    "dialect": ("Kind of database", "string", {"enum": ["postgresql", "mysql", "mariadb", "sqlite"]}),
    "table": ("Table of jobs", "string", {}),
    "schema": ("Schema of the tables", "string", {}),
    "query": ("Options of the driver", "object", {}),
    "async_query": ("Options of the driver for asyncio", "object", {}),
}


def get_provider_info() -> dict[str, Any]:
    """The description of the provider, in the form that Airflow documents for ``apache_airflow_provider``."""
    return {
        "package-name": "queue-db",
        "name": _NAME,
        "description": "A job queue with feeds in PostgreSQL, MySQL, MariaDB or SQLite.",
        "integrations": [{"integration-name": _NAME, "tags": ["software"]}],
        "connection-types": [
            {
                "connection-type": "queue_db",
                "hook-class-name": f"{_HERE}.hook.QueueHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "relabeling": {"schema": "Database"},
                    "placeholders": {"host": "a server, or the path of an SQLite file"},
                },
                "conn-fields": {
                    name: {"label": label, "schema": {"type": [kind, "null"], **more}}
                    for name, (label, kind, more) in _EXTRA.items()
                },
            },
        ],
        "hooks": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.hook"]}],
        "operators": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.operators"]}],
        "triggers": [{"integration-name": _NAME, "python-modules": [f"{_HERE}.triggers"]}],
        "queues": [f"{_HERE}.messages.FeedProvider"],
    }
