"""The documentation as a site: it builds strictly, has every public name, is searched without a server, and loads nothing from
another host.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.patience import PATIENCE
from tests.service.browser import chromium

ROOT = Path(__file__).resolve().parents[2]

#: Packages whose ``__all__`` is public, and modules whose public functions and classes are.
PACKAGES = ("queue_db", "queue_db.aio", "queue_db.spark", "queue_db.strategies", "queue_db.testing", "queue_db.worker")
MODULES = ("queue_db.backoff", "queue_db.errors", "queue_db.outcomes", "queue_db.removal")

#: Functions of these modules for the package's own use.
INTERNAL = {"queue_db.backoff.checked", "queue_db.errors.text_of"}

#: The command of ``make docs``. Not ``--quiet``: it drops the warnings that ``--strict`` counts.
BUILD = [sys.executable, "-m", "mkdocs", "build", "--strict"]


BUILT = pytest.mark.rest("nothing in make test builds the site: make docs does")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Dead links, dead anchors, pages outside the navigation and unknown names end the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*BUILD, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@BUILT
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    names = {line.split()[0] for line in inventory(site / "objects.inv")}
    assert [name for name in public_names() if name not in names | INTERNAL] == []
    assert {"queue_db.Queue.claim", "queue_db.Verdict.LOST", "queue_db.Job.available_at"} <= names, "comments of attributes too"


@BUILT
def test_no_page_loads_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [url for url in loads.urls if re.match(r"(https?:)?//", url)] == [], page.name
    for style in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"""(url\(|@import\s*)["']?(https?:)?//""", style.read_text(encoding="utf-8")), style.name


@BUILT
def test_a_search_in_pages_that_no_server_serves_finds_pages(site: Path) -> None:
    """Also that of the command line, which is no file of docs/."""
    program, environment = chromium.find()
    loaded: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=False, timeout=PATIENCE * 1000, env={**os.environ, **environment}
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("request", lambda request: loaded.append(request.url))
        for words, wanted in [("glossary", "glossary.html"), ("exit statuses", "cli.html")]:
            page.goto((site / "tutorial.html").as_uri())
            page.get_by_role("textbox", name="Search").press_sequentially(words)  # the search listens to keys
            found = page.locator(f".md-search-result__link[href*='/{wanted}']").first
            found.wait_for(state="attached")
            page.goto(found.get_attribute("href") or "")
            assert words.split()[0].lower() in page.inner_text("article").lower()
        browser.close()
    assert [url for url in loaded if not url.startswith("file:")] == []


def test_a_dead_link_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md), [no anchor](#nowhere)")
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[0]
    configuration = re.sub(r"^(hooks|plugins):(.*\n(?:  .*\n)*)", "", configuration, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(configuration)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "#nowhere" in done.stderr


def test_no_public_name_is_a_module_too() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        modules = {one.name for one in pkgutil.iter_modules(module.__path__)}
        assert modules & set(module.__all__) == set(), f"in {package}, the order of imports decides which one is found"


def public_names() -> Iterator[str]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            if not name.startswith("_"):
                yield f"{package}.{name}"
    for module_name in MODULES:
        for name, value in vars(importlib.import_module(module_name)).items():
            if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module_name:
                yield f"{module_name}.{name}"


def inventory(path: Path) -> list[str]:
    """The lines of a Sphinx inventory: name, role and address of each object."""
    return zlib.decompress(path.read_bytes().split(b"\n", 4)[4]).decode().splitlines()


class Loads(HTMLParser):
    """Collects what a page loads: scripts, styles, images, fonts."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "video"} and given.get("src"):
            self.urls.append(given["src"] or "")
        if tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.urls.append(given["href"] or "")
