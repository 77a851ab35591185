"""Other queues as rows: they import without their packages, refuse in words, and where they can run, each job runs once."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import CONTESTANTS, Peer, common, node_queues, npm, private_redis
from benchmarks.peers.common import ThreadContexts, libpq_address
from benchmarks.peers.node_queues import Graphile, NodeError, NodePeer
from benchmarks.peers.private_redis import RedisPeer
from benchmarks.peers.redis_queues import RedisLists
from benchmarks.peers.worker import OwnWorker
from queue_db.compare.contestant import Contestant, Target, WorkerContext
from queue_db.compare.laboratory import compare
from queue_db.compare.plan import Plan
from queue_db.compare.results import Run
from queue_db.errors import ConfigurationError
from tests.conftest import server_of
from tests.patience import PATIENCE

pytestmark = pytest.mark.rest("a peer is no part of the package; test_article_rows.py runs rows by the same seam")

ADDRESSES = {
    "postgresql": "postgresql+psycopg2://user:secret@127.0.0.1:1/somewhere",
    "mysql": "mysql+pymysql://user:secret@127.0.0.1:1/somewhere",
    "sqlite": "sqlite:////nowhere/queue.db",
}

each_peer = pytest.mark.parametrize("peer", CONTESTANTS, ids=lambda peer: f"{peer.name}-{peer.batch}")


class Counted:
    """A tally, as the pool's: one number for each worker, and no lock."""

    def __init__(self, goal: int) -> None:
        self.goal, self.begun, self.gone = goal, 0, 0

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        begun, gone = self.begun + begun, self.gone + left
        time.sleep(0)  # without a lock, numbers are lost here
        self.begun, self.gone = begun, gone

    @property
    def over(self) -> bool:
        return self.gone >= self.goal


def place_of(peer: Peer) -> Target:
    return Target(next(ADDRESSES[kind] for kind in peer.databases if kind in ADDRESSES), "queue_db_compare_0")


def is_a_sentence(message: str | None, peer: Peer) -> bool:
    return (
        message is not None
        and message.startswith(peer.name)
        and " " in message
        and "\n" not in message
        and "Traceback" not in message
    )


def test_the_module_imports_without_any_of_their_packages():
    packages = sorted({package for peer in CONTESTANTS for package in peer.packages} - {"pymysql"})
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from benchmarks.peers import CONTESTANTS
print(len(CONTESTANTS))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [str(len(CONTESTANTS))], done.stderr


@each_peer
def test_each_peer_describes_itself(peer):
    words = (peer.name, peer.claim, peer.removal, peer.index)
    assert all(words)
    assert peer.family == "peer"
    assert peer.batch >= 1
    assert peer.window(10) is None
    assert peer.configuration()
    assert all(isinstance(text, str) for item in peer.configuration().items() for text in item)


@each_peer
def test_each_has_all_that_the_seam_asks_for(peer):
    assert [name for name in vars(Contestant) if not name.startswith("_") and not hasattr(peer, name)] == []


def test_no_two_have_the_same_name_and_batch():
    assert len({(peer.name, peer.batch) for peer in CONTESTANTS}) == len(CONTESTANTS)


@each_peer
def test_each_travels_to_the_workers(peer):
    assert pickle.loads(pickle.dumps(peer)) == peer  # noqa: S301 - what was pickled one step before


@each_peer
def test_another_database_is_refused_in_words(peer):
    message = peer.refused(Target("oracle://somewhere/else", None))
    assert is_a_sentence(message, peer)
    assert "needs" in message


@each_peer
def test_a_missing_package_is_refused_in_words(peer, monkeypatch, tmp_path):
    if isinstance(peer, OwnWorker):
        return  # what it needs is queue_db
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    monkeypatch.setattr(npm, "HOME", tmp_path)
    message = peer.refused(place_of(peer))
    assert is_a_sentence(message, peer)
    assert common.INSTALL in message or npm.INSTALL in message or "Node" in message


def test_a_package_that_has_replaced_itself_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "replaced_itself", types.SimpleNamespace(__spec__=None))
    assert common.installed("replaced_itself")
    assert not common.installed("there_is_no_such_package")


@pytest.mark.parametrize(
    "peer", [peer for peer in CONTESTANTS if isinstance(peer, NodePeer)], ids=lambda peer: f"{peer.name}-{peer.batch}"
)
def test_without_node_its_peers_are_refused(peer, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert peer.refused(place_of(peer)) == f"{peer.name} needs Node 20 or newer"


@pytest.mark.parametrize("peer", [peer for peer in CONTESTANTS if isinstance(peer, RedisPeer)], ids=lambda peer: peer.name)
def test_without_redis_its_peers_are_refused(peer, monkeypatch):
    monkeypatch.setattr(common, "find_spec", lambda name: name)
    monkeypatch.setattr(private_redis, "program", lambda: None)
    assert "redis-server" in peer.refused(place_of(peer))


def test_a_database_in_memory_has_no_room_for_a_file_beside_it(monkeypatch):
    monkeypatch.setattr(common, "find_spec", lambda name: name)
    for peer in CONTESTANTS:
        if peer.databases == ("sqlite",):
            assert peer.refused(Target("sqlite://", None)) == f"{peer.name} needs a database in a file"


def run_it(peer: Peer, folder: Path, **plan: Any) -> Run | None:
    """Let it work in two threads; None if it cannot here, for a reason that is a sentence."""
    refused = peer.refused(place_of(peer))
    if refused is not None:
        assert is_a_sentence(refused, peer)
        return None
    kind = "sqlite" if "sqlite" in peer.databases else peer.databases[0]
    url = f"sqlite:///{folder}/queue.db" if kind == "sqlite" else server_of(kind).create_database()
    settings = {"jobs": 12, "workers": 2, "repeat": 1, "kind": "threads", "limit": 60.0, **plan}
    (bench,) = compare([url], Plan(strategies=("peers",), **settings), more=[peer]).benches
    (row,) = bench.rows
    run = row.runs[-1]
    assert {path.name for path in folder.iterdir()} <= {"queue.db", "queue.db-wal", "queue.db-shm"}
    return run


@pytest.mark.filterwarnings("default")
@each_peer
def test_it_works_off_every_job_once_or_reports_why_it_cannot(peer, tmp_path):
    run = run_it(peer, tmp_path, verify=True, repeat=2)
    if run is not None:
        assert run.finished
        assert run.unique == run.executions == run.jobs == 12 * (10 if peer.batch >= 100 else 5 if peer.batch >= 10 else 1)


@pytest.mark.rest("the pool stops each row at its limit: tests/compare/test_worker_pool.py; a peer is no part of the package")
@pytest.mark.filterwarnings("default")
@each_peer
def test_it_stops_at_the_time_limit_or_reports_why_it_cannot(peer, tmp_path):
    run = run_it(peer, tmp_path, jobs=100, work_ms=20.0, limit=0.3)
    if run is not None:
        assert run.executions == run.unique
        assert run.left <= run.executions


def test_a_redis_that_ends_at_once_is_reported(monkeypatch):
    monkeypatch.setattr(private_redis, "program", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    peer = RedisLists()
    with pytest.raises(ConfigurationError, match="redis-server has ended with 3"):
        peer.set_up(place_of(peer), 1)
    peer.tear_down(place_of(peer))  # nothing is left to end


def ends_by_itself(witness):
    """A program that does nothing for a minute and then leaves a file, unless it was ended before."""
    return f"import pathlib, time; print('ready', flush=True); time.sleep(60); pathlib.Path({str(witness)!r}).touch()"


def test_a_redis_that_does_not_answer_is_reported_and_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(private_redis, "_START_LIMIT", 0.2)
    monkeypatch.setattr(private_redis, "program", lambda: [sys.executable, "-c", ends_by_itself(tmp_path / "witness")])
    with pytest.raises(ConfigurationError, match="does not answer"):
        RedisLists().set_up(place_of(RedisLists()), 1)
    assert not (tmp_path / "witness").exists()


def test_a_worker_without_its_redis_fails():
    with pytest.raises(ConfigurationError, match="was not started"):
        _ = RedisLists().reached


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('no such package')", "did not get ready: no such package"),
        ("import sys; print('ready', flush=True); input(); input(); sys.exit('broken')", "has ended too early: broken"),
    ],
)
def test_a_node_process_that_fails_is_reported(program, message, monkeypatch, tmp_path):
    script = tmp_path / "graphile.cjs"
    script.write_text(program)
    monkeypatch.setattr(npm, "SCRIPTS", tmp_path)
    monkeypatch.setattr(node_queues.shutil, "which", lambda name: sys.executable)
    with pytest.raises(NodeError, match=re.escape(message)):
        Graphile().work(place_of(Graphile()), WorkerContext(0, Counted(1), lambda: 0.0))


def test_a_node_process_that_does_not_stop_is_ended(monkeypatch, tmp_path):
    (tmp_path / "graphile.cjs").write_text(ends_by_itself(tmp_path / "witness"))
    monkeypatch.setattr(npm, "SCRIPTS", tmp_path)
    monkeypatch.setattr(node_queues, "PATIENCE", 0.1)
    monkeypatch.setattr(node_queues.shutil, "which", lambda name: sys.executable)
    Graphile().work(place_of(Graphile()), WorkerContext(0, Counted(0), lambda: 0.0))
    assert not (tmp_path / "witness").exists()


def test_the_messages_of_a_node_process_are_recorded(monkeypatch, tmp_path):
    script = "print('c 0.5 0 1', 'l 2', sep=chr(10), flush=True)"
    program = f"print('ready', flush=True); input(); input(); {script}; input(); print('cpu 7.5')"
    (tmp_path / "graphile.cjs").write_text(program)
    monkeypatch.setattr(npm, "SCRIPTS", tmp_path)
    monkeypatch.setattr(node_queues.shutil, "which", lambda name: sys.executable)
    context = WorkerContext(0, Counted(2), lambda: 0.0, cpu_clock=lambda: 1.0)
    Graphile().work(place_of(Graphile()), context)
    notes = context.finish()
    assert notes.jobs == [0, 1]
    assert notes.left == 2
    (latency,) = notes.latencies
    assert 0.4 < latency < PATIENCE  # half a second, and the time until the message was read
    assert notes.cpu == pytest.approx(7.5)


def test_threads_of_one_worker_lose_no_numbers():
    tally = Counted(400)
    whole = WorkerContext(0, tally, lambda: 0.0)
    crowd = ThreadContexts(whole)

    def work(first: int) -> None:
        for number in range(first, first + 100):
            crowd.context.record_claim(time.monotonic(), [number])
            crowd.context.record_removal(1)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    crowd.close()
    assert (tally.begun, tally.gone) == (400, 400)
    assert crowd.over
    assert whole.notes.left == 400
    assert sorted(whole.notes.jobs) == list(range(400))
    assert whole.notes.times == sorted(whole.notes.times)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "-csearch_path%3Dtarget"),
        ("?options=-cstatement_timeout%3D5000", "-cstatement_timeout%3D5000%20-csearch_path%3Dtarget"),
    ],
)
def test_the_address_for_libpq_has_the_schema_and_time_limits(query: str, expected: str):
    address: Any = libpq_address(Target(f"postgresql+psycopg2://a:b@localhost/c{query}", "target"))
    assert address.startswith("postgresql://a:b@localhost/c?")
    assert f"options={expected}" in address
    assert "connect_timeout=10" in address
