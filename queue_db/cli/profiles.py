"""Profiles: named databases in ``~/.config/queue-db.toml``. A protected one asks before a command changes something.

[profiles.production]
url = "postgresql://queue:secret@db.example.com/shop"
table = "jobs"       # also: schema
protected = true
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from queue_db.cli import output
from queue_db.database.masking import masked, secrets_in
from queue_db.errors import ConfigurationError

#: The environment variable that names a profile.
VARIABLE = "QUEUE_DB_PROFILE"

# Others than the owner may read the file.
_OTHERS = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A database of the user's, by name."""

    url: str
    table: str | None = None
    schema: str | None = None
    protected: bool = False


@dataclass(slots=True)
class _Question:
    url: str
    profile: str
    yes: bool
    answered: bool = False


# Of the running command: the options of the database that stand on the command line, and not in the environment.
_typed: ContextVar[tuple[str, ...]] = ContextVar("_typed", default=())

# Of the running command.
_question: ContextVar[_Question | None] = ContextVar("_question", default=None)


def confirm(what: str) -> None:
    """Ask before the first change of the running command, if its database is that of a protected profile. ``--yes`` answers.

    :param what: what will be changed, as in ``purge queue mail``.
    :raises ConfigurationError: there is no terminal, and no ``--yes``.
    :raises NegativeError: the answer was no.
    """
    question = _question.get()
    if question is not None and not question.answered:
        output.confirm(f"{what} in {question.url} (profile {question.profile} is protected)?", yes=question.yes)
        question.answered = True


def confirm_loss(question: str, *, yes: bool) -> None:
    """Ask before data is deleted, whatever the database. The answer is also that to :func:`confirm`.

    :raises ConfigurationError: there is no terminal, and no ``--yes``.
    :raises NegativeError: the answer was no.
    """
    of_profile = _question.get()
    output.confirm(question if of_profile is None else f"{question} The profile {of_profile.profile} is protected.", yes=yes)
    if of_profile is not None:
        of_profile.answered = True


def typed() -> tuple[str, ...]:
    """The options of the database that stand on the command line, and not in the environment."""
    return _typed.get()


@contextmanager
def used(context: Any) -> Iterator[None]:
    """Let the profile that the command line names set the options that were not given.

    ``--url`` wins over a profile; ``--profile`` wins over ``QUEUE_DB_URL``, and that over ``QUEUE_DB_PROFILE``.

    :param context: of the command, as Typer has it.
    :raises ConfigurationError: there is no such profile, or its file cannot be used.
    """
    values = context.params
    name, question = values.get("profile"), None
    by_name = context.get_parameter_source("profile").name == "COMMANDLINE" if name else False
    if name and (by_name or not values.get("url")):
        one = load(name)
        several = {option.name for option in context.command.params if getattr(option, "multiple", False)}
        for option in ("url", "table", "schema"):
            found = getattr(one, option)
            if found is not None and option in values and _source(context, option) != "COMMANDLINE":
                values[option] = [found] if option in several else found
        if one.protected:
            urls = values["url"] if "url" in several else [values["url"]]
            question = _Question(", ".join(map(masked, urls)), name, yes=bool(values.get("yes")))
    given = tuple(option for option in ("url", "profile", "table", "schema") if _source(context, option) == "COMMANDLINE")
    before, others = _question.set(question), _typed.set(given)
    try:
        yield
    finally:
        _question.reset(before)
        _typed.reset(others)


def _source(context: Any, option: str) -> str | None:
    return getattr(context.get_parameter_source(option), "name", None)


def place() -> Path:
    """The file of the profiles.

    :raises ConfigurationError: nobody knows where the user's files are.
    """
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        return (Path(base) if base else Path.home() / ".config") / "queue-db.toml"
    except RuntimeError:  # a container's user id without a home
        raise ConfigurationError(
            "a profile needs the user's home: set HOME, or XDG_CONFIG_HOME to the folder of queue-db.toml"
        ) from None


def load(name: str) -> Profile:
    """The profile with this name. Standard error has a note if others can read its passwords.

    :raises ConfigurationError: there is none, or the file cannot be read.
    """
    file = place()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = tomllib.load(opened)
    except FileNotFoundError:
        raise ConfigurationError(f'no profile {name!r}: write [profiles.{name}] and url = "…" into {file}') from None
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigurationError(f"{file} is not TOML: {error}") from None
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict) or not isinstance(profiles.get(name, {}), dict):
        raise ConfigurationError(f"{file}: profiles are tables: write [profiles.{name}]")
    if name not in profiles:
        raise ConfigurationError(f"no profile {name!r} in {file}; there are: {', '.join(sorted(profiles)) or 'none'}")
    if os.name == "posix" and mode & _OTHERS and any(_has_password(one) for one in profiles.values()):
        output.note(f"note: others can read the passwords in {file}: chmod 600 {file}")
    return _profile(profiles[name], f"{file}: [profiles.{name}]")


def _profile(given: Mapping[str, Any], where: str) -> Profile:
    kinds = {"url": str, "table": str, "schema": str, "protected": bool}
    known = [one.name for one in fields(Profile)]
    if unknown := sorted(given.keys() - set(known)):
        raise ConfigurationError(f"{where} has the unknown key {unknown[0]}; known: {', '.join(known)}")
    for key, value in given.items():
        if not isinstance(value, kinds[key]):
            raise ConfigurationError(f"{where}: {key} must be {'true or false' if kinds[key] is bool else 'a text'}")
    if not given.get("url"):
        raise ConfigurationError(f'{where} has no url: add url = "postgresql://user:password@host/name", or another one')
    return Profile(**given)


def _has_password(profile: object) -> bool:
    return isinstance(profile, dict) and isinstance(profile.get("url"), str) and bool(secrets_in(profile["url"]))
