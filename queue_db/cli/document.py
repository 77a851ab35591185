"""The reference of the command line, from the commands themselves: ``python -m queue_db.cli.document > docs/cli.md``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from queue_db.cli.app import app
from queue_db.cli.statuses import MEANINGS

_ENVIRONMENT = "Environment variable: "


def reference() -> str:
    """The text of ``docs/cli.md``."""
    root: Any = typer.main.get_command(app)
    lines = [
        "# The command line",
        "",
        "<!-- Written by python -m queue_db.cli.document; change the help texts in queue_db/cli/ instead. -->",
        "",
        '`queue-db`, also `python -m queue_db`, comes with `pip install "queue-db[cli]"`.',
        "",
        *_paragraphs(root.help),
        "Errors are one sentence on standard error. Passwords are never printed: `***` stands for them.",
        "",
        "## Exit statuses",
        "",
        "| status | meaning |",
        "| ---: | --- |",
        *(f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()),
        "",
    ]
    for path, command in _commands(root, "queue-db"):
        lines += _section(path, command)
    return "\n".join(lines).rstrip() + "\n"


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _section(path: str, command: Any) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([path, *(_usage(argument) for argument in arguments), "[OPTIONS]"])
    lines = [f"## {path}", "", "```", usage, "```", "", *_paragraphs(command.help)]
    if arguments:
        lines += ["| argument | |", "| --- | --- |", *(f"| `{_usage(one)}` | {_cell(one.help)} |" for one in arguments), ""]
    lines += ["| option | | default |", "| --- | --- | --- |", *(_option(one) for one in options), ""]
    heading, _, examples = (command.epilog or "").partition("\n\n")
    if examples:
        lines += [heading, "", "```bash", *examples.split("\n\n"), "```", ""]
    return lines


def _usage(argument: Any) -> str:
    name = str(argument.metavar or argument.name)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if not option.is_flag:
        names += f" {_cell(option.metavar)}"
    default = "" if option.is_flag else _default(option)
    help_text = _cell(option.help)
    if option.envvar:
        help_text += f" {_ENVIRONMENT}`{option.envvar}`."
    return f"| {names} | {help_text} | {default} |"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):  # of an option that is None when it is not given
        return f"`{option.show_default}`"
    return "" if option.default in (None, [], ()) else f"`{getattr(option.default, 'value', option.default)}`"


def _paragraphs(text: str | None) -> list[str]:
    found = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        found += [" ".join(paragraph.split()), ""]
    return found


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
