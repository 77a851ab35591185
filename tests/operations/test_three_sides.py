"""An operation is the same from the command line, by REST and in the dashboard: the change and one entry, or neither."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html.parser import HTMLParser
from inspect import getmembers, isfunction, signature
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from queue_db import QueueDB, operations
from queue_db.operations import dead, groups, queues
from queue_db.operations.actor import ANYBODY
from queue_db.service import Settings
from tests.cli.harness import Ask
from tests.operations.sides import Sides
from tests.patience import PATIENCE
from tests.service.conftest import serving

PACKAGE = Path(operations.__file__).parents[1]

#: Tables that a service writes by itself, or with each request; and the log.
OWN = {"jobs_actions", "jobs_metrics", "jobs_samples", "jobs_tokens", "jobs_sessions", "jobs_workers"}

TABLES = [importlib.import_module(f"tests.operations.{path.stem}") for path in sorted(Path(__file__).parent.glob("sides_*.py"))]
SIDES: list[Sides] = [one for table in TABLES for one in table.SIDES]

rows = pytest.mark.parametrize("sides", SIDES, ids=str)
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Names = Mapping[str, str]


def prepared_in(url: str) -> dict[str, str]:
    """One of everything; the names of what has no fixed one."""
    with QueueDB(url) as db:
        db.migrate()
        return {name: value for table in TABLES for name, value in table.prepare(db).items()}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Names]:
    file = tmp_path_factory.mktemp("sides") / "queue.db"
    return file, prepared_in(f"sqlite:///{file}")


@pytest.fixture
def names(prepared: tuple[Path, Names]) -> Names:
    return prepared[1]


@pytest.fixture
def own(prepared: tuple[Path, Names], tmp_path: Path) -> str:
    """A copy of the prepared file."""
    return f"sqlite:///{shutil.copy(prepared[0], tmp_path / 'own.db')}"


def filled(text: str, names: Names) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def entries(url: str) -> list[tuple[str, str, int | None]]:
    with QueueDB(url) as db:
        return [(one.action, one.target, one.number) for one in db.actions.list()]


def expected(sides: Sides, names: Names) -> list[tuple[str, str, int | None]]:
    word, target, number = sides.entry
    return [(word, filled(target, names), number)]


def content(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows that an operation changes."""
    with QueueDB(url) as db, db.database.engine.connect() as connection:
        tables = [table for name, table in db.store.tables.metadata.tables.items() if name not in OWN]
        return {table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr) for table in tables}


# --- the three sides ----------------------------------------------------------------------------------------------------


@contextmanager
def client(url: str, *, closed: bool = False, **token: Any) -> Iterator[httpx2.Client]:
    """A client of a service on this database; with a token if it is closed."""
    with ExitStack() as stack:
        db = stack.enter_context(QueueDB(url))
        base = stack.enter_context(serving(db, Settings(closed=closed)))
        headers = {"If-Match": "*"}
        if closed:
            headers["Authorization"] = f"Bearer {db.tokens.create('asks', **token)}"
        yield stack.enter_context(httpx2.Client(base_url=base, headers=headers, timeout=PATIENCE, verify=False))


def commanded(ask_at: Ask, url: str, sides: Sides, names: Names, status: int = 0) -> str:
    return ask_at(url, *filled(sides.command, names).split(), status=status).err


def requested(asks: httpx2.Client, sides: Sides, names: Names) -> httpx2.Response:
    method, path, *body = sides.request
    given = json.loads(filled(json.dumps(body[0]), names)) if body else None
    return asks.request(method, f"/api/v1{filled(path, names)}", json=given)


class Forms(HTMLParser):
    """The forms of a page: where each leads, with its hidden fields and the names of the others."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], set[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form":
            self.found.append((values.get("action") or "", {}, set()))
        elif tag in {"input", "select", "textarea", "button"} and values.get("name") and self.found:
            _, hidden, shown = self.found[-1]
            if values.get("type") == "hidden":
                hidden[values["name"] or ""] = values.get("value") or ""
            else:
                shown.add(values["name"] or "")


def submitted(asks: httpx2.Client, sides: Sides, names: Names) -> httpx2.Response:
    """Fill in the form of the page and send it, as a browser does."""
    return asks.post(filled(sides.form[0], names), data=filled_in(asks, sides, names))


def filled_in(asks: httpx2.Client, sides: Sides, names: Names) -> dict[str, str]:
    """The fields of the form."""
    path, given = filled(sides.form[0], names), {name: filled(value, names) for name, value in sides.form[1].items()}
    page = asks.get(filled(sides.page, names))
    assert page.status_code == 200, page.text
    fitting = [
        hidden
        for action, hidden, shown in Forms(page.text).found
        if action == path and all(hidden.get(name) == value or name in shown for name, value in given.items())
    ]
    assert fitting, f"{sides.page} has no form to {path} with {sorted(given)}"
    return {**fitting[0], **given}


@rows
def test_a_command_writes_the_entry(ask_at: Ask, own: str, names: Names, sides: Sides) -> None:
    commanded(ask_at, own, sides, names)
    assert entries(own) == expected(sides, names)


@rows
def test_a_request_writes_the_entry(own: str, names: Names, sides: Sides) -> None:
    with client(own) as asks:
        answer = requested(asks, sides, names)
    assert answer.is_success, answer.text
    assert entries(own) == expected(sides, names)


@rows
def test_a_form_writes_the_entry(own: str, names: Names, sides: Sides) -> None:
    with client(own) as asks:
        answer = submitted(asks, sides, names)
    assert answer.status_code in {200, 303}, answer.text
    assert "done=lost" not in answer.headers.get("location", "")
    assert entries(own) == expected(sides, names)


@rows
@pytest.mark.parametrize(
    "token",
    [{"scopes": ["read", "enqueue", "work"]}, {"scopes": ["read", "manage"], "queues": ["other-*"]}],
    ids=["without the scope", "for other names"],
)
@pytest.mark.rest("tests/service/test_service_security.py refuses who may not, and the two above find every operation")
def test_who_may_not_changes_nothing(own: str, names: Names, sides: Sides, token: dict[str, Any]) -> None:
    with client(own, closed=True, **token) as asks:
        before = content(own)
        answers = [requested(asks, sides, names)]
        weak = asks.headers.pop("Authorization").removeprefix("Bearer ")
        with QueueDB(own) as db:
            asks.post("/login", data={"token": db.tokens.create("may", ["read", "enqueue", "work", "manage"])})
        fields = filled_in(asks, sides, names)
        asks.cookies.clear()
        asks.post("/login", data={"token": weak})
        (fields["csrf"],) = set(re.findall(r'name="csrf" value="([^"]+)"', asks.get("/").text))
        answers.append(asks.post(filled(sides.form[0], names), data=fields))
    assert {answer.status_code for answer in answers} <= {403, 404}, [answer.text for answer in answers]
    assert (entries(own), content(own)) == ([], before)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_where_the_entry_cannot_be_written_nothing_is_changed(ask_at: Ask, own_url: str, kind: str) -> None:
    names = prepared_in(own_url)
    with QueueDB(own_url) as db:
        log = db.store.tables.metadata.tables["jobs_actions"]
        with db.database.engine.begin() as connection:
            log.drop(connection)
    before = content(own_url)
    for sides in SIDES:
        assert "jobs_actions" in commanded(ask_at, own_url, sides, names, status=3), sides
        assert content(own_url) == before, sides


# --- long operations ----------------------------------------------------------------------------------------------------


def buried(db: QueueDB, number: int) -> None:
    queue = db.queue("mail")
    queue.enqueue_many([("k", None)] * number)
    while jobs := queue.claim(500):
        for job in jobs:
            job.bury("no")


def many_dead(db: QueueDB) -> None:
    buried(db, 600)


def many_waiting(db: QueueDB) -> None:
    db.queue("mail").enqueue_many([("k", None)] * 600)


def many_groups(db: QueueDB) -> None:
    db.queue("mail").enqueue_many([("k", None, {"group": str(number // 2)}) for number in range(140)])
    table = db.store.tables.jobs
    with db.database.begin() as connection:
        connection.execute(table.delete().where(table.c.id % 2 == 1))


LONG: dict[str, tuple[Callable[[QueueDB], None], Callable[[QueueDB], object], int]] = {
    "redrive": (many_dead, lambda db: dead.redrive(db, ANYBODY, dead.Redrive(queue="mail")), 600),
    "purge": (many_dead, lambda db: dead.purge(db, ANYBODY, dead.Purge(queue="mail")), 600),
    "purge of a queue": (many_waiting, lambda db: queues.purge(db, ANYBODY, "mail"), 600),
    "repair": (many_groups, lambda db: groups.repair(db, ANYBODY, "mail"), 70),
}


@on_sqlite
@pytest.mark.parametrize("what", LONG)
def test_an_operation_in_portions_is_one_entry_with_their_sum(own_url: str, what: str) -> None:
    prepare, operation, number = LONG[what]
    with QueueDB(own_url) as db:
        prepare(db)
        operation(db)
        assert [one.number for one in db.actions.list()] == [number]
        operation(db)
        assert len(db.actions.list()) == 1, "what changes nothing is no entry"


@on_sqlite
def test_what_is_only_tried_is_no_entry(own_url: str) -> None:
    with QueueDB(own_url) as db:
        buried(db, 2)
        assert len(dead.redrive(db, ANYBODY, dead.Redrive(queue="mail"), dry_run=True)) == 2
        assert dead.purge(db, ANYBODY, dead.Purge(queue="mail"), dry_run=True) == 2
        assert db.actions.list() == []


# --- all of them --------------------------------------------------------------------------------------------------------


def functions() -> dict[str, Any]:
    """The operations by name: public functions of a database and an actor."""
    found = {}
    for one in pkgutil.iter_modules(operations.__path__):
        module = importlib.import_module(f"{operations.__name__}.{one.name}")
        if one.name in {"actor", "entry", "rights"}:
            continue
        for name, function in getmembers(module, isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found[f"{one.name}.{name}"] = function
    return found


def test_each_operation_has_its_sides() -> None:
    assert {sides.operation for sides in SIDES} == functions().keys()
    for name, function in functions().items():
        assert list(signature(function).parameters)[:2] == ["db", "actor"], name


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def verbs(function: ast.AST) -> Iterator[tuple[str, str]]:
    """What a function calls on the objects of a database: ``("schedules", "set")``, ``("queue()", "pause")``."""
    known: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (source := _source(node.value, {})):
            known[node.targets[0].id] = source
        elif isinstance(node, ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation)
            if kind in {"Queue", "Feed"}:
                known[node.arg] = f"{kind.lower()}()"
    for node in ast.walk(function):
        # Also of a method that is handed on: partial(db.schedules.pause, …).
        if isinstance(node, ast.Attribute) and (source := _source(node.value, known)):
            yield source, node.attr


def _source(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """Which object of a database this is."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "db" if node.id == "db" else None)
    if isinstance(node, ast.Call):
        inner = node.func
        makes = isinstance(inner, ast.Attribute) and inner.attr in {"queue", "feed", "cursor", "shared"}
        return f"{inner.attr}()" if makes and isinstance(inner, ast.Attribute) else None
    if isinstance(node, ast.Attribute):
        return "db" if node.attr == "db" else node.attr if _source(node.value, known) == "db" else None
    return None


#: What operations only ask, and the whole objects.
ASKED = {
    *(
        ("schedules", "list"),
        ("db", "workers"),
        ("db", "get"),
        ("queue()", "get"),
        ("queue()", "controls"),
        ("db", "queue"),
        ("db", "schedules"),
        ("db", "dead"),
    ),
    *(("core", "store"), ("core", "read"), ("core", "now"), ("db", "graphs"), ("graphs", "get")),
    *(("db", "feed"), ("db", "feeds"), ("db", "routes"), ("db", "streams"), ("db", "tokens"), ("db", "core"), ("db", "store")),
    *(
        ("feeds", "list"),
        ("streams", "list"),
        ("routes", "list"),
        ("tokens", "list"),
        ("routes", "definitions"),
        ("feed()", "cursor"),
    ),
}


def changing() -> set[tuple[str, str]]:
    """The verbs that operations call, and another way to one of them."""
    return {verb for _, tree in trees("operations") for verb in verbs(tree)} - ASKED | {("db", "cancel")}


def test_the_command_line_and_the_service_change_things_by_operations() -> None:
    expected = {
        ("queue()", "pause"),
        ("queue()", "purge"),
        ("dead", "redrive"),
        ("schedules", "set"),
        ("db", "rescue"),
        ("db", "prune"),
    }
    assert expected <= changing()
    found = {
        (str(path.relative_to(PACKAGE)), *verb)
        for path, tree in trees("cli", "service")
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for verb in verbs(function)
        if verb in changing()
    }
    assert found == set()
