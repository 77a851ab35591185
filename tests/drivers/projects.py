"""Django's connections to a database of the suite, without a project."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import make_url

_ENGINES = {"mariadb": "mysql", "sqlite": "sqlite3"}


@contextmanager
def connected(url: str, *, proxy: bool = False) -> Iterator[Any]:
    """A connection of Django, or the proxy of it as ``django.db.connection``."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.db import connections
    from django.db.utils import ConnectionHandler
    from django.utils.connection import ConnectionProxy

    if not settings.configured:
        settings.configure()
    if not apps.ready:
        django.setup()
    parsed, alias = make_url(url), f"queue_db_{uuid.uuid4().hex[:8]}"
    name = parsed.get_backend_name()
    address = {
        "ENGINE": f"django.db.backends.{_ENGINES.get(name, name)}",
        "NAME": parsed.database,
        "USER": parsed.username or "",
        "PASSWORD": parsed.password or "",
        "HOST": parsed.host or "",
        "PORT": parsed.port or "",
    }
    connections.settings[alias] = ConnectionHandler({alias: address, "default": {}}).settings[alias]
    connection = connections[alias]
    try:
        yield ConnectionProxy(connections, alias) if proxy else connection
    finally:
        connection.close()
        del connections[alias]
        del connections.settings[alias]


def atomic_of(connection: Any) -> Callable[..., Any]:
    """``transaction.atomic`` of this connection."""
    from django.db import transaction

    return partial(transaction.atomic, using=connection.alias)
