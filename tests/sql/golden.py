"""The golden files: which there must be, what stands in each, and whether they do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

from queue_db.store.base import Transaction
from tests.sql.catalog import SCENARIOS, Scenario
from tests.sql.layout import fingerprint, laid_out
from tests.sql.recording import DATABASES, OLDER, Recorder, Sent, place

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"

# A block of SQL in the docs that is one of the files: <!-- tests/sql/sqlite/complete.sql --> stands before it.
_SHOWN = re.compile(r"(<!-- tests/sql/(\S+\.sql) -->\n+```sql\n)(.*?)(^```)", re.MULTILINE | re.DOTALL)

#: These get nearly the same. A file is in the folder of the first that gets it, and names those after that one that do not.
ALIKE = ("mysql", "mariadb", *OLDER)

_NOT_TO = "-- Not sent to: "

_TABLE = re.compile(r"\b(?:DELETE|FROM|INTO|UPDATE|JOIN)\s+(?!FROM\b)(?:jobs_)?([a-z]\w+)")


@dataclass
class Golden:
    """One statement, with all that is known of where it comes from."""

    name: str
    when: str
    sent: Sent
    #: Names that it would have after the other scenarios that send it.
    others: list[str] = field(default_factory=list)
    #: Whether it commits by itself, each way in which it is sent.
    alone: set[bool] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The file."""
        ways = {True: "none has begun, the statement commits by itself", False: "within BEGIN … COMMIT"}
        head = {
            self.name: self.when,
            "Also": ", ".join(self.others),
            "Transaction": "; or ".join(ways[way] for way in sorted(self.alone, reverse=True)),
            "Sent by": " > ".join(self.sent.sender),
            "Always": ", ".join(f"{name} = {value}" for name, value in self.sent.constants.items()),
        }
        lines = [line for name, words in head.items() if words for line in wrap(f"{name}: {words}", 115, subsequent_indent="  ")]
        if self.sent.prepared:
            lines.append("Prepared once for each connection.")
        return "".join(f"-- {line}\n" for line in lines) + f"{laid_out(self.sent.text)};\n"


def recorded(database: str) -> dict[str, Golden]:
    """The golden files of a database by name, from what the code sends now."""
    there = place(database)
    found: dict[str, Golden] = {}
    by_text: dict[str, Golden] = {}
    for scenario in SCENARIOS:
        if not scenario.needs <= there.store.capabilities:
            continue
        recorder = Recorder(scenario.rows, scenario.counts, scenario.answers)
        try:
            with there.recording(recorder, begins=scenario.begins) as connection:
                scenario.run(Transaction(connection, there.store))
        except Exception as error:
            error.add_note(f"{database}, scenario {scenario.name!r} of tests/sql/catalog.py, after {len(recorder.sent)} statements")
            raise
        for name, sent in zip(_names(scenario, recorder.sent), recorder.sent, strict=True):
            known = by_text.get(sent.text)
            if known is None:
                free = _free(name, found)
                known = by_text[sent.text] = found[free] = Golden(free, scenario.when, sent)
            elif name not in (known.name, *known.others):
                known.others.append(name)
            known.alone.add(sent.alone)
    return found


def files() -> dict[Path, str]:
    """All golden files: what stands in each."""
    found = {}
    for family in [(database,) for database in DATABASES if database not in ALIKE] + [ALIKE]:
        receivers: dict[tuple[str, str], list[str]] = {}
        for database in family:
            for name, one in recorded(database).items():
                receivers.setdefault((name, one.text), []).append(database)
        for (name, text), to in receivers.items():
            others = ", ".join(later for later in family[family.index(to[0]) :] if later not in to)
            found[FOLDER / to[0] / f"{name}.sql"] = (f"{_NOT_TO}{others}\n" if others else "") + text
    return found


def _names(scenario: Scenario, sent: Sequence[Sent]) -> list[str]:
    roles = scenario.roles.get(" ".join(one.text.split(maxsplit=1)[0] for one in sent))
    if roles is None:
        roles = [""] if len(sent) == 1 else [_role(one.text) for one in sent]
    return [scenario.name + role for role in roles]


def _role(text: str) -> str:
    """Verb and table of a statement."""
    words = re.findall(r"\w+", text)
    table = _TABLE.search(text)
    verb = words[0].lower() if words[0].upper() != "WITH" else "with"
    if verb == "select" and "FOR UPDATE" in text:
        verb = "lock"
    return f"_{verb}_{table[1]}" if table else f"_{verb}_clock"


def _free(name: str, taken: dict[str, Golden]) -> str:
    number, free = 2, name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def write() -> list[Path]:
    """Write all files, remove those of statements that are not sent any more; return what has changed."""
    fresh, there = files(), _there()
    changed = sorted(path for path in fresh.keys() | there.keys() if fresh.get(path) != there.get(path))
    for path in changed:
        if path in fresh:
            path.parent.mkdir(exist_ok=True)
            path.write_text(fresh[path])
        else:
            path.unlink()
    return changed


def _there() -> dict[Path, str]:
    return {path: path.read_text() for path in FOLDER.glob("*/*.sql")}


def write_docs() -> list[Path]:
    """Put the files into the blocks of the docs that show them; return the pages that have changed."""
    changed = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        fresh = _SHOWN.sub(lambda found: found[1] + _bare(FOLDER / found[2]) + found[4], text)
        if fresh != text:
            page.write_text(fresh)
            changed.append(page)
    return changed


def shown_in(page: Path) -> list[tuple[str, str]]:
    """Path and text of the files that a page shows."""
    return [(found[2], found[3]) for found in _SHOWN.finditer(page.read_text())]


def _bare(path: Path) -> str:
    """The statement without the comments above it."""
    return "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("--"))


def differences() -> Iterator[str]:
    """What a check has to complain about."""
    there, sent = _there(), files()
    for path in sorted(there.keys() | sent.keys()):
        if there.get(path) != sent.get(path):
            why = "is not what is sent, or not who gets it" if path in sent and path in there else "there is no such file"
            yield f"{path.relative_to(FOLDER.parents[1])}: {why if path in sent else 'nothing sends this any more'}"
    for page in sorted(DOCS.rglob("*.md")):
        for path, text in shown_in(page):
            if not (FOLDER / path).exists() or text != _bare(FOLDER / path):
                yield f"docs/{page.relative_to(DOCS)}: does not show tests/sql/{path} as it is"


def known_statements(database: str, version: tuple[int, ...]) -> dict[str, str]:
    """Fingerprint → name of the file, for all that a database gets; on an older server than that of the files also what it gets."""
    servers = {database, *(older for older, (newer, _) in OLDER.items() if newer == database and version < DATABASES[database][1])}
    return {
        fingerprint(path.read_text()): path.stem
        for path in sorted(FOLDER.glob("*/*.sql"))
        if not servers.isdisjoint(receivers(path))
    }


def receivers(path: Path) -> set[str]:
    """Who gets the statement of a file."""
    folder, first = path.parent.name, path.read_text().partition("\n")[0]
    family = ALIKE[ALIKE.index(folder) :] if folder in ALIKE else (folder,)
    return set(family).difference(first.removeprefix(_NOT_TO).split(", ") if first.startswith(_NOT_TO) else ())
