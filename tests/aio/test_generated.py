"""The classes for asyncio are generated from the synchronous ones: the files are up to date, and a change is noticed."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import queue_db.aio
from tools import asynchronous
from tools.asynchronous import FILES, ROOT, TWINS, different, for_tasks, main, twinned

#: The files of ``aio`` that are written by hand.
BY_HAND = {"aio.__init__", "aio.bases", "aio.handled", "aio.opening", "feeds.aio.__init__", "feeds.aio.bases"}

Change = Callable[[str, str, str], None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that the classes are generated from, and the generated ones."""
    for twin in TWINS.values():
        path = Path(f"{twin.module.replace('.', '/')}.py")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    shutil.copy(ROOT / "queue_db" / "dead" / "aio.py", tmp_path / "queue_db" / "dead" / "aio.py")
    shutil.copytree(ROOT / "queue_db" / "aio", tmp_path / "queue_db" / "aio", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def change(tree: Path) -> Change:
    """Replaces a text in a file of the package."""

    def changed(file: str, text: str, other: str) -> None:
        path = tree / "queue_db" / file
        assert path.read_text().count(text) == 1
        path.write_text(path.read_text().replace(text, other))

    return changed


@pytest.fixture(autouse=True)
def one_file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generates ``dead/aio.py`` alone where a test changes something: that takes a second less for each other file."""
    if "tree" in request.fixturenames:
        monkeypatch.setattr(asynchronous, "FILES", {"dead.aio": FILES["dead.aio"]})


def test_the_files_are_up_to_date() -> None:
    """``make lint`` compares them, too."""
    assert [str(path.relative_to(ROOT)) for path in different()] == [], "write them anew with: make aio"


def test_nothing_changes_where_nothing_was_changed(tree: Path) -> None:
    assert different(tree) == {}


def test_each_file_says_whether_it_is_generated() -> None:
    package = ROOT / "queue_db"
    for path in [*package.glob("**/aio/*.py"), *package.glob("**/aio.py")]:
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        assert (module in FILES) is not (module in BY_HAND), module
        assert path.read_text().startswith("# Generated from queue_db/") is (module in FILES), module


def test_each_generated_class_is_public() -> None:
    assert set(queue_db.aio.__all__) == set(TWINS)


def test_a_changed_signature_is_noticed_and_written(tree: Path, change: Change, capsys: pytest.CaptureFixture[str]) -> None:
    change("dead/dead_jobs.py", "most: int = MOST_COUNTED", "most: int = 5")
    assert main(["check"], tree) == 1
    assert capsys.readouterr().out == (
        "queue_db/dead/aio.py is not what its synchronous class says; it is written anew by: make aio\n"
    )
    assert main(["write"], tree) == 0
    assert "most: int = 5" in (tree / "queue_db" / "dead" / "aio.py").read_text()
    assert main(["check"], tree) == 0


@pytest.mark.parametrize(
    ("text", "other", "written"),
    [
        ("most: int = MOST_COUNTED\n", "most: int = 5, fast: bool = False\n", "most=most, fast=fast)"),
        ("ids: int | Iterable[int] | None", "ids: Iterable[int] | None", "ids: Iterable[int] | None"),
        ("    ) -> JobIds:", "    ) -> set[int]:", "    ) -> set[int]:"),
        ("How many dead jobs there are", "The number of dead jobs", '"""The number of dead jobs'),
        ("They stay until they are redriven or purged.", "They stay.", "or buried. They stay."),
        ("    def count(", "    def last(self) -> Job: ...\n    def count(", "return await run(self._sync.last)"),
    ],
    ids=["parameter", "annotation", "return type", "docstring", "docstring of the class", "verb"],
)
def test_a_change_is_noticed(tree: Path, change: Change, text: str, other: str, written: str) -> None:
    change("dead/dead_jobs.py", text, other)
    assert [written in fresh for fresh in different(tree).values()] == [True]


def test_a_verb_that_is_gone_is_noticed(tree: Path, change: Change) -> None:
    change("dead/dead_jobs.py", "    def count(", "    def _count(")
    assert ["def count(" in fresh for fresh in different(tree).values()] == [False]


def test_a_change_by_hand_is_noticed(tree: Path, change: Change) -> None:
    change("dead/aio.py", "limit: int = 100", "limit: int = 50")
    assert list(different(tree)) == [tree / "queue_db" / "dead" / "aio.py"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("    def few(self, *ids: int) -> int: ...\n", "DeadJobs.few: tools/asynchronous.py does not know these parameters"),
        ("    def few(self) -> set[Queue]: ...\n", r"cannot make set\[AsyncQueue\]"),
        ("    def few(self): ...\n", "an annotation is missing"),
        ("    async def few(self) -> int: ...\n", "a plain function with one name"),
        ("    few = count\n", "a plain function with one name"),
    ],
    ids=["parameters", "return type", "no annotation", "coroutine", "second name"],
)
def test_what_cannot_be_generated_is_refused(tree: Path, change: Change, other: str, why: str) -> None:
    change("dead/dead_jobs.py", "    def count(", f"{other}    def count(")
    with pytest.raises(TypeError, match=why):
        different(tree)


def test_what_a_class_does_not_have_cannot_be_left_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous, "FILES", {"dead.aio": [FILES["dead.aio"][0]._replace(without=["exhume"])]})
    with pytest.raises(TypeError, match="DeadJobs has no exhume: take it out"):
        different(tree)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("int | None", "int | None"),
        ("str | URL | Engine", "str | URL | AsyncEngine"),
        ("Using | None", "AsyncUsing | None"),
        ("Using | AsyncUsing | None", "AsyncUsing | None"),
        ("Verdict | Awaitable[Verdict]", "Verdict"),
        ("list[LeasedJob | None]", "list[AsyncLeasedJob | None]"),
        ("Iterator[Message]", "AsyncIterator[Message]"),
    ],
)
def test_annotations(annotation: str, expected: str) -> None:
    assert for_tasks(ast.parse(annotation, mode="eval").body) == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("list[AsyncConnection]", "found"),
        ("AsyncCursor", "AsyncCursor(found)"),
        ("AsyncSpan | None", "None if found is None else AsyncSpan(found)"),
        ("list[AsyncLeasedJob | None]", "[None if each is None else AsyncLeasedJob(each, self) for each in found]"),
        ("tuple[list[Verdict], AsyncCursor]", "found[0], AsyncCursor(found[1])"),
    ],
)
def test_twins_of_what_is_returned(annotation: str, expected: str) -> None:
    assert twinned(annotation, "found") == expected


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wrote"]) == 2
    assert "write | check" in capsys.readouterr().out
