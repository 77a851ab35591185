"""The operation of Django's migrations that brings the queue's tables to a version: the library's own migrations run."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from queue_db import QueueDB, SchemaOutOfDateError
from queue_db.contrib.django.databases import queue_db
from queue_db.contrib.django.settings import Settings
from queue_db.contrib.django.tables import backends


class MigrateQueue(Operation):
    """Bring the queue's tables from one revision of the library to another, on a connection of its own that commits.

    Only in databases of the queue's backends. Tables that are further already stay as they are.

    :param start: the revision before; "base": there are no tables.
    :param to: the revision after.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, start: str, to: str) -> None:
        self.start, self.to = start, to

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The tables are not Django's models."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Upgrade."""
        for settings in _places(schema_editor.connection.alias):
            if schema_editor.collect_sql:
                schema_editor.collected_sql += _sql(queue_db(settings), self.to, self.start)
            else:
                _upgrade(queue_db(settings), self.to)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Downgrade."""
        for settings in _places(schema_editor.connection.alias):
            if schema_editor.collect_sql:
                schema_editor.collected_sql += _sql(queue_db(settings), self.start, self.to)
            else:
                queue_db(settings).migrate(revision=self.start)

    def describe(self) -> str:
        """What ``migrate --plan`` shows."""
        return f"The tables of the queue, from revision {self.start} to {self.to}"


def _places(alias: str) -> list[Settings]:
    """The settings of the backends whose tables are in this database, one for each place."""
    found = (backend.settings for backend in backends())
    return list({(each.table, each.schema): each for each in found if each.database == alias}.values())


def _sql(db: QueueDB, to: str, start: str) -> list[str]:
    return db.migration_sql(to, start=start).splitlines()


def _upgrade(db: QueueDB, to: str) -> None:
    try:
        db.check()
    except SchemaOutOfDateError as error:
        if error.found is None or error.found < to:
            db.migrate(revision=to)
