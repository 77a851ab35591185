"""Hooks of the documentation site (mkdocs.yml): pages from outside docs/, and links to files of the repository.

README.md is the site's first page. The reference of the command line is made of the commands, and is no file. A link to a page of
the site is rewritten to it; a link to any other file of the repository becomes plain text, because the site does not contain it.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from queue_db.cli.document import reference

#: Files of the repository that are pages of the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "benchmarks.md",
    "spark_jobs/README.md": "spark-jobs.md",
}

_ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and the reference of the command line."""
    files.append(File.generated(config, "cli.md", content=reference()))
    for source, page in OUTSIDE.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=rewritten(text, source, page)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page of docs/ that lead out of it."""
    if page.file.generated_by is not None:
        return markdown
    return rewritten(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def rewritten(text: str, source: str, page: str) -> str:
    """Return ``text`` of the file ``source`` with the links that it needs as ``page`` of the site."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(Path(source).parent / found["target"])).as_posix()
        if not (_ROOT / target).exists():
            return found[0]  # mkdocs reports it
        if target in OUTSIDE:
            there = OUTSIDE[target]
        elif target.startswith("docs/"):
            there = target.removeprefix("docs/")
        else:
            return found["text"]
        there = Path(os.path.relpath(there, Path(page).parent)).as_posix()
        return f"{found['image']}[{found['text']}]({there}{found['anchor'] or ''})"

    return _LINK.sub(link, text)
