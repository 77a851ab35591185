"""A transaction has the name of its verb as a constant, or that of a function of a store: no inner function gives it one."""

from __future__ import annotations

import ast
from pathlib import Path

import queue_db
from queue_db.core import name_of
from queue_db.groups.store import groups

PACKAGE = Path(queue_db.__file__).parent


def test_a_function_of_the_store_gives_its_name() -> None:
    assert name_of(groups.repair) == "groups.repair"


def test_no_other_function_does() -> None:
    assert name_of(test_no_other_function_does) == "transaction"


def test_what_is_no_function_of_a_store_runs_with_a_name() -> None:
    """``core.read(_inner, …)`` would be called "transaction" in errors and metrics."""
    nameless = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
                continue
            if call.func.attr in {"read", "write", "put"} and ast.unparse(call.func.value).endswith("core"):
                function = call.args[0]
                # A function of a store is reached by its module: settle.lock.
                if not isinstance(function, ast.Attribute) and file.name != "core.py":
                    nameless.append(f"{file.relative_to(PACKAGE)}:{call.lineno} {ast.unparse(function)}")
    assert nameless == []
