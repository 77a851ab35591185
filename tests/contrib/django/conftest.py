"""A project of Django whose default database is that of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import make_url

PROJECT = "tests.contrib.django.project"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def set_up() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = f"{PROJECT}.settings"
    import django

    django.setup()


def _move(url: str) -> None:
    """Make this the default database, for new connections."""
    from asgiref.local import Local
    from django.conf import settings
    from django.db import connections

    connections.close_all()
    entry = settings.DATABASES["default"] | __import__(f"{PROJECT}.settings", fromlist=["database"]).database(url)
    connections.databases["default"].clear()
    connections.databases["default"].update(entry)
    connections.configure_settings(connections.databases)
    connections._connections = Local(thread_critical=True)  # also of other threads


@pytest.fixture
def move(set_up: None) -> Iterator[Callable[[str], None]]:
    """Make a database that of Django, until the end of the test."""
    from django.db import connections

    from queue_db.contrib.django import databases

    yield _move
    connections.close_all()
    for db in databases._opened.values():
        db.close()
    databases._opened.clear()


@pytest.fixture
def site(url: str, move: Callable[[str], None]) -> None:
    """Django with the shared database: use queue names of your own."""
    move(url)
    from django.db import connection

    from tests.contrib.django.project.shop.models import Order

    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)


@pytest.fixture
def tasks(site: None) -> Any:
    """The module with the tasks of the project."""
    from tests.contrib.django.project.shop import tasks

    return tasks


@pytest.fixture
def work(tasks: Any, name: str) -> Callable[..., None]:
    """Run the tasks of this test's queue until none is due."""
    from queue_db.contrib.django import worker

    def until_empty(**options: Any) -> Any:
        made = worker("default", [name], **options)
        try:
            return made.run(until_empty=True)
        finally:
            made.db.close()

    return until_empty


@pytest.fixture
def signals(site: None) -> Iterator[list[tuple[str, Any, str]]]:
    """The signals that were sent: name, id of the result, its status then."""
    from queue_db.contrib.django import framework

    sent: list[tuple[str, Any, str]] = []
    receivers = {}
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receive(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
            sent.append((name, task_result.id, str(task_result.status)))

        receivers[name] = receive
        getattr(framework, name).connect(receive)
    yield sent
    for name, receive in receivers.items():
        getattr(framework, name).disconnect(receive)


@pytest.fixture
def environment(url: str) -> dict[str, str]:
    """Of a process of the project on the database of the test."""
    return process_environment(url)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start a command of the project; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"{PROJECT}.manage", *arguments]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def process_environment(url: str) -> dict[str, str]:
    root = os.fspath(pytest.importorskip("pathlib").Path(__file__).parents[3])
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings",
        "QUEUE_DB_TEST_DJANGO_URL": make_url(url).render_as_string(hide_password=False),
        "PYTHONPATH": root,
    }
