"""Kombu's integration tests of a transport: ``t/integration/common.py`` of its sdist, on ``queue_db.contrib.kombu``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tests.others.suite import Run, Suite

# Each transport of Kombu has such a module, with the mixins as bases.
_MODULE = """
import kombu
import pytest

import queue_db.contrib.kombu  # noqa: F401

from . import common

URL = {url!r}
OPTIONS = {{"migrate": True}}


@pytest.fixture()
def connection():
    return kombu.Connection(URL, transport_options=dict(OPTIONS))


@pytest.fixture()
def invalid_connection():
    return kombu.Connection({invalid!r}, connect_timeout=1)


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestPriority(common.BasePriority):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass
"""

_NOBODY = {
    "sqlite": "sqlite:////nowhere/at/all.db",
    "postgresql": "postgresql://nobody:nothing@127.0.0.1:1/nowhere",
    "mysql": "mysql://nobody:nothing@127.0.0.1:1/nowhere",
    "mariadb": "mariadb://nobody:nothing@127.0.0.1:1/nowhere",
}


def _prepare(run: Run) -> None:
    shutil.rmtree(run.folder / "kombu")  # the environment has the installed package
    text = _MODULE.format(url=f"queuedb+{run.url}", invalid=f"queuedb+{_NOBODY[run.kind]}")
    (run.folder / "t" / "integration" / "test_queuedb.py").write_text(text, encoding="utf-8")


def _command(run: Run) -> Sequence[str]:
    return run.pytest("-q", "-o", "addopts=", "t/integration/test_queuedb.py")


SUITE = Suite(
    name="kombu",
    version="5.7.0",
    source="kombu==5.7.0",
    requirements=("kombu==5.7.0", "pytest==9.2.0"),
    extras=("postgresql", "mysql", "migrate", "kombu"),
    kinds=("postgresql", "sqlite", "mysql", "mariadb"),
    prepare=_prepare,
    command=_command,
    timeout=600,
)
