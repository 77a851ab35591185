"""How a plain function becomes a command, and an error a message and an exit status."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from queue_db.cli import output, profiles, statuses
from queue_db.database.masking import mask, secrets_in
from queue_db.errors import ArgumentError, QueueDBError

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command that reports an error as one line on standard error and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raise :class:`typer.Exit` with the status of an error."""
        try:
            with profiles.used(ctx):
                return super().invoke(ctx)
        except QueueDBError as error:
            secrets = _secrets(ctx)
            message = mask(_message(error, self.params), secrets)
            for note in getattr(error, "__notes__", ()):
                output.note(mask(note, secrets))
            output.note(f"queue-db: {message}")
            if ctx.params.get("as_json"):
                output.record({"error": {"type": type(error).__name__, "code": error.code, "message": message}})
            raise typer.Exit(statuses.status_of(error)) from None
        except (KeyboardInterrupt, typer.Abort):
            output.note("queue-db: interrupted")
            raise typer.Exit(statuses.INTERRUPTED) from None
        except (typer.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, typer.BadParameter):
                raise
            output.note(mask(traceback.format_exc(), _secrets(ctx)))
            output.note("queue-db: this is a bug in queue-db; please report it with the lines above")
            raise typer.Exit(statuses.BUG) from None


def _secrets(ctx: Any) -> list[str]:
    return secrets_in([url for url in map(ctx.params.get, ("url", "replicas")) if url])


def _message(error: QueueDBError, parameters: Sequence[Any]) -> str:
    """The message of an error for the command line, with the option or argument of the command that it is about."""
    if isinstance(error, ArgumentError) and error.argument is not None and not error.place:
        for parameter in parameters:
            if parameter.name == error.argument:
                option = parameter.param_type_name == "option"
                return error.named(parameter.opts[0] if option else parameter.metavar.strip("[]"))
    return error.cli


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[_Function], _Function]:
    """Register a function as the command ``name`` of ``app``; the function itself stays as it is.

    A parameter whose type is a dataclass, such as :class:`queue_db.cli.options.CommonOptions`, becomes one option per field.

    :param examples: command lines for the end of the help text.
    """

    def register(function: _Function) -> _Function:
        panel = None if isinstance(app.info.name, str) else app.rich_help_panel
        epilog = "\n\n".join(["Examples:", *examples])
        text = unwrapped(function.__doc__ or "")
        app.command(name, cls=Command, help=text, epilog=epilog, rich_help_panel=panel)(_expanded(function))
        return function

    return register


def unwrapped(text: str) -> str:
    """Return a help text with one line per paragraph, so that it is wrapped at the width of the terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))


def _expanded(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function with one parameter per option: Typer reads options from a signature and knows no bundles."""
    bundles: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature(function, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            bundles[parameter.name] = parameter.annotation
            parameters += _options(parameter.annotation)
        else:
            parameters.append(parameter)

    asks = _asks(parameters)

    def run(**values: Any) -> None:
        if asks:
            del values["yes"]
        for name, bundle in bundles.items():
            values[name] = bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})
        function(**values)

    expanded: Any = run
    expanded.__signature__ = Signature([*parameters, _YES] if asks else parameters)
    return run


# Of commands that ask nothing themselves: a protected profile does.
_YES = Parameter(
    "yes",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--yes", "-y", hidden=True, help="Do not ask.")],
)


def _asks(parameters: Sequence[Parameter]) -> bool:
    """Whether a command with these parameters may be asked about a profile, and has no option that answers."""
    names = {parameter.name for parameter in parameters}
    return "profile" in names and "yes" not in names


def _options(bundle: Any) -> Iterator[Parameter]:
    types = get_type_hints(bundle, include_extras=True)
    for field in fields(bundle):
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=types[field.name])


def _default(field: Field[Any]) -> Any:
    return Parameter.empty if field.default is MISSING else field.default
