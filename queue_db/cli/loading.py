"""Importing the object that ``MODULE:NAME`` names, from the current folder first."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from queue_db.errors import ArgumentError, ConfigurationError


def load(option: str, name: str) -> Any:
    """Import ``MODULE:NAME``; ``NAME`` may be dotted.

    :param option: the option or argument, for error messages.
    :raises ArgumentError: ``name`` is not of this form.
    :raises ConfigurationError: the import fails, or the module has no such attribute.
    """
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise ArgumentError(f"{option} {name!r}: must be MODULE:NAME, for example shop.mail:send")
    found: Any = import_module(f"{option} {name!r}", module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"{option} {name!r}: module {module_name} has no attribute {attribute}") from None
    return found


def import_module(option: str, name: str) -> ModuleType:
    """Import a module, from the current folder first.

    :param option: the option and its value, for error messages.
    :raises ConfigurationError: the import fails; a note has the traceback, without the frames of the import machinery.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:
        frames = _user_frames(error)
        at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            at += f"; it is not in {folder}, nor installed: run the command in the folder of the module, or set PYTHONPATH to it"
        problem = ConfigurationError(f"{option}: importing {name} failed: {type(error).__name__}: {error}{at}")
        if frames or isinstance(error, SyntaxError):
            lines = traceback.format_list(frames) + traceback.format_exception_only(error)
            problem.add_note("Traceback (most recent call last):\n" + "".join(lines).rstrip())
        raise problem from error


def _user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    ours = str(Path(__file__).resolve())
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and frame.filename not in (ours, importlib.__file__)
    ]
