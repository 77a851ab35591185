"""The code in the documents runs, and the tables in them are what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_db import QueueDB
from queue_db.dialects import registered
from queue_db.store.schema.tables import HEAD
from tests.aio.loop import for_asyncio
from tests.databases import KINDS
from tests.docs.tables import capability_table, statement_row

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").glob("*.md"),
        # tests/contrib/django/test_django_docs.py follows the page about Django, whose blocks are files of a project.
        *(page for page in (ROOT / "docs").glob("integrations/*.md") if page.name != "django.md"),
    ]
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Languages whose blocks are run; the others are shown only, and are listed here so that a new one is a decision.
RUN = {"python", "console"}
SHOWN = {"sh", "bash", "sql", "text", "toml", "json", "ini", "yaml", "nginx", "caddyfile"}


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


#: Pages whose blocks use a database: what they say holds for every one. The blocks of the shop only define what its tests call.
ANYWHERE = [
    page
    for page in PAGES
    if any(language in RUN and "sqlite:///" in code for language, code in blocks(page)) and page.name != "shop.md"
]


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a shell in which `queue-db` is ours."""
    found = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found.pop("QUEUE_DB_URL", None)
    return found


@pytest.fixture
def run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Callable[..., None]:
    """Run a page's blocks in order, in one namespace and one folder, as a reader would type them; ``url``: in that database."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("__readme__")
    for name in (module.__name__, "shop"):  # where dataclasses look, and a later block that imports an earlier one
        monkeypatch.setitem(sys.modules, name, module)

    def run(page: Path, url: str | None = None) -> None:
        for number, (language, code) in enumerate(blocks(page), 1):
            assert language in RUN | SHOWN, f"{page.name}: a block of {language}: say in this test whether it runs"
            if language not in RUN:
                continue
            there = code if url is None else moved(code, url)
            if language == "python":
                exec(compile(there, f"{page.name}, block {number}", "exec", dont_inherit=True), vars(module))  # noqa: S102 - that is the point
            else:
                script = "\n".join(line.removeprefix("$ ") for line in there.splitlines() if line.startswith("$ "))
                done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{page.name}, block {number}:\n{done.stdout}{done.stderr}"

    return run


def moved(code: str, url: str) -> str:
    """The code with this database in the place of the files that it names."""
    asynchronous = r"\1" + f'"{for_asyncio(url)}"'
    code = re.sub(r'((?:AsyncQueueDB|QueueBroker|create_async_engine)\()"sqlite[^"]*"', asynchronous, code)
    code = re.sub(r'"sqlite:///[^"]*"', f'"{url}"', code)
    return re.sub(r"(?<=QUEUE_DB_URL=)sqlite:///\S+", f"'{url}'", code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_blocks_run(page: Path, run_page: Callable[..., None]) -> None:
    run_page(page)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("page", ANYWHERE, ids=lambda page: page.name)
def test_the_code_blocks_run_on_every_server_that_they_are_for(page: Path, fresh_url: str, run_page: Callable[..., None]) -> None:
    with QueueDB(fresh_url):  # MySQL lets a password in without TLS only once it has seen it with TLS
        run_page(page, fresh_url)


@pytest.mark.rest("above it each page is followed")
def test_the_first_pages_can_be_followed_in_one_folder(run_page: Callable[..., None]) -> None:
    for page in ("README.md", "docs/async.md"):
        run_page(ROOT / page)


def test_the_revisions_that_the_pages_speak_of_are_there() -> None:
    there = {script.name[:4] for script in (ROOT / "migrations" / "versions").glob("0*.py")}
    for page in ("upgrading.md", "recipes.md"):
        assert set(re.findall(r"\b0\d{3}\b", (ROOT / "docs" / page).read_text())) <= there, page
    step = f'include_migration(op, "base", "{HEAD}")'
    assert step in (ROOT / "docs" / "recipes.md").read_text(), f"raise the numbers in docs/recipes.md: this package ends at {HEAD}"


def test_only_other_databases_are_put_in_their_place() -> None:
    assert ROOT / "README.md" in ANYWHERE
    code = 'AsyncQueueDB("sqlite:///a.db")\ncreate_engine("sqlite:///a.db")\nexport QUEUE_DB_URL=sqlite:///a.db\n"sqlite"'
    assert moved(code, "postgresql+psycopg2://u:p@h/d") == (
        'AsyncQueueDB("postgresql+asyncpg://u:p@h/d")\ncreate_engine("postgresql+psycopg2://u:p@h/d")\n'
        "export QUEUE_DB_URL='postgresql+psycopg2://u:p@h/d'\n\"sqlite\""
    )


def test_the_module_of_the_readme_is_one(tmp_path: Path, environment: dict[str, str]) -> None:
    """What it says stands in a module has to run there, without what was typed before."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"in a module `(\w+\.py)`:\n\n```python\n(.*?)```\n\n```sh\n(queue-db work [^#\n]*)", text, re.DOTALL)
    assert found is not None
    name, code, command = found.groups()
    (tmp_path / name).write_text(code)
    environment["QUEUE_DB_URL"] = "sqlite:///queue.db"
    commands = ["queue-db migrate", """queue-db enqueue mail welcome '{"user": 8}'""", f"{command.strip()} --until-empty"]
    done = subprocess.run(
        ["bash", "-euc", "\n".join(commands)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "welcome 8" in done.stdout


@pytest.mark.parametrize(("page", "said"), [("workers.md", "welcome 7"), ("from-celery.md", "99\n")])
def test_the_module_of_a_page_does_its_work_once(page: str, said: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Worker processes import it too, and must not do what is for its own process."""
    (code,) = [code for language, code in blocks(ROOT / "docs" / page) if language == "python" and "__main__" in code]
    (tmp_path / "shop.py").write_text(code)
    script = "python shop.py\nqueue-db work shop:worker --processes 2 --until-empty"
    done = subprocess.run(["bash", "-euc", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(said) == 1, done.stdout


def test_the_tests_that_a_page_shows_pass(tmp_path: Path, environment: dict[str, str]) -> None:
    """Beside the fixtures that its conftest.py adds; the run of the pages only defines them."""
    code = [code for language, code in blocks(ROOT / "docs" / "testing.md") if language == "python"]
    (conftest,) = [one for one in code if "pytest_plugins" in one]
    tests = "".join(one for one in code if one is not conftest)
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_shop.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests.count('def test_')} passed" in done.stdout


def test_the_shop_passes_its_tests(tmp_path: Path, environment: dict[str, str]) -> None:
    files = re.findall(
        r"`(\w+\.py)`[^`\n]*(?:`pytest`)?:\n\n```python\n(.*?)```", (ROOT / "docs" / "shop.md").read_text(), re.DOTALL
    )
    assert [name for name, _ in files] == ["shop.py", "test_shop.py"]
    assert sum(len(code.splitlines()) for _, code in files) <= 150
    for name, code in files:
        (tmp_path / name).write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_readme_names_commands_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)", (ROOT / "README.md").read_text())
    assert named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def between(page: str, name: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0].strip().splitlines()


def test_the_capability_table_is_printed_from_the_dialects() -> None:
    assert between("concepts.md", "capabilities") == capability_table(), "run: python -m tests.docs.tables"


@pytest.mark.parametrize("kind", KINDS, scope="session")
def test_the_statement_table_is_what_is_counted(kind: str, open_db: Callable[..., QueueDB], name: str) -> None:
    row = statement_row(kind, open_db(strategy="optimistic"), name)
    assert row in between("concepts.md", "statements"), f"counted: {row}"


def test_every_dialect_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(kind.title in readme for kind in registered().values() if kind.__module__.startswith("queue_db."))
