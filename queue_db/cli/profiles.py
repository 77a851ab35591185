"""Profiles: databases with names, in ``~/.config/queue-db.toml``, so that no URL is typed, and no wrong one."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queue_db.errors import ArgumentError, ConfigurationError

#: The environment variable with the name of the profile.
PROFILE_VARIABLE = "QUEUE_DB_PROFILE"

_KEYS = {"url": str, "table": str, "schema": str, "protected": bool}


@dataclass(frozen=True, slots=True)
class Profile:
    """A database with a name."""

    name: str
    url: str
    table: str | None = None
    schema: str | None = None
    protected: bool = False  #: each change asks first


def file() -> Path:
    """The file with the profiles."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "queue-db.toml"


def load(name: str) -> Profile:
    """The profile with this name.

    :raises ArgumentError: there is no such profile.
    :raises ConfigurationError: the file cannot be read, or has something else.
    """
    path = file()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArgumentError(f"profile {name!r}: there is no file {path} with profiles") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    known = content.get("profiles")
    if not isinstance(known, dict) or name not in known:
        names = ", ".join(sorted(known)) if isinstance(known, dict) and known else "none"
        raise ArgumentError(f"there is no profile {name!r} in {path}; known: {names}")
    return Profile(name, **_checked(path, name, known[name]))


def _checked(path: Path, name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or "url" not in values:
        raise ConfigurationError(f'{path}: profile {name!r} has no url: [profiles.{name}] url = "postgresql://host/name"')
    for key, value in values.items():
        if key not in _KEYS:
            raise ConfigurationError(f"{path}: profile {name!r} has {key!r}; known: {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            must = "true or false" if _KEYS[key] is bool else "a string"
            raise ConfigurationError(f"{path}: {key} of profile {name!r} must be {must}")
    return values
