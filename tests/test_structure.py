"""What can be counted of a kernel that is read in a day: short files and functions, no file that only one other reads, no circles.

The sets below have what is longer for now; what is no longer needed in them fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "queue_db"

#: What is no part of the kernel.
BESIDE = {
    *("administration", "fairness", "graphs", "groups", "limits", "schedules", "dead", "feeds", "routes", "spark", "service"),
    *("compare", "monitoring", "operations", "processes", "steps", "tasks", "tokens"),
    *("testing", "cli", "instrumentation", "aio", "contrib"),
}

LINES, FUNCTION, METHODS, SMALL = 500, 50, 12, 40

LONG_FILES: set[str] = set()

LONG_FUNCTIONS: set[str] = set()

WIDE_CLASSES = {
    # Façades.
    "db.QueueDB",
    "leased_job.LeasedJob",
    "queue.Queue",
}

SMALL_WITH_ONE_READER: set[str] = set()


@lru_cache(maxsize=1)
def modules() -> Mapping[str, ast.Module]:
    """The modules of the package by name: ``store.settle``; a package is its ``__init__``, and the whole one is empty."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def kernel() -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in modules().items() if name.partition(".")[0] not in BESIDE)


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def functions(name: str, tree: ast.AST) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{name}.{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield inside, node
            yield from functions(inside, node)


def methods(of: ast.ClassDef) -> int:
    """Public methods; properties and signatures for type checkers do not count."""
    plain = (node for node in of.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_")
    unlike = ("overload", "property", "setter", "cached_property")
    return sum(not any(ast.unparse(one).rpartition(".")[2] in unlike for one in node.decorator_list) for node in plain)


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported when this one runs, also late; not those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "queue_db":
            origin = node.module.removeprefix("queue_db").lstrip(".")
            for alias in node.names:
                inner = f"{origin}.{alias.name}".lstrip(".")
                yield inner if inner in modules() else origin
        yield from imports(node)


def test_files_are_short() -> None:
    long = {name for name, tree in kernel() if tree.body and (tree.body[-1].end_lineno or 0) > LINES}
    assert long == LONG_FILES


def test_functions_are_short() -> None:
    long = {place for name, tree in kernel() for place, node in functions(name, tree) if lines(node) > FUNCTION}
    assert long == LONG_FUNCTIONS


def test_classes_have_few_public_methods() -> None:
    classes = ((name, node) for name, tree in kernel() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert {f"{name}.{node.name}" for name, node in classes if methods(node) > METHODS} == WIDE_CLASSES


def test_no_small_file_has_a_single_reader() -> None:
    readers: dict[str, set[str]] = {}
    for name, tree in modules().items():
        for read in imports(tree):
            readers.setdefault(read, set()).add(name)
    small = {name for name, tree in kernel() if tree.body and (tree.body[-1].end_lineno or 0) < SMALL}
    assert {name for name in small if len(readers.get(name, ())) == 1} == SMALL_WITH_ONE_READER


def test_no_files_import_each_other_in_a_circle() -> None:
    edges = {name: set(imports(tree)) for name, tree in modules().items()}
    # Take away what imports nothing that is left, until only circles and what leads to them are.
    while done := {name for name, others in edges.items() if not others & edges.keys()}:
        edges = {name: others for name, others in edges.items() if name not in done}
    assert edges == {}


def test_adapters_import_only_what_the_reference_documents() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (PACKAGE.parent / "docs" / "api").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    adapters = {name: tree for name, tree in modules().items() if name.startswith("contrib.")}
    others = {
        f"{name}: {imported}"
        for name, tree in adapters.items()
        for imported in imported_names(tree)
        if not imported.startswith(f"queue_db.contrib.{name.split('.')[1]}")
        and imported not in documented
        and imported.rpartition(".")[0] not in {"queue_db", *documented}
    }
    assert others == set()


def imported_names(tree: ast.Module) -> Iterator[str]:
    """What is imported from the package, also late and for type checkers: ``queue_db.worker.Worker``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "queue_db":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("queue_db."))
