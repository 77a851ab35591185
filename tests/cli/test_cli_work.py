"""``queue-db work``; what the worker itself does is tested beside it."""

import json
import logging
import os
import subprocess
import sys

import pytest

from queue_db import State, __version__
from queue_db.backoff import constant
from queue_db.cli.logs import MaskedJSONFormatter
from tests.patience import HOURS, PATIENCE

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def ask(ask, monkeypatch):
    """As everywhere, but a failed job waits for hours: a busy machine may take longer than the default backoff to look at it."""

    def run(*arguments, **options):
        # During the command alone: the databases of other fixtures are open longer than this test.
        with monkeypatch.context() as patched:
            patched.setattr("queue_db.backoff.exponential", lambda: constant(HOURS))
            return ask(*arguments, **options)

    return run


@pytest.fixture
def handlers(tmp_path, monkeypatch):
    """A module in the current folder."""
    name = f"handlers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import logging\n"
        "def work(job):\n"
        "    logging.getLogger('mine').info('has %s', job.payload)\n"
        "    if job.payload == 'bad': raise ValueError('a bad one')\n"
        "by_kind = {'n': work}\n"
        "class Holder:\n"
        "    work = staticmethod(work)\n"
        "number = 5\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("class A: pass\nlimit = 5\nA().nothing\n", 3, "AttributeError: 'A' object has no attribute 'nothing'"),
        ("x = (\n", 1, "SyntaxError"),
    ],
)
@SQLITE
def test_an_import_that_fails_shows_where(ask, url, name, tmp_path, handlers, text, line, error):
    """Two modules away from the one that was asked for."""
    (tmp_path / f"{handlers}_deep.py").write_text(text)
    (tmp_path / f"{handlers}_top.py").write_text(f"import os\nimport {handlers}_deep\n")
    shown = ask("work", name, "--handler", f"{handlers}_top:work", status=2).err
    assert f'File "{tmp_path}/{handlers}_top.py", line 2, in <module>\n    import {handlers}_deep' in shown
    assert f'File "{tmp_path}/{handlers}_deep.py", line {line}' in shown
    assert error in shown.splitlines()[-1], "the last line is the message"
    assert "importlib" not in shown
    assert "queue_db/cli" not in shown


@pytest.mark.parametrize("attribute", ["work", "by_kind", "Holder.work"])
@SQLITE
def test_a_python_function(ask, queue, handlers, attribute):
    queue.enqueue_many([("n", "good"), ("n", "bad")])
    answer = ask("work", queue.name, "--handler", f"{handlers}:{attribute}", "--until-empty", "--json", "--concurrency", 2)
    assert {name: number for name, number in answer.record.items() if number} == {
        "queues": [queue.name],
        "completed": 1,
        "failed": 1,
    }
    counts = ["completed", "failed", "snoozed", "cancelled", "dead", "released", "lost"]
    assert list(answer.record) == ["queues", *counts, "signal", "stuck", "recycled"]
    assert "has good" in answer.err
    assert "ValueError: a bad one" in answer.err


@SQLITE
def test_messages_of_a_feed(ask, queue, handlers, db, name):
    db.feed(name).publish_many([("n", "good"), ("n", "bad"), ("n", "good")])
    slots = f"{name}:{name}=2"
    answer = ask("work", name, "--feed", slots, "--span", 2, "--handler", f"{handlers}:work", "--until-empty", "--json")
    assert {key: number for key, number in answer.record.items() if number} == {
        "queues": [name],
        "feeds": {f"{name}:{name}": 2},
        "completed": 2,
        "failed": 1,
    }
    assert db.feed(name).cursors()[0].behind == 0
    assert queue.stats().scheduled == 1


@SQLITE
def test_the_log_as_json(ask, queue, handlers, monkeypatch):
    job_id = queue.enqueue("n", "bad")
    monkeypatch.setenv("QUEUE_DB_LOG_FORMAT", "json")
    answer = ask("work", queue.name, "--handler", f"{handlers}:work", "--until-empty")
    lines = [json.loads(line) for line in answer.err.splitlines()]
    (failed,) = [line for line in lines if "outcome" in line]
    assert (failed["job_id"], failed["queue"], failed["outcome"], failed["level"]) == (job_id, queue.name, "failed", "WARNING")
    assert "ValueError: a bad one" in failed["exception"]
    (mine,) = [line for line in lines if line["logger"] == "mine"]
    assert (mine["message"], mine["job_id"], mine["process"]) == ("has bad", job_id, "1")
    refused = ask("work", queue.name, "--handler", f"{handlers}:work", "--log-format", "xml", status=2)
    assert "must be one of text, json" in refused.err


@SQLITE
def test_the_log_says_how_a_worker_started_and_why_it_ended(ask, queue, db, handlers):
    """In the fields of JSON, and in words."""
    queue.enqueue_many([("n", "good"), ("n", "good"), ("n", "bad")])
    arguments = ("work", queue.name, "--handler", f"{handlers}:by_kind", "--until-empty", "--concurrency", 3)
    lines = [json.loads(line) for line in ask(*arguments, "--log-format", "json").err.splitlines()]
    start, end = lines[0], lines[-1]
    told = {"version": __version__, "database": db.url, "queues": {queue.name: 3}, "feeds": {}, "kinds": ["n"], "slots": 3}
    told |= {"mode": "at_least_once", "lease": 60, "strategy": "adaptive", "pid": os.getpid(), "process": "1"}
    assert told.items() <= start.items()
    assert {"why": "no job is due", "completed": 2, "failed": 1, "dead": 0}.items() <= end.items()
    assert end["uptime"] > 0
    assert start["worker"] == end["worker"]
    words = ask(*arguments).err.splitlines()
    assert f"working on '{queue.name}': 3 at once, at least once, lease 60 s, strategy adaptive, kinds n; {db.url}, " in words[0]
    assert words[0].endswith(f"queue_db {__version__}, pid {os.getpid()}")
    assert f"stopped working on '{queue.name}' after " in words[-1]
    assert words[-1].endswith(" s (no job is due): no jobs")


@SQLITE
def test_the_log_says_why_a_worker_could_not_start(ask, queue, tmp_path, handlers):
    arguments = ("work", queue.name, "--handler", f"{handlers}:work", "--url", f"sqlite:///{tmp_path}/other.db")
    shown = ask(*arguments, "--log-format", "json", status=2).err.splitlines()
    logged, message = json.loads(shown[0]), shown[-1]
    assert (logged["level"], logged["error"]) == ("ERROR", "SchemaOutOfDateError")
    assert logged["message"].removeprefix("ended by an error: ") == message.removeprefix("queue-db: ")
    assert len(ask(*arguments, status=2).err.splitlines()) == 1


@SQLITE
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_lines_of_a_supervisor_have_its_pid_and_say_how_it_started_and_ended(url, queue, log_format):
    command = [sys.executable, "-m", "queue_db", "work", queue.name, "--exec", "true", "--processes", "2", "--until-empty"]
    command += ["--log-format", log_format]
    with subprocess.Popen(command, env=os.environ | {"QUEUE_DB_URL": url}, stderr=subprocess.PIPE, text=True) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    lines = err.splitlines()
    if log_format == "text":
        own = [line for line in lines if f" INFO {process.pid} " in line]
        assert f"supervising 2 processes on '{queue.name}': 10 at once, " in own[0]
        assert " INFO 1/" in err
        assert " INFO 2/" in err
        assert own[-1].endswith(" s (no job is due): 0 were replaced")
        assert len(own) == 4
    else:
        own = [line for line in map(json.loads, lines) if line["pid"] == process.pid]
        assert (own[0]["processes"], own[0]["queues"], own[0]["kinds"]) == (2, {queue.name: 10}, ["*"])
        assert (own[-1]["why"], own[-1]["replaced"]) == ("no job is due", 0)


def test_no_password_in_a_line_of_json():
    made = MaskedJSONFormatter('postgresql://me:hunt"2@host/db')
    extra = {"url": 'postgresql://me:hunt"2@host/db', "said": ValueError('hunt"2'), "more": [{"of": 'hunt"2'}, None, 1.5]}
    record = logging.getLogger("x").makeRecord("x", logging.INFO, "x", 1, 'no login with hunt"2', (), None, extra=extra)
    line = made.format(record)
    assert "hunt" not in line
    assert json.loads(line)["said"] == "***"
    assert json.loads(line)["more"] == [{"of": "***"}, None, 1.5]


def test_a_program_on_every_database(queue, url, tmp_path):
    """In a process of its own, as in earnest: 75, 65, another status, and success."""
    ids = {word: queue.enqueue("n", word) for word in ("0", "75", "65", "9")}
    command = [sys.executable, "-m", "queue_db", "work", queue.name, "--until-empty", "--json", "--concurrency", "3"]
    script = 'read status; env | grep -c QUEUE_DB_URL; echo said $status >&2; eval exit "$status"'
    done = subprocess.run(
        [*command, "--shell", "--exec", script],
        env={"QUEUE_DB_URL": url, "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    record = json.loads(line)
    assert [record[word] for word in ("completed", "snoozed", "cancelled", "dead")] == [1, 0, 0, 1]
    # Each once, and once more for each time that a busy machine takes longer than the backoff.
    assert record["failed"] == sum(queue.get(ids[word]).attempts for word in ("75", "9"))
    assert queue.get(ids["75"]).last_error.startswith("exit status 75: said")
    assert queue.get(ids["65"]).state is State.DEAD
    assert queue.get(ids["9"]).state in (State.SCHEDULED, State.AVAILABLE)


@pytest.mark.parametrize(("options", "expected"), [((), "none"), (("--pass-url",), "given")])
@SQLITE
def test_the_url_is_given_to_a_program_only_on_request(ask, queue, url, tmp_path, options, expected):
    queue.enqueue("n")
    script = f'test -n "$QUEUE_DB_URL" && echo given > {tmp_path}/url || echo none > {tmp_path}/url'
    ask("work", queue.name, "--exec", script, "--shell", "--until-empty", *options)
    assert (tmp_path / "url").read_text().strip() == expected


@SQLITE
def test_strategy_and_removal(ask, queue):
    queue.enqueue("n")
    ask("work", queue.name, "--exec", "true", "--until-empty", "--strategy", "optimistic", "--removal", "delete_mark")
    assert queue.stats().by_kind == {}
    assert "SKIP LOCKED" in ask("work", queue.name, "--exec", "true", "--strategy", "skip_locked", status=2).err
    assert "unknown removal" in ask("work", queue.name, "--exec", "true", "--removal", "burn", status=2).err


@SQLITE
def test_a_timeout_ends_the_program(ask, queue, monkeypatch):
    monkeypatch.setattr("queue_db.processes.children.TERMINATE", PATIENCE)
    job_id = queue.enqueue("n")
    ask("work", queue.name, "--exec", "sleep 1000", "--timeout", "0.2", "--until-empty")
    assert queue.get(job_id).last_error == "timed out after 0.2 s, killed by SIGTERM"


@SQLITE
def test_verbose_logs_every_job(ask, queue):
    queue.enqueue("n")
    assert "completed: <LeasedJob" in ask("work", queue.name, "--exec", "true", "--until-empty", "--verbose").err
    queue.enqueue("n")
    assert "completed: <LeasedJob" not in ask("work", queue.name, "--exec", "true", "--until-empty").err


@SQLITE
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "either --exec or --handler"),
        (("--exec", "true", "--handler", "os:getcwd"), "either --exec or --handler"),
        (("--handler", "os:getcwd", "--shell"), "belong to --exec"),
        (("--handler", "os:getcwd", "--timeout", "5"), "belong to --exec"),
        (("--handler", "getcwd"), "must be MODULE:NAME"),
        (("--handler", "no.such.module:work"), "run the command in the folder of the module, or set PYTHONPATH to it"),
        (("--handler", "{}:missing"), "has no attribute missing"),
        (("--handler", "{}_broken:work"), "ZeroDivisionError"),
        (("--handler", "{}:number"), "must be a function"),
        (("--exec", "no-such-program-here"), "no program 'no-such-program-here'"),
        (("--exec", "echo 'x"), "cannot be split"),
        (("--exec", "true", "--timeout", "0"), "timeout=0"),
        (("--exec", "true", "--lease", "0"), "lease=0"),
        (("--exec", "true", "--concurrency", "0"), "--concurrency"),
        (("--exec", "true", "--feed", "orders:mailers"), "must be FEED:CURSOR=N"),
        (("--exec", "true", "--feed", "orders=2"), "must be feed:cursor"),
    ],
)
def test_work_refuses(ask, name, handlers, arguments, part):
    arguments = [argument.replace("{}", handlers) for argument in arguments]
    assert part in ask("work", name, *arguments, status=2).err


@SQLITE
@pytest.mark.parametrize("processes", [1, 2])
def test_a_cursor_with_one_holder_is_refused_at_the_start(ask, handlers, db, name, processes):
    with db.feed(name).cursor("billing"):
        pass
    arguments = ("work", name, "--feed", f"{name}:billing=1", "--handler", f"{handlers}:work", "--processes", processes)
    error = ask(*arguments, status=2).err
    assert "has one holder at a time" in error
    assert f"`queue-db cursors remove {name} billing`" in error


@SQLITE
def test_a_feed_with_claims_is_refused_with_advice_that_helps(ask, handlers, db, name):
    db.feeds.set(name, claims=True)
    error = ask("work", "--feed", f"{name}:w=1", "--handler", f"{handlers}:work", status=2).err
    assert "name a feed without claims" in error
    assert "cursors remove" not in error


@SQLITE
def test_the_queue_of_failed_messages_is_run_or_named(ask, handlers, db, name):
    db.feed(name).publish_many([("n", "good"), ("n", "bad")])
    slots, failed = f"{name}:{name}=1", f"messages of '{name}:{name}' that fail become jobs of the queue '{name}'"
    answer = ask("work", f"{name}-other", "--feed", slots, "--handler", f"{handlers}:work", "--until-empty")
    assert failed in answer.err
    assert db.queue(name).stats().scheduled == 1
    answer = ask("work", "--feed", slots, "--handler", f"{handlers}:work", "--until-empty", "--json")
    assert failed not in answer.err
    assert answer.record["queues"] == [name]


@SQLITE
def test_a_worker_needs_a_queue_or_a_feed(ask, handlers):
    assert "no queue" in ask("work", "--handler", f"{handlers}:work", status=2).err
    assert "no handler" in ask("work", status=2).err


@SQLITE
def test_it_ends_with_a_status_of_its_own_when_handlers_hang(ask, queue, url, tmp_path, monkeypatch):
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", 0.0)
    module = f"hangs_{os.getpid()}"
    (tmp_path / f"{module}.py").write_text(
        "import threading\n"
        "from queue_db import QueueDB\n"
        "from queue_db.worker import Worker\n"
        "go = threading.Event()\n"
        f"worker = Worker(QueueDB({url!r}), {queue.name!r})\n"
        f"worker.handles('hangs', timeout=0.05)(lambda job: go.wait({PATIENCE}))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    queue.enqueue("hangs")
    answer = ask("work", f"{module}:worker", "--exit-when-stuck", 1, "--json", status=75)
    assert answer.record["stuck"] == sys.modules[module].worker.stuck == 1
    sys.modules[module].go.set()
    sys.modules[module].worker.db.close()


@SQLITE
def test_the_worker_of_the_module_is_the_one_that_runs(ask, queue, url, tmp_path, monkeypatch):
    module = f"stops_{os.getpid()}"
    (tmp_path / f"{module}.py").write_text(
        "from queue_db import QueueDB\n"
        "from queue_db.worker import Worker\n"
        f"worker = Worker(QueueDB({url!r}), {queue.name!r}, lease=20)\n"
        "@worker.handles('n')\n"
        "def handle(job):\n"
        "    worker.quiet()\n"
        "    worker.stop()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    queue.enqueue_many([("n", number) for number in range(3)])
    refused = ask("work", f"{module}:worker", "--url", "sqlite:///other.db", "--until-empty", status=2).err
    assert f"--url names no database for {module}:worker: this Worker object has a QueueDB of its own" in refused
    answer = ask("work", f"{module}:worker", "--concurrency", 1, "--poll", 0.1, "--until-empty", "--json")
    worker = sys.modules[module].worker
    try:
        assert answer.record["completed"] == 1
        assert queue.stats().available == 2
        assert worker.summary.completed == 1
        assert (worker.options.slots, worker.options.poll, worker.options.lease) == (1, 0.1, 20.0)
    finally:
        worker.db.close()


@SQLITE
def test_a_worker_object_beside_a_handler_is_taken_for_a_queue_with_a_note(ask, queue, handlers, tmp_path):
    """A queue may have a colon in its name, so no module is imported to find out."""
    module = f"{handlers}_worker"
    (tmp_path / f"{module}.py").write_text(
        "from queue_db import QueueDB\nfrom queue_db.worker import Worker\nworker = Worker(QueueDB('sqlite://'), 'mail')\n"
    )
    object_, note = f"{module}:worker", f"{module}:worker is taken for a queue; a Worker object is given alone"
    for handler in (["--exec", "true"], ["--handler", f"{handlers}:work"]):
        assert note in ask("work", object_, queue.name, *handler, "--until-empty").err
        assert module not in sys.modules
    assert "is a Worker object: give it alone" in ask("work", queue.name, "--handler", object_, status=2).err
    sys.modules[module].worker.db.close()
    name = f"{queue.name}:high"
    said = ask("work", name, "--exec", "true", "--until-empty").err
    assert f"working on '{name}'" in said
    assert "taken for" not in said


@SQLITE
def test_kinds_without_a_handler_wait_or_are_dead(ask, queue, handlers, monkeypatch):
    monkeypatch.setattr("queue_db.verbs.settle._UNKNOWN_WAITS", (HOURS, HOURS))  # or a slow run finds them due again
    arguments = ["work", queue.name, "--handler", f"{handlers}:by_kind", "--until-empty", "--json"]
    waiting = [queue.enqueue("stranger") for _ in range(2)]
    assert ask(*arguments).record["snoozed"] == 2
    assert {queue.get(job_id).state for job_id in waiting} == {State.SCHEDULED}
    other = queue.enqueue("stranger")
    answer = ask(*arguments, "--unknown", "dead")
    assert answer.record["dead"] == 1
    assert f"job {other} 'stranger' in '{queue.name}' is dead after attempt 1/25 (unknown_kind): parked: no handler" in answer.err
    assert queue.get(other).state is State.DEAD
    third = queue.enqueue("stranger")
    assert ask(*arguments, "--unknown-grace", 0).record["dead"] == 1
    assert queue.get(third).state is State.DEAD
    assert "--unknown='later': must be one of wait, dead" in ask(*arguments, "--unknown", "later", status=2).out


@pytest.mark.parametrize(("processes", "numbers"), [(1, ["1"]), (2, ["1", "2", "none"])])
@SQLITE
def test_processes_that_work_have_a_number_when_they_import_the_module(url, queue, tmp_path, processes, numbers):
    """The supervisor, which imports it too, has none: it must not take a port."""
    (tmp_path / "numbered.py").write_text(
        "import os\n"
        "from queue_db import QueueDB\n"
        "from queue_db.worker import Worker\n"
        "with open('imported', 'a') as file: file.write(os.environ.get('QUEUE_DB_PROCESS', 'none') + '\\n')\n"
        f"worker = Worker(QueueDB({url!r}), {queue.name!r})\n"
        "worker.handles('n')(print)\n"
    )
    command = [sys.executable, "-m", "queue_db", "work", "numbered:worker", "--processes", str(processes), "--until-empty"]
    # A number that this shell got from somewhere means nothing.
    environment = os.environ | {"QUEUE_DB_PROCESS": "9"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "imported").read_text().split()) == numbers


@SQLITE
def test_the_number_of_a_process_is_gone_after_the_command(ask, queue, monkeypatch):
    """It is set for the modules that the command imports, in whatever process the command runs."""
    monkeypatch.delenv("QUEUE_DB_PROCESS", raising=False)
    ask("work", queue.name, "--exec", "true", "--until-empty")
    assert "QUEUE_DB_PROCESS" not in os.environ
    monkeypatch.setenv("QUEUE_DB_PROCESS", "9")
    ask("work", queue.name, "--exec", "true", "--until-empty")
    assert os.environ["QUEUE_DB_PROCESS"] == "9"
