"""Databases by name, and the question before a change of a protected one."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import ANY

import pytest

from queue_db import QueueDB
from tests.cli.harness import Ask
from tests.cli.test_cli_actions import EXEMPT, LOOKS
from tests.cli.test_cli_reference import COMMANDS
from tests.operations.test_three_sides import SIDES, Names, content, entries, filled, prepared_in

SECRET = "not-for-everyone"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "queue-db.toml"


@pytest.fixture
def databases(file: Path, tmp_path: Path) -> tuple[str, str]:
    """A database that is protected, with its tables in a schema of names of its own, and one that is not."""
    urls = f"sqlite:///{tmp_path}/production.db", f"sqlite:///{tmp_path}/development.db"
    file.write_text(f"""
[profiles.production]
url = "{urls[0]}"
table = "shop"
protected = true

[profiles.development]
url = "{urls[1]}"
""")
    for url, table in zip(urls, ("shop", "jobs"), strict=True):
        with QueueDB(url, table=table) as db:
            db.migrate()
    return urls


def waiting(url: str, table: str = "jobs") -> int:
    with QueueDB(url, table=table) as db:
        return len(db.queue("mail").peek(limit=10))


def test_a_profile_names_the_database_and_its_tables(ask_at: Ask, databases: tuple[str, str]) -> None:
    ask_at(None, "enqueue", "mail", "a", "--profile", "development")
    ask_at(None, "enqueue", "mail", "a", "--profile", "production", "--yes")
    assert (waiting(databases[1]), waiting(databases[0], "shop")) == (1, 1)


def test_which_of_several_names_of_a_database_wins(
    ask_at: Ask, databases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with QueueDB(other) as db:
        db.migrate()
    ask_at(other, "enqueue", "mail", "a", "--profile", "development")  # the option, over QUEUE_DB_URL
    assert (waiting(databases[1]), waiting(other)) == (1, 0)
    monkeypatch.setenv("QUEUE_DB_PROFILE", "development")
    ask_at(None, "enqueue", "mail", "a")
    ask_at(other, "enqueue", "mail", "a")  # QUEUE_DB_URL is --url
    ask_at(None, "enqueue", "mail", "a", "--url", other)
    ask_at(None, "enqueue", "mail", "a", "--url", other, "--profile", "development")
    assert (waiting(databases[1]), waiting(other)) == (2, 3)
    monkeypatch.setenv("QUEUE_DB_PROFILE", "nowhere")
    ask_at(None, "enqueue", "mail", "a", "--url", other)
    ask_at(None, "enqueue", "mail", "a", status=2)


def changing(names: Names) -> set[str]:
    """Calls of the commands that change something: each operation as its sides have it, and what is no operation."""
    calls = {filled(sides.command, names) for sides in SIDES} | {f"{command} {given}" for command, given in EXEMPT}
    commands = {" ".join(path): command for path, command in COMMANDS.items()}
    looking = {name for name in commands if not any(call.startswith(f"{name} ") or call == name for call in calls)}
    assert looking == {command for command, _ in LOOKS}, "the others change nothing, which is tested with them"
    without = {name for name, command in commands.items() if all(one.name != "profile" for one in command.params)}
    # A service is asked about in a test of its own: it would not end.
    return {call for call in calls if call.split()[0] not in without | {"serve"}}


def test_a_protected_profile_asks_before_each_change(
    ask_at: Ask, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/production.db"
    file.write_text(f'[profiles.production]\nurl = "{url}"\nprotected = true\n')
    names = prepared_in(url)
    monkeypatch.setenv("QUEUE_DB_PROFILE", "production")
    before = content(url)
    asked = re.compile("profile production is protected.*Confirm with --yes")
    answers = {call: ask_at(None, *call.removesuffix(" --yes").split(), status=ANY).err for call in changing(names)}
    assert {call: answer for call, answer in answers.items() if not asked.search(answer)} == {}
    assert (content(url), entries(url)) == (before, [])


def test_the_answer_to_a_protected_profile(ask_at: Ask, databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DB_PROFILE", "production")
    monkeypatch.setattr("queue_db.cli.output.is_interactive", lambda: True)
    assert "nothing was changed" in ask_at(None, "queues", "pause", "mail", input="n\n", status=1).err
    assert f"pause queue mail in {databases[0]} (profile" in ask_at(None, "queues", "pause", "mail", input="y\n").err
    assert "(profile" not in ask_at(None, "queues", "resume", "mail", "-y").err
    with QueueDB(databases[0], table="shop") as db:
        assert [one.action for one in db.actions.list()] == ["resume", "pause"]
    assert (
        "limit queue mail: rate 7, none of the others, in"
        in ask_at(None, "queues", "limit", "mail", "--rate", "7", "--none", input="n\n", status=1).err
    )
    ask_at(None, "queues", "pause", "mail", "--profile", "development")  # of one that is not protected


def test_a_comparison_of_a_protected_profile_is_asked_about(
    ask_at: Ask, databases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_DB_PROFILE", "production")
    refused = ask_at(None, "compare", "--quick", "--report", tmp_path / "report", status=2).err
    assert f"in {databases[0]} (profile production is protected)" in refused


@pytest.mark.parametrize(
    "command",
    [
        "queues purge mail",
        "dead purge --all",
        "feeds purge orders",
        "feeds remove orders",
        "feeds restored",
        "routes reset seen",
        "migrate --revision base",
    ],
)
def test_one_question_before_data_is_deleted(
    ask_at: Ask, databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with QueueDB(databases[0], table="shop") as db:
        db.feed("orders").publish("paid")
        db.routes.set("seen", count="seen", by="topic")
        db.routes.run("seen", "reading")
    monkeypatch.setattr("queue_db.cli.output.is_interactive", lambda: True)
    asked = ask_at(None, *command.split(), "--profile", "production", input="y\n").err
    assert (asked.count("[y/N]"), asked.count("The profile production is protected.")) == (1, 1)


@pytest.mark.parametrize(
    "command", ["streams complete gone", "streams release gone", "routes reset gone", "feeds purge gone", "feeds remove gone"]
)
def test_no_question_about_what_is_not_there(ask_at: Ask, databases: tuple[str, str], command: str) -> None:
    error = ask_at(None, *command.split(), "--profile", "production", "--json", status=1).record["error"]
    assert error["code"] == f"no_such_{command.split(maxsplit=1)[0].replace('routes', 'counter').removesuffix('s')}"


@pytest.mark.parametrize("command", ["prune", "dead redrive --all", "dead purge --all", "queues purge mail"])
def test_nothing_is_drawn_over_a_question(
    ask_at: Ask, databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    drawn: list[str] = []

    @contextmanager
    def busy(what: str) -> Iterator[None]:
        drawn.append(what)
        yield
        drawn.clear()

    def confirm(question: str, *, yes: bool) -> None:
        asked.append((question, yes, list(drawn)))

    asked: list[tuple[str, bool, list[str]]] = []
    monkeypatch.setattr("queue_db.cli.output.busy", busy)
    monkeypatch.setattr("queue_db.cli.output.confirm", confirm)
    ask_at(None, *command.split(), "--profile", "production")
    assert [during for _, _, during in asked] == [[]]


def test_a_service_that_allows_changes_is_asked_about(ask_at: Ask, databases: tuple[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # no service starts here
        serve = ["serve", "--port", taken.getsockname()[1], "--profile"]
        refused = ask_at(None, *serve, "production", status=2).err
        assert f"serve: changes will be allowed in {databases[0]} (profile production is protected)" in refused
        for given in (["production", "--yes"], ["production", "--read-only"], ["development"]):
            assert "cannot listen" in ask_at(None, *serve, *given, status=2).err


@pytest.mark.parametrize(("command", "asked"), [("serve --port 0", "the file will be created"), ("migrate", "create the file")])
def test_no_file_is_made_before_the_answer(ask_at: Ask, file: Path, tmp_path: Path, command: str, asked: str) -> None:
    file.write_text(f'[profiles.new]\nurl = "sqlite:///{tmp_path}/new.db"\nprotected = true\n')
    refused = ask_at(None, *command.split(), "--profile", "new", status=2).err
    assert asked in refused
    assert "new.db (profile new is protected)" in refused
    assert not (tmp_path / "new.db").exists()


@pytest.mark.skipif(os.name != "posix", reason="the file has no mode")
def test_a_file_with_a_password_that_others_can_read(ask_at: Ask, file: Path) -> None:
    file.write_text(f'[profiles.far]\nurl = "postgresql://me:{SECRET}@127.0.0.1:1/shop"\nprotected = true\n')
    file.chmod(0o644)
    noted = ask_at(None, "queues", "list", "--profile", "far", status=3)
    assert f"chmod 600 {file}" in noted.err
    assert SECRET not in noted.err + noted.out
    file.chmod(0o600)
    assert "chmod" not in ask_at(None, "queues", "list", "--profile", "far", status=3).err
    asked = ask_at(None, "work", "mail", "--exec", "true", "--profile", "far", status=2)
    assert (":***@" in asked.err, SECRET in asked.err + asked.out) == (True, False)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, r"no profile 'x': write \[profiles.x\] and url = .* into {file}"),
        ("[profiles.y]\nurl = 'sqlite://'", "no profile 'x' in {file}; there are: y"),
        ("url = ", "{file} is not TOML: "),
        ("profiles = 5", r"{file}: profiles are tables: write \[profiles.x\]"),
        ("[profiles.x]\ntable = 'jobs'", r"{file}: \[profiles.x\] has no url: add url = "),
        ("[profiles.x]\nurl = 5", r"{file}: \[profiles.x\]: url must be a text"),
        ("[profiles.x]\nurl = 'sqlite://'\nprotected = 'yes'", r"{file}: \[profiles.x\]: protected must be true or false"),
        ("[profiles.x]\nurll = 'sqlite://'", r"{file}: \[profiles.x\] has the unknown key urll; known: url, table"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_the_fix(ask_at: Ask, file: Path, content: str | None, what: str) -> None:
    if content is not None:
        file.write_text(content)
    error = ask_at(None, "queues", "list", "--profile", "x", "--json", status=2).record["error"]
    assert error["code"] == "configuration"
    assert re.search(what.replace("{file}", re.escape(str(file))), error["message"]), error["message"]
