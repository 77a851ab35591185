"""Programs as handlers."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from queue_db import ArgumentError, ConfigurationError, State
from queue_db.processes.children import ChildProcess
from queue_db.worker import Program
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has ended may be late with its last words, and one that is told to end with its end."""
    monkeypatch.setattr("queue_db.processes.program._STDERR_END", PATIENCE)
    monkeypatch.setattr("queue_db.processes.children.TERMINATE", PATIENCE)


def shell(command: str, **options: object) -> Program:
    return Program(command, environment=PATH, shell=True, **options)  # noqa: S604 - the subject of these tests


def one(queue, program, payload=None):
    """Enqueue a job, let the program have it, and return what is left of it."""
    job_id = queue.enqueue("n", payload)
    summary = serving(queue, program).run(until_empty=True)
    return summary, None if summary.completed else queue.get(job_id)


def test_it_reads_the_payload_and_its_environment(queue, tmp_path: Path):
    program = shell(f"cat > {tmp_path}/payload; env > {tmp_path}/environment")
    summary, _ = one(queue, program, {"to": "Grüße", "n": [1, 2]})
    assert summary.completed == 1
    assert (tmp_path / "payload").read_text(encoding="utf-8") == '{"to":"Grüße","n":[1,2]}'
    environment = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines())
    job_id = environment["QUEUE_DB_JOB_ID"]
    assert environment["QUEUE_DB_QUEUE"] == queue.name
    assert environment["QUEUE_DB_JOB_KIND"] == "n"
    assert environment["QUEUE_DB_JOB_FENCE"] == f"{job_id}:1"
    assert environment["QUEUE_DB_JOB_ATTEMPT"] == "1"
    assert "HOME" not in environment


def test_a_program_need_not_read_its_payload(queue):
    summary, _ = one(queue, Program("true", environment=PATH), "x" * 1_000_000)
    assert summary.completed == 1


def test_words_are_split_without_a_shell(queue, tmp_path: Path):
    summary, _ = one(queue, Program(f"touch '{tmp_path}/a b' {tmp_path}/$HOME", environment=PATH))
    assert summary.completed == 1
    assert sorted(path.name for path in tmp_path.iterdir() if "queue" not in path.name) == ["$HOME", "a b"]


@pytest.mark.parametrize(
    ("command", "state", "error"),
    [
        ("echo no such customer >&2; exit 3", State.SCHEDULED, "exit status 3: no such customer"),
        ("echo busy >&2; exit 75", State.SCHEDULED, "exit status 75: busy"),
        ("exit 65", State.DEAD, "exit status 65"),
        ("kill -9 $$", State.SCHEDULED, "killed by SIGKILL"),
        ("printf '\\377\\000x' >&2; exit 1", State.SCHEDULED, "exit status 1: \ufffd\ufffdx"),
    ],
)
@pytest.mark.usefixtures("patient")
def test_exit_statuses(queue, command, state, error):
    _, job = one(queue, shell(command))
    assert (job.state, job.last_error, job.attempts) == (state, error, 1)


@pytest.mark.usefixtures("patient")
def test_only_the_end_of_standard_error_is_kept_and_all_of_it_is_copied(queue, tmp_path: Path):
    with (tmp_path / "copy").open("wb") as copy:
        _, job = one(queue, shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done >&2; exit 1", stderr=copy))
    assert job.last_error.endswith("line 2998\nline 2999")
    assert len(job.last_error) < 2100
    assert (tmp_path / "copy").read_text().startswith("line 0\nline 1\n")


@pytest.mark.usefixtures("patient")
def test_a_program_that_runs_too_long_is_ended_with_its_children(queue, tmp_path: Path, monkeypatch):
    begun, wait, limit = tmp_path / "begun", ChildProcess.wait, 0.05
    limits = []

    def from_its_begin(process, seconds=None):
        limits.append(seconds)
        if seconds == limit:
            wait_for(begun.exists)  # a busy machine may take longer to start it
        return wait(process, seconds)

    monkeypatch.setattr(ChildProcess, "wait", from_its_begin)
    _, job = one(queue, shell(f"echo begun >&2; sleep 1000 & echo > {begun}; wait", timeout=limit))
    assert limit in limits
    assert job.state is State.SCHEDULED
    assert job.last_error == "timed out after 0.05 s, killed by SIGTERM: begun"


def test_a_grandchild_that_stays_does_not_hold_the_job(queue, tmp_path: Path):
    program = shell(f"sleep 1000 & echo $! > {tmp_path}/pid")
    summary, _ = one(queue, program)
    assert summary.completed == 1
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def gone(pid: int) -> bool:
    """Whether the process ends within ``PATIENCE``. It is there until the thread that waits for it has taken its status."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        threading.Event().wait(0.01)
    return False


def test_leaving_ends_the_program_and_releases_the_job(queue, tmp_path: Path, running):
    job_id = queue.enqueue("n")
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    worker = serving(queue, shell(f"echo $$ > {begun}; exec sleep 1000"))
    with running(worker) as thread:
        pid = int(begun.read_text())
        worker.stop(grace=0)
        thread.join(PATIENCE)
    assert gone(pid), "the program outlived the worker"
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.last_error) == (State.AVAILABLE, 0, None)
    assert worker.summary.released == 1


@pytest.mark.usefixtures("patient")
def test_a_program_that_starts_during_the_stop_is_ended(queue):
    program = shell("exec sleep 1000")
    program.stop()
    queue.enqueue("n")
    (job,) = queue.claim()
    assert program(job).reason == "killed by SIGTERM"


def test_what_cannot_be_run_is_refused_at_once(kind):
    with pytest.raises(ArgumentError, match="cannot be split"):
        Program("echo 'x", environment=PATH)
    with pytest.raises(ArgumentError, match="empty"):
        Program("  ", environment=PATH)
    with pytest.raises(ConfigurationError, match="no program 'no-such-program-here'"):
        Program("no-such-program-here --now", environment=PATH)
    with pytest.raises(ConfigurationError, match="has shell syntax: run it in a shell with shell=True") as refused:
        Program("no-such-program-here; true", environment=PATH)
    assert refused.value.cli.endswith("run it in a shell with --shell")
