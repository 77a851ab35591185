"""Help texts: complete, true, and the documentation made of them."""

import importlib
import pkgutil
import re
import shlex
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.markup import render

from queue_db import cli
from queue_db.cli import statuses
from queue_db.cli.app import app
from queue_db.cli.document import commands, reference
from queue_db.worker import Worker

ROOT: Any = typer.main.get_command(app)
COMMANDS = {tuple(path.split()[1:]): command for path, command in commands(ROOT, "queue-db")}


def examples(command: Any) -> list[str]:
    heading, *found = command.epilog.split("\n\n")
    assert heading == "Examples:"
    return found


def test_the_document_has_each_command_and_each_option_that_is_not_common():
    head, *sections = reference().split("\n## queue-db ")
    assert [tuple(section.partition("\n")[0].split()) for section in sections] == list(COMMANDS)
    for section, command in zip(sections, COMMANDS.values(), strict=True):
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            names = [f"| `{name}`" for name in parameter.opts[:1]] if parameter.param_type_name == "option" else ["| argument | |"]
            assert [name for name in names if name not in head and name not in section] == []
        assert [example for example in examples(command) if example not in section] == []


def test_the_document_has_common_options_once():
    text = reference()
    for option in ("--table", "--schema"):
        (row,) = re.findall(rf"^\| `{option}`.*$", text, re.MULTILINE)
        assert text.index("\n## Options of every command\n") < text.index(row) < text.index("\n## queue-db ")
    compare = text.split("\n## queue-db compare\n")[1].split("\n## ")[0]
    assert re.search("^Without .*`--table` and `--schema`", compare, re.MULTILINE)


def test_every_module_with_commands_is_part_of_the_program():
    modules = [importlib.import_module(one.name) for one in pkgutil.iter_modules(cli.__path__, "queue_db.cli.")]
    apps = [one.app for one in modules if isinstance(getattr(one, "app", None), typer.Typer) and one.app is not app]
    assert len(apps) > 10
    there = [group.typer_instance for group in app.registered_groups]
    missing = [one.__name__ for one in modules if getattr(one, "app", app) is not app and one.app not in there]
    assert missing == [], "add them to the loop in queue_db/cli/app.py"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(ask_at, path):
    command = COMMANDS[path]
    answer = ask_at(None, *path, "--help")
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name
    # A comparison makes tables of its own.
    for option in ("--url", "--json") if path == ("compare",) else ("--url", "--table", "--schema", "--json"):
        assert option in answer.out
    for example in examples(command):
        assert example.split()[0] in answer.out


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_word_of_a_help_text_is_taken_for_markup(path):
    for parameter in COMMANDS[path].params:
        assert render(parameter.help).plain == parameter.help


def test_the_help_of_work_shows_the_defaults_of_a_worker(ask_at):
    help_text = ask_at(None, "work", "--help").out
    defaults = {name: parameter.default for name, parameter in signature(Worker).parameters.items()} | {"concurrency": 10}
    without = {"exit_when_stuck", "max_jobs", "max_memory"}
    options = [option for option in COMMANDS["work",].params if option.name in defaults and option.name not in without]
    assert len(options) == 10
    for option in options:
        default = defaults[option.name]
        assert option.show_default == (default if isinstance(default, str) else f"{default:g}"), option.name
        assert f"[default: ({option.show_default})]" in help_text, option.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_example_can_be_typed(path):
    assert examples(COMMANDS[path])
    for example in examples(COMMANDS[path]):
        words = shlex.split(example)
        words = words[words.index("queue-db") + 1 :]
        for stop in ("|", "||", ">"):
            words = words[: words.index(stop)] if stop in words else words
        assert tuple(words[: len(path)]) == path
        COMMANDS[path].make_context("queue-db", words[len(path) :])


def test_messages_and_pages_name_commands_that_are_there():
    package = Path(cli.__file__).parents[1]
    texts = [path.read_text(encoding="utf-8") for suffix in ("py", "jinja") for path in package.rglob(f"*.{suffix}")]
    texts.append((package.parent / "docker-compose.yml").read_text(encoding="utf-8"))
    found = [
        words for text in texts for words in re.findall(r"(?:[`\"'>(]|run |CMD-SHELL\", \")queue-db ([a-z]+)(?: ([a-z]+))?", text)
    ]
    groups = {path[0] for path in COMMANDS if len(path) > 1}
    named = {(first, second) if first in groups and second else (first,) for first, second in found}
    assert len(named) > len(groups)
    assert named - COMMANDS.keys() - {(one,) for one in groups} == set()


def test_the_main_help_lists_commands_and_statuses(ask_at):
    help_text = ask_at(None, "--help").out
    for path in COMMANDS:
        assert path[0] in help_text
    for status in statuses.MEANINGS:
        assert f"{status}: " in help_text


def test_version(ask_at):
    from queue_db import __version__

    assert ask_at(None, "--version").out == f"queue-db {__version__}\n"
