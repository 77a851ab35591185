"""A service on a real port, for each test."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from fastapi import FastAPI

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http.server import server
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from tests.service.grouping import Group


@contextmanager
def serving(db: QueueDB, settings: Settings) -> Iterator[str]:
    """Run a server on a free loopback port; its URL."""
    with serving_app(service(db, settings)) as url:
        yield url


@contextmanager
def serving_app(app: FastAPI, **options: Any) -> Iterator[str]:
    """Run a server for this application on a free loopback port; its URL."""
    running = server(app, port=0, **options)
    thread = threading.Thread(target=running.run, name="service")
    thread.start()
    try:
        for _ in range(int(PATIENCE / 0.01)):
            if running.started:
                break
            assert thread.is_alive()
            threading.Event().wait(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def submitted(client: httpx2.Client, page: str, path: str, **fields: str) -> httpx2.Response:
    """A form of a page, sent."""
    (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', client.get(page).text))
    return client.post(path, data={"csrf": csrf, **fields})


@pytest.fixture
def serve(db: QueueDB) -> Iterator[Callable[[Settings], httpx2.Client]]:
    """Start services with these settings, and get a client of each."""
    with ExitStack() as stack:

        def start(settings: Settings) -> httpx2.Client:
            url = stack.enter_context(serving(db, settings))
            # Without TLS nothing is verified, and reading the certificates takes half of a short test.
            return stack.enter_context(httpx2.Client(base_url=url, timeout=PATIENCE, verify=False))

        yield start


@pytest.fixture
def client(serve: Callable[[Settings], httpx2.Client]) -> httpx2.Client:
    """A client of an open service."""
    return serve(Settings(closed=False))


@pytest.fixture
def waiting_client(db: QueueDB) -> Iterator[httpx2.Client]:
    """A client of an open service, with the application as ``app``."""
    app = service(db, Settings(closed=False))
    limits = httpx2.Limits(max_connections=None)
    with serving_app(app) as url, httpx2.Client(base_url=url, timeout=PATIENCE, limits=limits, verify=False) as made:
        made.app = app  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def group(db: QueueDB, name: str, waiting_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """Clients that share a statement while a first one is held."""
    from tests.service.grouping import Group  # which needs a module of tests

    with ThreadPoolExecutor(20) as threads:
        yield Group(db.queue(name), waiting_client, threads, monkeypatch)
