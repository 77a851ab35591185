"""Several processes under one: jobs that end their processes, a supervisor that dies, and names that no two processes share."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Self

import pytest

from queue_db import State
from queue_db.core import names_process
from queue_db.limits.limiter import RateLimiter
from queue_db.processes import supervisor as supervisor_module
from queue_db.processes.supervisor import Supervisor as Supervising
from queue_db.processes.supervisor import _Slot, _WorkerProcess
from queue_db.worker.registration import Registration
from tests.patience import PATIENCE, wait_for
from tests.worker.in_processes import Meeting

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])

# The worst of jobs ends its process at once; the record shows what was begun.
HANDLERS = """
import os
from queue_db import QueueDB
from queue_db.worker import Worker

if os.path.exists("broken"):
    raise ValueError("this module is broken now")
worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), os.environ["QUEUE"], concurrency=1, lease=3600)
record = os.open("record", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@worker.handles("good")
def good(job):
    os.write(record, f"{job.id}\\n".encode())

@worker.handles("bad", max_attempts=3)
def bad(job):
    os.write(record, f"{job.id}\\n".encode())
    if job.payload == "break" and job.attempts == 1:
        open("broken", "w").close()
    os._exit(0 if job.payload == "break" else job.payload)
"""


class Supervisor:
    """``queue-db work`` with more than one process, and its log in a file."""

    def __init__(self, folder: Path, url: str, queue: str, *arguments: str, **options: object) -> None:
        self.folder = folder
        environment = {"QUEUE_DB_URL": url, "QUEUE": queue, "PATH": os.defpath, "PYTHONPATH": str(Path.cwd())}
        command = [sys.executable, "-m", "queue_db", "work", *arguments]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=log, **options)
        self.watchdog = threading.Timer(PATIENCE, self.process.kill)
        self.watchdog.start()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def logs(self, part: str, times: int = 1) -> None:
        while self.log.count(part) < times:
            self.waits()

    def waits(self) -> None:
        assert self.watchdog.is_alive(), self.log
        threading.Event().wait(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait()


@SQLITE
def test_a_job_that_ends_its_process_ends_no_other_and_dies_after_its_attempts(queue, url, tmp_path):
    ends_its_process(queue, url, tmp_path, 1)


@SQLITE
@pytest.mark.rest("above it ends with another status")
def test_a_process_that_ends_without_an_error_has_not_ended_in_good_order(queue, url, tmp_path):
    ends_its_process(queue, url, tmp_path, 0)


def ends_its_process(queue, url, tmp_path, status):
    """The lease is an hour: what the ended process had in hand comes back at once or never, whatever the exit status."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    bad = queue.enqueue("bad", status, priority=-1)
    good = queue.enqueue_many([("good", None)] * 30)
    with Supervisor(tmp_path, url, queue.name, "handlers:worker", "--processes", "2", "--until-empty") as supervisor:
        assert supervisor.process.wait() == 0, supervisor.log
    begun = Counter(int(line) for line in (tmp_path / "record").read_text().splitlines())
    # A good one that had ended and was not reported is done once more.
    assert (begun[bad], set(begun)) == (3, {bad, *good})
    assert queue.get(bad).state is State.DEAD
    assert queue.stats().available == queue.stats().running == 0
    assert "SIGTERM" not in supervisor.log, "fellows were stopped"


@SQLITE
@pytest.mark.rest("test_a_job_that_ends_its_process_takes_no_other_with_it replaces processes")
def test_a_replacement_that_cannot_start_stops_nobody_and_is_tried_again(queue, url, tmp_path, monkeypatch):
    (tmp_path / "handlers.py").write_text(HANDLERS)
    bad = queue.enqueue("bad", "break")
    with Supervisor(tmp_path, url, queue.name, "handlers:worker", "--processes", "2") as supervisor:
        supervisor.logs("this module is broken now")
        assert "all are stopped" not in supervisor.log
        (tmp_path / "broken").unlink()
        while queue.get(bad).state is not State.DEAD:
            supervisor.waits()
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait() == 0


@pytest.mark.parametrize(("first", "stopped"), [("started", False), ("nothing", True)])
def test_one_that_fails_loses_to_a_report_that_was_not_read_yet(first, stopped):
    """Whether all are stopped depends on what the others have reported, and not on who is checked first."""
    code = (
        "import os, sys, time\n"
        "from queue_db.processes.supervisor import SupervisorLink\n"
        "link = SupervisorLink.from_environment(os.environ)\n"
        f"link.report_started('one') if {first!r} == 'started' else link.send(b'nothing')\n"
        "time.sleep(1e6)\n"
    )
    supervising = Supervising([], 2, environment={}, return_jobs=lambda worker: None)
    claiming = _WorkerProcess([sys.executable, "-c", code], dict(os.environ), ())
    failing = _WorkerProcess([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ), ())
    try:
        supervising._slots = [_Slot(1, failing), _Slot(2, claiming)]
        assert claiming.pipe.poll(PATIENCE)
        wait_for(lambda: failing.poll() is not None)
        supervising._check(supervising._slots[0])
        assert (supervising._failed == 3) is stopped
        assert (supervising._slots[0].restart_at is None) is stopped
    finally:
        claiming.send_signal(signal.SIGKILL)
        wait_for(lambda: claiming.poll() is not None)


def test_a_process_that_swallows_the_stop_signal_while_it_starts_is_stopped():
    code = (
        "import os, signal, time\n"
        "from queue_db.processes.supervisor import SupervisorLink\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "SupervisorLink.from_environment(os.environ).send(b'swallows it')\n"
        "time.sleep(1e6)\n"
    )
    supervising = Supervising([], 1, environment={})
    process = _WorkerProcess([sys.executable, "-c", code], dict(os.environ))
    try:
        supervising._slots = [slot] = [_Slot(1, process)]
        assert process.pipe.poll(PATIENCE)
        supervising._forward(signal.SIGINT)

        def ended() -> bool:
            supervising._check(slot)
            return slot.exit_status is not None

        wait_for(ended)
        assert slot.exit_status == -signal.SIGTERM
    finally:
        process.kill()


def test_a_process_that_has_started_gets_one_stop_signal(monkeypatch):
    """A second one would mean that it must not wait for its jobs."""
    monkeypatch.setattr(supervisor_module, "_STOP_AGAIN", 0.0)
    code = (
        "import os, time\n"
        "from queue_db.processes.supervisor import SupervisorLink\n"
        "SupervisorLink.from_environment(os.environ).report_started('one')\n"
        "time.sleep(1e6)\n"
    )
    supervising = Supervising([], 1, environment={})
    process, sent = _WorkerProcess([sys.executable, "-c", code], dict(os.environ)), []
    try:
        supervising._slots = [slot] = [_Slot(1, process)]
        monkeypatch.setattr(process, "send_signal", sent.append)
        supervising._forward(signal.SIGINT)
        assert process.pipe.poll(PATIENCE)
        for _ in range(3):
            supervising._check(slot)
        # The first one may have come too early, the one after the start has not.
        assert sent == [signal.SIGINT, signal.SIGTERM]
    finally:
        process.kill()


MEETS = ("--handler", "tests.worker.in_processes:meets", "--processes", "2", "--concurrency", "1", "--grace", str(PATIENCE))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
@SQLITE
def test_processes_stop_in_good_order_when_their_supervisor_is_gone_or_its_terminal_is(queue, url, tmp_path, how):
    with Meeting() as meeting, Supervisor(tmp_path, url, queue.name, queue.name, *MEETS) as supervisor:
        queue.enqueue_many([("n", {"port": meeting.port})] * 2)
        visitors = [meeting.visitor(), meeting.visitor()]
        supervisor.process.send_signal(how)
        if how is signal.SIGHUP:  # a terminal that closes sends it twice
            supervisor.logs("SIGHUP: no more claims", times=2)
            supervisor.process.send_signal(how)
            supervisor.logs("SIGHUP: no more claims", times=4)
        else:
            supervisor.logs("the supervisor is gone", times=2)
        queue.enqueue("n", {"port": meeting.port})
        for visitor in visitors:
            visitor.tell("return")
        for visitor in visitors:
            assert visitor.ends(), "it works on without a supervisor"
        assert supervisor.process.wait() == (0 if how is signal.SIGHUP else -signal.SIGKILL)
    stats = queue.stats()
    assert (stats.available, stats.running, stats.dead) == (1, 0, 0)
    assert "unfinished" not in supervisor.log


@SQLITE
@pytest.mark.rest("above it a hangup ends the processes")
def test_with_nohup_a_hangup_is_ignored(queue, url, tmp_path):
    def ignore_hangups() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Meeting() as meeting:
        arguments = (queue.name, *MEETS)
        with Supervisor(tmp_path, url, queue.name, *arguments, preexec_fn=ignore_hangups) as supervisor:
            queue.enqueue("n", {"port": meeting.port})
            visitor = meeting.visitor()
            for pid in (supervisor.process.pid, visitor.pid):
                os.kill(pid, signal.SIGHUP)
            visitor.tell("return")
            queue.enqueue("n", {"port": meeting.port})
            meeting.visitor().tell("return")
            supervisor.process.send_signal(signal.SIGTERM)
            assert supervisor.process.wait() == 0
    assert "SIGHUP" not in supervisor.log


# Two containers with one host name: what runs there sees the same process id.
CONTAINED = """
import os, sys
os.getpid = lambda: 7
from queue_db import QueueDB
db = QueueDB(sys.argv[1])
(job,) = db.queue(sys.argv[2]).claim(lease=3600)
print(db.worker, job.id, flush=True)
"""


@SQLITE
def test_two_processes_of_one_host_name_and_one_process_id_have_two_names(queue, db, url):
    ids = queue.enqueue_many([("n", None)] * 2)
    names, jobs = [], []
    for _ in range(2):
        command = [sys.executable, "-c", CONTAINED, url, queue.name]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        name, job_id = ran.stdout.split()
        names.append(name)
        jobs.append(int(job_id))
    assert sorted(jobs) == ids
    readable = names[0].rpartition("-")[0]
    assert readable.endswith(":7")
    assert readable == names[1].rpartition("-")[0]
    assert all(names_process(name, 7) and not names_process(name, 77) for name in names)
    assert db.rescue(names[0]) == 1
    assert [queue.get(job_id).state for job_id in jobs] == [State.AVAILABLE, State.RUNNING]
    assert db.rescue(readable) == 0


FORKED = """
import os, sys
from queue_db import QueueDB
db = QueueDB(sys.argv[1])
queue = db.queue(sys.argv[2])
print(os.getpid(), db.worker, flush=True)
if not os.fork():
    (job,) = queue.claim()
    print(os.getpid(), db.worker, queue.get(job.id).worker, flush=True)
    os._exit(0)
os.wait()
"""


@SQLITE
def test_a_fork_is_another_worker_also_with_the_database_object_of_its_parent(url, queue):
    queue.enqueue("n")
    command = [sys.executable, "-c", FORKED, url, queue.name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    parent, child = (line.split() for line in ran.stdout.splitlines())
    for pid, *names in (parent, child):
        assert all(names_process(name, int(pid)) for name in names), "a process has the name of another one"
    assert child[1] == child[2], "jobs are claimed under another name"


@SQLITE
def test_workers_of_one_chosen_name_are_told_apart(open_db, name, monkeypatch):
    """Their rows and their shares of a limit: one would take the other's for its own."""
    rows = []
    for _ in range(2):
        db = open_db(worker="mail")
        monkeypatch.setattr("queue_db.worker.registration._NUMBERS", iter([1, 2]))
        monkeypatch.setattr("queue_db.core._name", f"host:7-{len(rows):08x}")  # another process
        rows.append((Registration(db, {name: 1}, lambda: ("working", 0, {}))._name, RateLimiter(db, [name], 60.0, int, int)._name))
    assert len({pair[0] for pair in rows}) == len({pair[1] for pair in rows}) == 2
    assert all(row.startswith("mail#") for pair in rows for row in pair)


TOGETHER = """
import os
from queue_db import QueueDB
from queue_db.worker import Worker

settings = {{"concurrency": {concurrency}, "prefetch": 10, "lease": 3600}}
worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), os.environ["QUEUE"], **settings)

@worker.handles("good")
def good(job):
    pass

@worker.handles("bad")
def bad(job):
    os._exit(1)
"""


@pytest.mark.parametrize("concurrency", [pytest.param(1, marks=pytest.mark.rest("five at once lose what one does, and more")), 5])
@SQLITE
def test_a_job_that_ends_its_process_takes_no_other_with_it(queue, url, tmp_path, concurrency):
    (tmp_path / "handlers.py").write_text(TOGETHER.format(concurrency=concurrency))
    bad, *_ = queue.enqueue_many([(kind, None, {"max_attempts": 3}) for kind in ["bad"] + ["good"] * 10])
    with Supervisor(tmp_path, url, queue.name, "handlers:worker", "--processes", "2", "--until-empty") as supervisor:
        assert supervisor.process.wait() == 0, supervisor.log
    assert [job.id for job in queue.db.dead.list(queue.name)] == [bad], supervisor.log
    assert queue.get(bad).attempts == 3
    assert queue.stats().available == queue.stats().running == 0
