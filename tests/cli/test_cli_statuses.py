"""Exit statuses and error messages; and that no password is ever printed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from queue_db.cli import main, statuses
from queue_db.cli.lasting import started
from queue_db.database.masking import mask, secrets_in
from queue_db.errors import (
    ConfigurationError,
    DuplicateJobError,
    FeedError,
    IdempotencyKeyError,
    JobNotFoundError,
    LeaseLostError,
    NoSuchFeedError,
    PayloadError,
    PermanentStorageError,
    SchemaOutOfDateError,
    TransientStorageError,
)
from tests.databases import SERVERS
from tests.patience import PATIENCE
from tests.servers import over_tls

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
ON_SERVERS = pytest.mark.parametrize("kind", SERVERS)
SECRET = "hunter2-SeCrEt"


@pytest.fixture(scope="module")
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (JobNotFoundError(1, "x"), 1),
        (DuplicateJobError(unique_key="k", existing_id=1), 1),
        (LeaseLostError(), 1),
        (ConfigurationError(), 2),
        (SchemaOutOfDateError(found=None, required="1"), 2),
        (PayloadError(kind="n", reason="x"), 2),
        (FeedError(), 2),
        (NoSuchFeedError(), 1),
        (IdempotencyKeyError(), 1),
        (TransientStorageError(), 3),
        (PermanentStorageError(), 3),
    ],
)
def test_the_status_of_an_error(error, status):
    assert statuses.status_of(error) == status
    assert status in statuses.MEANINGS


def test_a_mistyped_sqlite_path_is_an_error_and_creates_no_file(tmp_path, ask_at):
    typo = tmp_path / "typo.db"
    for command in (["queues", "list"], ["enqueue", "q", "k"], ["doctor"], ["dead", "list"]):
        answer = ask_at(f"sqlite:///{typo}", *command, status=2)
        assert "typo.db does not exist" in answer.err
        assert answer.err.endswith("To create it: queue-db migrate\n")
    aside = ask_at(None, "queues", "list", "--url", f"sqlite:///{typo}", "--table", "mail", status=2).err
    assert aside.endswith(f"To create it: queue-db migrate --url 'sqlite:///{typo}' --table mail\n")
    assert "typo.db does not exist" in ask_at(f"sqlite:///{typo}", "migrate", "--check", status=1).err
    assert "CREATE TABLE" in ask_at(f"sqlite:///{typo}", "migrate", "--sql").out
    assert list(tmp_path.iterdir()) == []
    ask_at(f"sqlite:///{typo}", "migrate")
    ask_at(f"sqlite:///{typo}", "queues", "list")


def test_options_that_cannot_be_read_print_nothing_on_standard_output(ask_at):
    answer = ask_at(None, "feeds", "set", "mail", "--keep-for", "1s", "--json", status=2)
    assert (answer.out, "--keep-for" in answer.err) == ("", True)
    assert "cannot be read" in ask_at(None, "--help").out


def test_usage(ask_at):
    ask_at(None, status=2)
    ask_at(None, "no-such-command", status=2)
    ask_at(None, "jobs", "list", "--queue", status=2)
    ask_at(None, "queues", "list", "--no-such-option", status=2)
    answer = ask_at(None, "queues", "list", "--json", status=2)
    assert answer.err == "queue-db: no database given: use --url or --profile, or set QUEUE_DB_URL\n"
    message = "no database given: use --url or --profile, or set QUEUE_DB_URL"
    assert answer.record == {"error": {"type": "ConfigurationError", "code": "configuration", "message": message}}


@SQLITE
def test_missing_tables_are_a_matter_of_configuration(ask_at, fresh_url):
    answer = ask_at(fresh_url, "queues", "list", "--json", status=2)
    assert answer.record["error"]["type"] == "SchemaOutOfDateError"
    assert "To create it: queue-db migrate\n" in answer.err


@ON_SERVERS
def test_a_wrong_password(ask_at, url):
    wrong = make_url(over_tls(url)).set(password=SECRET).render_as_string(hide_password=False)
    answer = ask_at(wrong, "queues", "list", "--json", status=3)
    assert answer.record["error"]["type"] == "PermanentStorageError"
    assert SECRET not in answer.out + answer.err
    assert ":***@" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("postgresql://user:{secret}@127.0.0.1:{port}/db", 3),
        ("postgresql://user@127.0.0.1:{port}/db?password={secret}", 3),
        ("mysql://user:{secret}@127.0.0.1:{port}/db", 3),
        ("mariadb+pymysql://user:{secret}@127.0.0.1:{port}/db", 3),
        ("postgresql://user:a@{secret}@127.0.0.1:{port}/db", 2),
        ("postgresql://user:a/{secret}@127.0.0.1:{port}/db", 3),
        ("postgresql://user:a:{secret}@127.0.0.1:{port}/db", 3),
        ("postgresql://user:{secret}@127.0.0.1:port/db", 2),
        ("postgresql://user:{secret}@[::1/db", 2),
        ("postgresql://user:{secret}@127.0.0.1:{port}/db?no_such_option=1", 3),
        ("mysql://user:{secret}@127.0.0.1:{port}/db?no_such_option=1", 2),
        ("oracle://user:{secret}@127.0.0.1/db", 2),
        ("postgresql+no_such_driver://user:{secret}@127.0.0.1/db", 2),
        ("sqlite:////no/such/folder/{secret}.db", 3),
        ("{secret}", 2),
        ("user:{secret}@host", 2),
        ("://user:{secret}@host", 2),
    ],
)
def test_no_password_is_printed(ask_at, closed_port, url, status, monkeypatch):
    monkeypatch.setattr(started, "__defaults__", (0.0,))  # work waits for a minute for a database that is away
    url = url.format(secret=SECRET, port=closed_port)
    for command in (
        ("queues", "list", "--json"),
        ("doctor",),
        ("migrate", "--sql"),
        ("work", "q", "--exec", "true"),
        ("enqueue", "q", "n"),
    ):
        for answer in (
            ask_at(url, *command, status=status),
            ask_at(None, *command, "--url", url, status=status),
        ):
            # A file's name is no password.
            assert SECRET not in answer.out + answer.err or url.startswith("sqlite")


def test_ctrl_c_while_a_worker_waits_for_the_server(ask_at, closed_port, monkeypatch):
    """And what it logs meanwhile has no password."""

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("queue_db.cli.lasting.time.sleep", interrupted)
    answer = ask_at(f"postgresql://user:{SECRET}@127.0.0.1:{closed_port}/db", "work", "q", "--exec", "true", status=130)
    assert "trying again" in answer.err
    assert SECRET not in answer.out + answer.err


@ON_SERVERS
def test_no_password_is_printed_when_all_is_well(ask_at, fresh_url, name):
    password = make_url(fresh_url).password
    ask_at(fresh_url, "migrate")
    ask_at(fresh_url, "enqueue", name, "n")
    for command in (
        ("doctor",),
        ("doctor", "--json"),
        ("queues", "list"),
        ("purge", name),
        ("work", name, "--exec", "env", "--until-empty", "--verbose"),
        ("queues", "list", "--help"),
    ):
        answer = ask_at(fresh_url, *command, status=2 if command[0] == "purge" else 0)
        assert password not in answer.out + answer.err


def test_masking():
    secrets = secrets_in("postgresql://user:p%40ss-word@host/db?sslpassword=other-one&application_name=mine")
    assert secrets == ["p%40ss-word", "other-one", "p@ss-word"]
    assert mask("p%40ss-word p@ss-word other-one mine", secrets) == "*** *** *** mine"
    assert mask("at mysql://user:anything@host/db", []) == "at mysql://user:***@host/db"
    assert mask("at mysql://user:password@hostile/db", []) == "at mysql://user:***@hostile/db"
    assert mask("at mysql://user:password@host/p@elsewhere/db", []) == "at mysql://user:***@elsewhere/db"
    url = "mysql://user:password@host/db"  # the example may be a user's own
    assert mask(f"at {url}", secrets_in(url)) == "at mysql://user:***@host/db"


def test_the_example_of_a_url_is_not_masked(ask_at):
    answer = ask_at("no-url", "queues", "list", status=2)
    assert answer.err.endswith("postgresql+psycopg2://user:password@host/database\n")
    assert secrets_in(None) == secrets_in("sqlite:///queue.db") == []


@SQLITE
def test_a_bug_is_reported_with_a_masked_traceback(url, name, monkeypatch):
    from typer.testing import CliRunner

    from queue_db.cli.app import app

    def broken(*_, **__):
        raise RuntimeError(f"cannot even with {SECRET}")

    monkeypatch.setattr("queue_db.cli.options.QueueDB", broken)
    result = CliRunner().invoke(app, ["queues", "list", "--url", f"postgresql://user:{SECRET}@host/db"])
    assert result.exit_code == statuses.BUG
    assert "RuntimeError: cannot even with ***" in result.stderr
    assert SECRET not in result.output + result.stderr


@SQLITE
def test_ctrl_c(ask, queue, monkeypatch):
    def interrupted(self, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("queue_db.queue.Queue.stats", interrupted)
    assert ask("queues", "show", queue.name, status=130).err == "queue-db: interrupted\n"


def test_ctrl_c_while_the_command_is_imported(monkeypatch, capsys):
    class Interrupted:
        def find_spec(self, name, path, target=None):
            if name == "queue_db.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "queue_db.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (statuses.INTERRUPTED, "queue-db: interrupted\n")


# --- as programs --------------------------------------------------------------------------------------------------------


def program(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": os.defpath, "PYTHONWARNINGS": "error"} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@SQLITE
def test_both_ways_to_call_it(url, queue):
    script = str(Path(sys.executable).with_name("queue-db"))
    for command in ([script], [sys.executable, "-m", "queue_db"]):
        done = program(*command, "queues", "show", queue.name, "--json", QUEUE_DB_URL=url)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith('{"queue": ')


@SQLITE
def test_a_reader_that_has_seen_enough(url, queue):
    """``queue-db jobs list … | head``: no traceback."""
    queue.enqueue_many([("n", "x" * 1000)] * 500)
    done = program(
        "/bin/sh", "-c", f"{sys.executable} -m queue_db jobs list --queue {queue.name} -n 500 --json | head -c 10", QUEUE_DB_URL=url
    )
    assert (done.stdout, done.stderr) == ('{"id": ' + done.stdout[7:], "")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_it_names_the_command_to_install_them(missing):
    hide = f"import sys; sys.modules[{missing!r}] = None; from queue_db.cli import main; main()"
    done = program(sys.executable, "-c", hide)
    assert done.returncode == 2
    assert done.stderr == (f'queue-db: the command line needs {missing}, which is not installed: pip install "queue-db[cli]"\n')


def test_the_library_does_not_import_the_command_line():
    look = "import sys, queue_db; sys.exit(bool({'typer', 'rich', 'alembic'} & set(sys.modules)))"
    assert program(sys.executable, "-c", look).returncode == 0


def test_a_terminal_that_knows_only_ascii(tmp_path):
    (tmp_path / "q.db").touch()
    done = program(sys.executable, "-m", "queue_db", "doctor", "--url", f"sqlite:///{tmp_path}/q.db", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert r"DELETE \u2026 RETURNING" in done.stdout
