"""The reference of the command line, generated from the commands.

The documentation site has it as a page (tools/docs_site.py); ``python -m queue_db.cli.document`` prints it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

from queue_db.cli.app import app
from queue_db.cli.statuses import MEANINGS

_ENVIRONMENT = "Environment variable: "


def reference() -> str:
    """Return the page, as Markdown."""
    root: Any = typer.main.get_command(app)
    found = list(commands(root, "queue-db"))
    common = shared_options([command for _, command in found])
    lines = [
        "# The command line",
        "",
        '`queue-db`, also `python -m queue_db`, comes with `pip install "queue-db[cli]"`.',
        "",
        *_paragraphs(root.help),
        "An error is one line on standard error. Passwords are printed as `***`.",
        "",
        "## Exit statuses",
        "",
        "| status | meaning |",
        "| ---: | --- |",
        *(f"| {status} | {meaning} |" for status, meaning in MEANINGS.items()),
        "",
        "## Options of every command",
        "",
        *_table(common),
    ]
    for path, command in found:
        lines += _section(path, command, common)
    return "\n".join(lines).rstrip() + "\n"


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each command of ``group`` and of its groups, after what one types for it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def shared_options(found: list[Any]) -> list[str]:
    """Return the rows of the options that more than half of the commands have in the same words."""
    counted = Counter(row for command in found for row in _options(command))
    return [row for row, times in counted.items() if times > len(found) / 2]


def _section(path: str, command: Any, common: list[str]) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([path, *(_usage(argument) for argument in arguments), "[OPTIONS]"])
    lines = [f"## {path}", "", "```", usage, "```", "", *_paragraphs(command.help)]
    if arguments:
        lines += ["| argument | |", "| --- | --- |", *(f"| `{_usage(one)}` | {_cell(one.help)} |" for one in arguments), ""]
    options = _options(command)
    lines += _table([row for row in options if row not in common])
    names = {row.split("`")[1] for row in options}
    if missing := [name for row in common if (name := row.split("`")[1]) not in names]:
        lines += [f"Without {' and '.join(f'`{name}`' for name in missing)}.", ""]
    heading, _, examples = (command.epilog or "").partition("\n\n")
    if examples:
        lines += [heading, "", "```bash", *examples.split("\n\n"), "```", ""]
    return lines


def _options(command: Any) -> list[str]:
    return [_option(parameter) for parameter in command.params if parameter.param_type_name == "option" and not parameter.hidden]


def _table(options: list[str]) -> list[str]:
    return ["| option | | default |", "| --- | --- | --- |", *options, ""] if options else []


def _usage(argument: Any) -> str:
    name = str(argument.metavar or argument.name)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" {_cell(option.metavar)}"
    default = _default(option)
    if option.is_flag:  # one that has no opposite is off by default
        chosen = option.opts if option.default else option.secondary_opts
        default = f"`{chosen[0]}`" if option.secondary_opts else ""
    help_text = _cell(option.help)
    if option.envvar:
        help_text += f" {_ENVIRONMENT}`{option.envvar}`."
    return f"| {names} | {help_text} | {default} |"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):  # of an option whose default is None
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
