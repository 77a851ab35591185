"""Each transaction is given its name as a constant. Nothing reads a name from a function: a renamed function changes no error."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import queue_db

PACKAGE = Path(queue_db.__file__).parent

#: Packages beside the kernel, and the worker, which takes kinds from the functions that handle them.
BESIDE = {"aio", "cli", "compare", "feeds", "instrumentation", "monitoring", "routes", "service", "spark", "testing", "worker"}

#: What is a class where its name is read.
OF_CLASSES = {"cls", "codec", "given", "hint", "protocol", "returned"}


@lru_cache(maxsize=1)
def trees() -> Mapping[Path, ast.Module]:
    """The files of the package."""
    return {file.relative_to(PACKAGE): ast.parse(file.read_text(encoding="utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}


def is_nameless(call: ast.expr) -> bool:
    """Whether this is ``Run(…)`` without a name."""
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Run":
        return False
    return not call.args and "name" not in {keyword.arg for keyword in call.keywords}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """The calls of a method of ``core`` that runs a function in a transaction, each with its place."""
    for file, tree in trees().items():
        for call in ast.walk(tree):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in {"read", "write", "run", "commit", "run_reporting_deaths"}
                and ast.unparse(call.func.value).endswith("core")
                and len(call.args) > 1
            ):
                yield f"{file}:{call.lineno}", call


def runs(name: str, function: ast.expr) -> bool:
    """Whether the name ends like that of the function, where the function is reached by its module: ``settle.lock``."""
    return not isinstance(function, ast.Attribute) or name.rpartition(".")[2] == function.attr


def test_a_function_of_a_store_runs_under_its_own_name() -> None:
    wrong, read = [], 0
    for place, call in calls():
        how, function = call.args[:2]
        read += 1
        texts = [part.value for part in ast.walk(how) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if call.func.attr in {"read", "write"} and not texts and not isinstance(how, ast.Name):  # type: ignore[attr-defined]
            wrong.append(f"{place} {ast.unparse(call)}")
        if texts and "." in texts[-1] and not runs(texts[-1], function):
            wrong.append(f"{place} {ast.unparse(call)}")
    assert read > 150
    assert wrong == []


def test_no_transaction_is_without_a_name() -> None:
    """A constant for several functions, such as ``ONCE``, has no name: it runs as ``ONCE.named(…)``."""
    nameless = {
        node.targets[0].id
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_nameless(node.value)
    }
    assert "ONCE" in nameless
    hows = [(place, call.args[0]) for place, call in calls()]
    assert [place for place, how in hows if is_nameless(how) or (isinstance(how, ast.Name) and how.id in nameless)] == []


def test_the_kernel_reads_no_name_from_a_function() -> None:
    read = []
    for file, tree in trees().items():
        for node in ast.walk(tree) if file.parts[0] not in BESIDE else ():
            if isinstance(node, ast.Attribute) and node.attr in {"__name__", "__qualname__", "co_name"}:
                of = ast.unparse(node.value)
                if not of.startswith("type(") and of not in OF_CLASSES:
                    read.append(f"{file}:{node.lineno} {ast.unparse(node)}")
    assert read == []
