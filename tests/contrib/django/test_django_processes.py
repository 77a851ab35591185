"""``manage.py queue_worker`` as a process: killed and stopped; and what its command line says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_db import QueueDB, State
from tests.contrib.django.conftest import Start
from tests.patience import wait_for


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def test_a_task_of_a_killed_worker_runs_again(tasks: Any, name: str, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    result = tasks.hang.using(queue_name=name).enqueue(str(file), 600)
    first = start("queue_worker", "--queue", name, "--lease", "2")
    wait_for(lambda: lines(file))
    result.refresh()
    assert (result.status, result.attempts) == ("RUNNING", 1)
    assert result.finished_at is None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = start("queue_worker", "--queue", name, "--lease", "2")
    wait_for(lambda: len(lines(file)) == 2)
    wait_for(lambda: tasks.hang.get_result(result.id).is_finished)
    result.refresh()
    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 2, [])
    assert len(set(result.worker_ids)) == 2
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0


@pytest.mark.rest("above it a worker is killed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_task_end(
    number: signal.Signals, tasks: Any, name: str, start: Start, tmp_path: Path, db: QueueDB
) -> None:
    file = tmp_path / "pids"
    running = tasks.hang.using(queue_name=name).enqueue(str(file), 1)
    worker = start("queue_worker", "--queue", name, "--concurrency", "1")
    wait_for(lambda: lines(file))
    waiting = tasks.add.using(queue_name=name).enqueue(1, 2)
    worker.send_signal(number)
    assert worker.wait(30) == 0
    running.refresh()
    waiting.refresh()
    assert (running.status, waiting.status) == ("SUCCESSFUL", "READY")


@pytest.mark.rest("above it a worker is killed")
def test_a_second_signal_returns_the_running_task(tasks: Any, name: str, start: Start, tmp_path: Path, db: QueueDB) -> None:
    file = tmp_path / "pids"
    result = tasks.hang.using(queue_name=name).enqueue(str(file), 600)
    worker = start("queue_worker", "--queue", name)
    wait_for(lambda: lines(file))
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: [each.state for each in db.workers() if each.pid == worker.pid] in (["stopping"], []))
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: db.queue(name).stats().available == 1)
    result.refresh()
    assert result.status == "READY"
    assert db.get(int(result.id)).attempts == 0  # an interruption is no attempt


@pytest.mark.rest("tests/worker/test_worker_supervisor.py has the supervisor")
def test_a_process_of_several_that_is_killed_is_replaced(tasks: Any, name: str, start: Start, tmp_path: Path, db: QueueDB) -> None:
    file = tmp_path / "pids"
    result = tasks.hang.using(queue_name=name).enqueue(str(file), 600)
    supervisor = start("queue_worker", "--queue", name, "--processes", "2")

    def at_work() -> set[int]:
        return {each.pid for each in db.workers() if name in each.queues and each.state == "working"}

    wait_for(lambda: lines(file) and len(at_work()) == 2)
    first, *_ = map(int, lines(file))
    assert first != supervisor.pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: tasks.hang.get_result(result.id).is_finished)
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 2)
    wait_for(lambda: len(at_work() - {first}) == 2)
    supervisor.send_signal(signal.SIGTERM)
    said, _ = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0, said
    assert "died (killed by SIGKILL); its replacement starts in" in said
    assert "1 were replaced" in said
    assert at_work() == set(), said


WITH_A_LOG_FILE = """
import sys

import django
from django.core.management import call_command

django.setup()
name, file = sys.argv[1:]
with open(file, "a", encoding="utf-8") as log:
    call_command("queue_worker", queue=[name], until_empty=True, stderr=log)
"""


@pytest.mark.rest("a process of the worker; test_django_running.py stores such a text")
def test_an_error_with_bytes_that_are_no_text_is_stored_and_logged(
    tasks: Any, name: str, environment: dict[str, str], db: QueueDB, tmp_path: Path
) -> None:
    result = tasks.open_file_without_text.using(queue_name=name).enqueue()
    file = tmp_path / "log"  # standard error would escape what it cannot encode
    command = [sys.executable, "-c", WITH_A_LOG_FILE, name, str(file)]
    while db.get(int(result.id)).state is not State.DEAD:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
        assert b"Logging error" not in done.stderr
    said = file.read_text(encoding="utf-8")
    assert "ValueError: no file name \\udcff" in said
    assert f"Task id={result.id} path={tasks.open_file_without_text.module_path} failed 1 of 2 times, again in 0 s" in said
    assert said.count("Traceback (most recent call last)") == 2  # of each attempt once
    assert said.count("ValueError: no file name") == 3  # and in the line of the death
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 2)
    assert [error.exception_class for error in result.errors] == [ValueError] * 2
    assert all(error.traceback.endswith("no file name \\udcff\n") for error in result.errors)
    str(db.get(int(result.id)).last_error).encode()


def test_the_help_teaches(tasks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import execute_from_command_line

    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "queue_worker", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in (
        "--queue",
        "--concurrency",
        "--until-empty",
        "--batch",
        "--interval",
        "--reload",
        "SIGTERM",
        "killed",
        "--processes",
    ):
        assert word in said, word


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend", "nobody"], "TASKS has no 'nobody': it has 'default'"),
        ([], "'QUEUES' is empty, so any queue may be used: name those to serve"),
        (["--interval", "inf"], "must be a number of seconds"),
        (["--concurrency", "0"], "must be at least 1"),
        (["--processes", "2", "--reload"], "--processes goes neither with --reload nor with --name"),
        (["--processes", "2"], "--processes takes the place of its process: only from the command line"),
        (["--worker-id", ""], "must have 1 to 64 characters"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], says: str, tasks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import CommandError, execute_from_command_line

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("django.core.management.base.BaseCommand.run_from_argv", run_raising)
        try:
            execute_from_command_line(["manage.py", "queue_worker", *arguments])
        except (CommandError, SystemExit) as error:
            said = f"{error} {capsys.readouterr().err}".replace("TASKS['default']", "").replace("[", "").replace("]", "")
            assert says in said
        else:
            pytest.fail("it was accepted")


def run_raising(self: Any, argv: list[str]) -> None:
    """As a command line, but errors are raised."""
    parser = self.create_parser(argv[0], argv[1])
    options = vars(parser.parse_args(argv[2:]))
    self.execute(*options.pop("args", ()), **options)
