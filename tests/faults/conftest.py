"""Fixtures of a network that breaks between a queue and its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from queue_db import Queue, QueueDB
from tests.servers.proxy import Proxy

#: Longer waits than a busy machine takes. TLS off: the proxy must be able to read COMMIT.
WAITS = {
    "postgresql": {"connect_timeout": "60", "sslmode": "disable"},
    "mysql": {"connect_timeout": "60", "read_timeout": "60", "ssl_disabled": "true"},
    "mariadb": {"connect_timeout": "60", "read_timeout": "60", "ssl_disabled": "true"},
}


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy.before(url) as between:
        yield between


@pytest.fixture
def far(kind: str, url: str, proxy: Proxy, db: QueueDB, name: str) -> Iterator[Queue]:
    """A queue at the other end of a network that breaks."""
    # `db` is there first: MySQL lets a password in without TLS only once it has seen it with TLS.
    with QueueDB(make_url(proxy.url(url)).update_query_dict(WAITS[kind])) as remote:
        remote.check()
        yield remote.queue(name)
