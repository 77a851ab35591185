"""A worker that starts while the database is away waits for it, as it does later, but not without end."""

import subprocess
import sys

import pytest

from queue_db import QueueDB
from queue_db.cli.lasting import started
from queue_db.errors import ConfigurationError, PermanentStorageError, TransientStorageError
from tests.patience import PATIENCE
from tests.servers.proxy import Proxy

AWAY = TransientStorageError("the server is away", server_away=True)

MODULE = """
from queue_db import QueueDB
from queue_db.worker import Worker

db = QueueDB({url!r})
worker = Worker(db, [{name!r}])


@worker.handles("k")
def handle(job):
    pass
"""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("way", ["queues", "module"])
def test_a_worker_runs_its_jobs_when_the_database_is_there(kind, way, url, name, tmp_path):
    with QueueDB(url) as db, Proxy.before(url) as proxy:
        db.queue(name).enqueue("k")
        proxy.refuse()
        (tmp_path / "shop.py").write_text(MODULE.format(url=proxy.url(url), name=name))
        what = ["shop:worker"] if way == "module" else [name, "--exec", "true", "--url", proxy.url(url)]
        command = [sys.executable, "-m", "queue_db", "work", *what, "--until-empty"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as worker:
            assert worker.stderr is not None
            try:
                first = worker.stderr.readline()
                assert "failed, trying again" in first, first + worker.stderr.read()
                proxy.forward()
                assert worker.wait(PATIENCE) == 0, worker.stderr.read()
            finally:
                worker.kill()
        assert db.queue(name).stats().available == 0


def test_the_wait_has_an_end():
    calls = []

    def start():
        calls.append(None)
        raise AWAY

    with pytest.raises(TransientStorageError):
        started("opening", start, seconds=0.0)
    assert len(calls) == 1


@pytest.mark.parametrize("error", [PermanentStorageError("no such user"), ConfigurationError("no such module")])
def test_what_no_wait_cures_is_raised_at_once(error):
    calls = []

    def start():
        calls.append(None)
        raise error

    with pytest.raises(type(error)):
        started("opening", start)
    assert len(calls) == 1
