"""Processes that are killed, restarted and stopped in the midst of their work."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from queue_db import State, TransientStorageError
from tests.patience import HOURS, PATIENCE
from tests.worker.storms import Storm, kills, rolling

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
#: What a process does at a signal does not depend on the database.
SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
TIMES = pytest.mark.parametrize("times", [2, pytest.param(6, marks=pytest.mark.rest("two times show the same, with less luck"))])


@TIMES
@SERVERS
@pytest.mark.rest("test_worker_supervisor.py has processes that die at a job, and tests/crash kills workers")
def test_killed_workers_lose_nothing_and_what_they_had_comes_back_at_once(queue, db, url, tmp_path, times):
    """The lease is an hour: the test would not end if jobs came back with it."""
    storm = Storm(tmp_path, url, queue.name, concurrency=4, prefetch=4, lease=3600.0, seconds=0.02)
    seen = kills(storm, db, processes=2, times=times, jobs=80, rng=random.Random(5))
    assert (seen.kills, seen.lost, seen.left) == (times, 0, 0), seen
    # In its hands were at most what ran and what was claimed ahead, and what had ended and was not reported.
    assert seen.repeated <= seen.kills * (4 + 4 + 8), seen
    assert seen.repeated == seen.in_hand, "a job was repeated that no killed process had"


@TIMES
@SERVERS
@pytest.mark.rest("test_worker_process.py ends workers under way, test_worker_supervisor.py replaces them")
def test_a_rolling_restart_neither_loses_nor_repeats(queue, db, url, tmp_path, times):
    storm = Storm(tmp_path, url, queue.name, concurrency=4, prefetch=4, lease=3600.0, seconds=0.02)
    seen = rolling(storm, db, processes=2, times=times, jobs=80)
    assert (seen.lost, seen.repeated, seen.left) == (0, 0, 0), seen


def test_a_worker_that_slept_through_its_lease_changes_nothing(queue, open_db, url, tmp_path):
    """SIGSTOP for longer than the lease, then SIGCONT: by then another one has done the job."""
    job_id = queue.enqueue("n")
    storm = Storm(tmp_path, url, queue.name, concurrency=1, lease=0.6, held=True)
    late = storm.start("--json", "--verbose")
    try:
        storm.wait("the first begin", lambda: storm.lines("begin"))
        claimed = []
        until = time.monotonic() + PATIENCE
        while not claimed and time.monotonic() < until:
            late.send_signal(signal.SIGSTOP)
            storm.wait("the end of the lease", lambda: queue.get(job_id).state is State.AVAILABLE)
            with suppress(TransientStorageError):
                claimed = queue.claim(lease=HOURS)
            if not claimed:
                # It was stopped within the transaction of its heartbeat, which has the row, or SQLite's file: nobody can claim.
                late.send_signal(signal.SIGCONT)
                storm.wait("the end of its heartbeat", lambda: queue.get(job_id).state is State.RUNNING)
        (job,) = claimed
        assert (job.id, job.attempts) == (job_id, 2)
        late.send_signal(signal.SIGCONT)
        storm.let_go()
        storm.wait("that it is told", lambda: "the result" in (tmp_path / "log").read_text())
        assert queue.get(job_id).version == job.version
        assert job.complete()
    finally:
        storm.let_go()
        late.send_signal(signal.SIGCONT)
        late.send_signal(signal.SIGTERM)
        assert late.wait(PATIENCE) == 0
    assert [attempt for _, attempt, _ in storm.lines("begin")] == [1]


@SQLITE
def test_processes_that_cannot_start_are_not_started_again_and_again(url, tmp_path):
    (tmp_path / "broken.py").write_text("from os import environ\nif 'QUEUE_DB_PARENT_PIPE' in environ: 1 / 0\n")
    (tmp_path / "good.py").write_text(
        "import broken\nfrom queue_db import QueueDB\nfrom queue_db.worker import Worker\n"
        f"worker = Worker(QueueDB({url!r}), 'mail')\nworker.handles(None)(print)\n"
    )
    command = [sys.executable, "-m", "queue_db", "work", "good:worker", "--processes", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot start, so all are stopped" in done.stderr
    assert "ZeroDivisionError" in done.stderr


@SQLITE
def test_until_empty_with_several_processes(queue, url, tmp_path):
    ids = queue.enqueue_many([("n", None)] * 50)
    storm = Storm(tmp_path, url, queue.name, seconds=0.0)
    parent = storm.start("--processes", "2", "--until-empty")
    assert parent.wait(PATIENCE) == 0
    assert sorted(job for job, _, _ in storm.lines("end")) == ids


@SQLITE
def test_sigusr1_shows_what_every_thread_does(queue, url, tmp_path):
    queue.enqueue("n")
    storm = Storm(tmp_path, url, queue.name, held=True)
    worker = storm.start()
    try:
        storm.wait("the begin", lambda: storm.lines("begin"))
        worker.send_signal(signal.SIGUSR1)
        storm.wait("the stacks", lambda: "handlers.py" in (tmp_path / "log").read_text())
    finally:
        storm.let_go()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0


@SQLITE
def test_sigtstp_makes_it_quiet_and_sigcont_lets_it_go_on(queue, url, tmp_path):
    storm = Storm(tmp_path, url, queue.name, seconds=0.0)
    worker = storm.start()

    def logged(part: str) -> bool:
        return part in (tmp_path / "log").read_text()

    try:
        storm.wait("the start", lambda: logged("working on"))
        worker.send_signal(signal.SIGTSTP)
        storm.wait("the quiet", lambda: logged("quiet: no more claims"))
        job_id = queue.enqueue("n")
        assert worker.poll() is None
        worker.send_signal(signal.SIGCONT)
        storm.wait("the return", lambda: logged("claiming again"))
        storm.wait("the job", lambda: [job for job, _, _ in storm.lines("end")] == [job_id])
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    text = (tmp_path / "log").read_text()
    assert text.index("quiet: no more") < text.index("claiming again")
