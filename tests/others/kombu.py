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


class test_BasicFunctionality(common.BasicFunctionality):
    pass


class test_ExchangeTypes(common.BaseExchangeTypes):
    pass


class test_TimeToLive(common.BaseTimeToLive):
    pass


class test_Priority(common.BasePriority):
    pass


class test_Message(common.BaseMessage):
    pass


class test_EventLoop(common.BaseEventLoop):
    pass


class test_Failover(common.BaseFailover):
    @pytest.fixture()
    def failover_connection(self):
        options = {{**OPTIONS, "max_retries": 2, "interval_start": 0}}
        return kombu.Connection([{dead!r}, URL], transport_options=options)
"""

_NOBODY = {
    "sqlite": "sqlite:////nowhere/at/all.db",
    "postgresql": "postgresql://nobody:nothing@127.0.0.1:1/nowhere",
    "mysql": "mysql://nobody:nothing@127.0.0.1:1/nowhere",
    "mariadb": "mariadb://nobody:nothing@127.0.0.1:1/nowhere",
}


def _prepare(run: Run) -> None:
    shutil.rmtree(run.folder / "kombu")  # the environment has the installed package
    text = _MODULE.format(url=f"queuedb+{run.url}", invalid=f"queuedb+{_NOBODY[run.kind]}", dead=f"queuedb+{_NOBODY['postgresql']}")
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
    differences={
        "t.integration.test_queuedb.test_Failover::test_failover_switches_to_alternate_url": (
            "Kombu's Connection knows no port of a URL that the transport reads itself"
        )
    },
    command=_command,
    timeout=600,
)
