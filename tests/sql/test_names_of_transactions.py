"""Each transaction is given its name as a constant. Nothing reads a name from a function: a renamed function changes no error."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import queue_db

PACKAGE = Path(queue_db.__file__).parent

#: What tells the name of a function: attributes, of frames and code too, and functions that find frames.
NAMES = {
    "__name__",
    "__qualname__",
    "co_name",
    "co_qualname",
    "f_code",
    "f_globals",
    "walk_tb",
    "extract_tb",
    "walk_stack",
    "_getframe",
}

#: Functions of ``inspect`` that tell no name.
TELLS_NO_NAME = {
    "signature",
    "Signature",
    "Parameter",
    "cleandoc",
    "isroutine",
    "isclass",
    "isfunction",
    "isbuiltin",
    "iscoroutinefunction",
    "isasyncgenfunction",
    "isgeneratorfunction",
}

#: Reads of names that name no transaction, by file. ``type(…).__name__``, the class of a value in a message, is not listed.
OTHER_READS = {
    "arguments.py": {"given.__name__", "protocol.__name__"},  # classes in messages
    "codecs.py": {"codec.__name__", "hint.__name__", "'__name__'"},  # classes in messages; the name of a model
    "errors.py": {"cls.__name__"},  # a class in a message
    "instrumentation/messaging.py": {"LeaseLostError.__qualname__"},  # the class of an error
    "instrumentation/watching.py": {"of.__name__"},  # a class, whose subclass has the same name
    "outcomes.py": {"returned.__name__"},  # a class in a message
    "cli/loading.py": {"traceback.extract_tb"},  # the line of a user's module that fails
    "contrib/django/databases.py": {"connection.Database.__name__"},  # which driver stands for mysqlclient
    "contrib/django/results.py": {"kind.__qualname__"},  # the class of an error
    "database/connections.py": {"traceback.walk_tb"},  # whose frames hold a cursor
    "database/driver_connections.py": {"kind.__name__"},  # a class of dialects
    "dialects/transactions.py": {"'__name__'", "frame.f_globals", "traceback.walk_tb"},  # whether an error came within the driver
    "processes/main.py": {"'__qualname__'"},  # where another process finds the handler
    "service/api/settlements.py": {"RemoteError.__name__"},  # a class
    "tasks/annotations.py": {"inspect.unwrap", "origin.__name__"},  # the function of an annotation, and a class
    "tasks/coding.py": {"cls.__name__"},  # a class in a message
    "tasks/payloads.py": {"read.__name__", "made.__qualname__", "function.__qualname__"},  # the model of a task in messages, and
    # where another process finds the handler
    "tasks/registry.py": {"'__name__'"},  # the kind of a task's jobs: documented
    "worker/executor.py": {"from inspect import CORO_CREATED, getcoroutinestate"},  # whether a coroutine has begun
    "worker/handlers.py": {"kind.__name__", "one.__name__", "'__name__'"},  # classes, and a function given in place of a kind
}


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


def places(tree: ast.Module) -> Mapping[str, str]:
    """What a file imports from modules, by its name there: ``spans`` is ``queue_db.feeds.store.spans``."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def constants(tree: ast.Module) -> Mapping[str, ast.expr]:
    """The values of a file's constants."""
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def named(name: str, function: ast.expr, imported: Mapping[str, str]) -> bool:
    """Whether a name with a dot is that of the function: of a slice or a module of the store, then its own.

    A function that an object has, such as ``ordering.rank``, has no place to compare.
    """
    room, _, own = name.rpartition(".")
    if isinstance(function, ast.Attribute):
        place, attribute = imported.get(ast.unparse(function.value), ""), function.attr
    elif isinstance(function, ast.Call) and ast.unparse(function.func) == "load":
        place, attribute = (ast.literal_eval(part) for part in function.args)
    else:
        return False
    return own == attribute and (not place or room in place.split("."))


def test_a_function_of_a_store_runs_under_its_own_name() -> None:
    wrong, read, whole = [], 0, 0
    for place, call in calls():
        how, function = call.args[:2]
        tree = trees()[Path(place.partition(":")[0])]
        if isinstance(how, ast.Name):
            how = constants(tree).get(how.id, how)
        read += 1
        texts = [part.value for part in ast.walk(how) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if call.func.attr in {"read", "write"} and not texts and not isinstance(how, ast.Name):  # type: ignore[attr-defined]
            wrong.append(f"{place} {ast.unparse(call)}")
        if texts and "." in texts[-1]:
            whole += 1
            if not named(texts[-1], function, places(tree)):
                wrong.append(f"{place} {ast.unparse(call)}")
    assert read > 150
    assert whole > 100
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


def test_no_name_is_read_from_a_function() -> None:
    found: dict[str, set[str]] = {}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                of = ast.unparse(node.value)
                told = (node.attr in NAMES and not of.startswith("type(")) or (of == "inspect" and node.attr not in TELLS_NO_NAME)
            elif isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
                told = not names.isdisjoint(NAMES) or (node.module == "inspect" and not names <= TELLS_NO_NAME)
            else:
                told = isinstance(node, ast.Constant) and node.value in NAMES
            if told:
                found.setdefault(str(file), set()).add(ast.unparse(node))
    assert found == OTHER_READS
