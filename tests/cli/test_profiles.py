"""Databases with names, and the question before a change of a protected one."""

import pytest

from queue_db import QueueDB
from queue_db.cli import output
from tests.cli.test_cli_actions import CHANGES
from tests.cli.test_cli_reference import COMMANDS

pytestmark = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def profiles(monkeypatch, tmp_path, own_url):
    """Write the file; own: the database; guarded: the same, protected."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text):
        (tmp_path / "queue-db.toml").write_text(text, encoding="utf-8")

    guarded = f'[profiles.guarded]\nurl = "{own_url}"\nprotected = true\n'
    write(f'[profiles.own]\nurl = "{own_url}"\n{guarded}[profiles.table]\nurl = "{own_url}"\ntable = "mine"\n')
    return write


def test_a_profile_is_a_database(ask_at, profiles, own_url, monkeypatch):
    job_id = ask_at(None, "enqueue", "mail", "k", "--profile", "own", "--json").record["id"]
    assert ask_at("sqlite:////nowhere/q.db", "jobs", "show", job_id, "--profile", "own", "--json").record["id"] == job_id
    monkeypatch.setenv("QUEUE_DB_PROFILE", "own")
    assert ask_at(None, "jobs", "show", job_id, "--json").record["id"] == job_id
    assert "/nowhere" in ask_at(None, "queues", "list", "--url", "sqlite:////nowhere/q.db", status=3).err
    monkeypatch.setenv("QUEUE_DB_PROFILE", "table")
    assert "table 'mine'" in " ".join(ask_at(None, "migrate").out.split())
    ask_at(None, "jobs", "show", job_id, "--table", "jobs")
    ask_at(None, "jobs", "show", job_id, status=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no profile 'own' in"),
        ("[profiles.other]\nurl = 'x'", "known: other"),
        ("profiles = 3", "known: none"),
        ("[profiles", "queue-db.toml: "),
        ("[profiles.own]\nprotected = true", "profile 'own' has no url"),
        ("[profiles.own]\nurl = 3", "url of profile 'own' must be a string"),
        ("[profiles.own]\nurl = 'x'\nprotected = 'yes'", "must be true or false"),
        ("[profiles.own]\nurl = 'x'\npassword = 'y'", "has 'password'; known: url, table, schema, protected"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(ask_at, profiles, text, said):
    profiles(text)
    assert said in ask_at(None, "queues", "list", "--profile", "own", status=2).err


def test_no_file_and_two_databases_are_said(ask_at, profiles, own_url, tmp_path):
    assert "give one of them" in ask_at(None, "queues", "list", "--profile", "own", "--url", own_url, status=2).err
    (tmp_path / "queue-db.toml").unlink()
    assert "there is no file" in ask_at(None, "queues", "list", "--profile", "own", status=2).err


def test_a_password_in_a_profile_is_masked(ask_at, profiles):
    profiles("[profiles.own]\nurl = 'postgresql://me:hunter2@127.0.0.1:1/q'")
    answer = ask_at(None, "queues", "list", "--profile", "own", "--json", status=3)
    assert "hunter2" not in answer.out + answer.err


def test_a_protected_profile_asks_before_a_change(ask_at, profiles, own_url, monkeypatch):
    def paused():
        with QueueDB(own_url) as db:
            return db.queue("mail").controls().paused

    guarded = ("mail", "--profile", "guarded")
    assert "Confirm with --yes" in ask_at(None, "queues", "pause", *guarded, status=2).err
    ask_at(None, "queues", "show", *guarded)
    ask_at(None, "dead", "redrive", "--all", "--dry-run", "--profile", "guarded")
    assert not paused()
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    refused = ask_at(None, "queues", "pause", *guarded, input="n\n", status=1)
    assert "This changes the protected profile 'guarded'" in refused.err
    assert not paused()
    ask_at(None, "queues", "pause", *guarded, input="y\n")
    assert paused()
    assert ask_at(None, "queues", "resume", *guarded, "--yes").err.count("protected") == 0
    assert not paused()
    asked = ask_at(None, "queues", "purge", *guarded, input="y\n").err
    assert asked.count("[y/N]") == 1, "one question is enough"
    for command in (("enqueue", "mail", "k"), ("migrate",)):
        ask_at(None, *command, "--profile", "guarded", input="n\n", status=1)


@pytest.mark.parametrize("command", sorted({command for command, _ in CHANGES} | {"enqueue", "migrate"}))
def test_each_command_that_changes_something_takes_yes(command, kind):
    parameters = COMMANDS[tuple(command.split())].params
    assert "--yes" in {option for one in parameters for option in one.opts}
