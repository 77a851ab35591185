"""The hook: an Airflow connection as a database with queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk.bases.hook import BaseHook

from queue_db import QueueDB
from queue_db.contrib.airflow.connections import DEFAULT, Address, address_of
from queue_db.errors import QueueDBError


class QueueHook(BaseHook):
    """Enqueues jobs, and opens the database of an Airflow connection for all else.

    The connection has the type ``queue_db``, with the scheme of the URL in its extra: ``{"dialect": "postgresql"}``. The database
    is in the field *schema*, or, of SQLite, the path in *host*. Further extras: ``query`` and ``async_query`` (options of the
    drivers), ``table`` and ``schema`` (of the tables). A connection of the type ``postgres``, ``mysql`` or ``sqlite`` will do, too.

    :param conn_id: the id of the Airflow connection.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT
    conn_type = "queue_db"
    hook_name = "queue_db"

    def __init__(self, conn_id: str = DEFAULT, **options: Any) -> None:
        super().__init__(**options)
        self.conn_id = conn_id

    def __repr__(self) -> str:
        return f"<QueueHook {self.conn_id!r}>"

    @property
    def address(self) -> Address:
        """The database. Its text does not show the password.

        :raises ConfigurationError: the connection has another type, or an extra that is not known.
        """
        return address_of(self.get_connection(self.conn_id))

    def get_conn(self) -> QueueDB:
        """Open the database. The caller closes it: ``with hook.get_conn() as db:``.

        :raises ConfigurationError: the connection is wrong, or the driver is not installed.
        :raises StorageError: the server does not answer or refuses the login.
        """
        return self.address.open()

    def enqueue(self, queue: str, kind: str, payload: Any = None, **options: Any) -> int | None:
        """Enqueue a job; return its id. ``options`` and errors are those of :meth:`queue_db.Queue.enqueue`."""
        with self.get_conn() as db:
            added: int | None = db.queue(queue).enqueue(kind, payload, **options)
            return added

    def enqueue_many(
        self, queue: str, jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]], **options: Any
    ) -> list[int | None]:
        """Enqueue all jobs or none; return their ids. ``options`` and errors are those of :meth:`queue_db.Queue.enqueue_many`."""
        with self.get_conn() as db:
            return list(db.queue(queue).enqueue_many(jobs, **options))

    def test_connection(self) -> tuple[bool, str]:
        """Whether the database answers and has the tables, with a sentence for people."""
        try:
            with self.get_conn() as db:
                db.check()
        except QueueDBError as error:
            return False, str(error)
        return True, "The database answers, and has the tables."
