"""What a rehearsal has made and done, and what of it is against the promises."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, select

from tests.rehearsal.program import FAILS

_METADATA = MetaData()
#: Neither has a unique key: what happened twice would be there twice.
WANTED = Table(
    "rehearsal_wanted",
    _METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("what", String(80), nullable=False),
    Column("made_by", String(40), nullable=False),
    Column("in_group", String(40)),
)
EFFECTS = Table(
    "rehearsal_effects",
    _METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("what", String(80), nullable=False),
    Column("done_by", String(40), nullable=False),
)

#: What the programs may log meanwhile, and where it is announced.
ANNOUNCED = (
    re.compile(re.escape(FAILS)),  # the handler's own
    re.compile("it was created.*is the name right"),  # docs/feeds.md: the first worker creates feed and cursor
    re.compile("a round is made again: .*(lock|Lock|busy|timeout)"),  # docs/upgrading.md: statements wait behind a migration
)


def create(engine: Engine) -> None:
    """Make the tables of the rehearsal."""
    _METADATA.create_all(engine)


def done_by(engine: Engine) -> Counter[str]:
    """How many effects each process had."""
    with engine.connect() as connection:
        return Counter(connection.execute(select(EFFECTS.c.done_by)).scalars())


def made_by(engine: Engine) -> Counter[str]:
    """How many jobs and messages each process made."""
    with engine.connect() as connection:
        return Counter(connection.execute(select(WANTED.c.made_by)).scalars())


def open_ones(engine: Engine) -> set[str]:
    """What had no effect yet."""
    with engine.connect() as connection:
        done = set(connection.execute(select(EFFECTS.c.what)).scalars())
        return set(connection.execute(select(WANTED.c.what)).scalars()) - done


def violations(engine: Engine, folder: Path) -> list[str]:
    """Sentences: what was lost, what happened twice or in a wrong order, and what was logged without being announced."""
    with engine.connect() as connection:
        wanted = connection.execute(select(WANTED.c.what, WANTED.c.in_group).order_by(WANTED.c.id)).all()
        effects = list(connection.execute(select(EFFECTS.c.what).order_by(EFFECTS.c.id)).scalars())
    runs = [line.split() for path in sorted(folder.glob("*.begun")) for line in path.read_text().splitlines()]
    return [
        *_effects(Counter(row.what for row in wanted), Counter(effects)),
        *_groups({row.what: row.in_group for row in wanted if row.in_group}, [row.what for row in wanted], effects),
        *_runs(runs),
        *_logged(folder),
    ]


def _effects(wanted: Counter[str], effects: Counter[str]) -> Iterable[str]:
    for what in sorted(wanted.keys() | effects.keys()):
        if wanted[what] != effects[what]:
            yield f"{what}: made {wanted[what]} times, had {effects[what]} effects"


def _groups(groups: dict[str, str], made: list[str], effects: list[str]) -> Iterable[str]:
    for group in sorted(set(groups.values())):
        of_group = {what for what, its in groups.items() if its == group}
        expected, seen = ([what for what in them if what in of_group] for them in (made, effects))
        if seen != expected:
            yield f"group {group}: not in its order: {seen}"


def _runs(runs: list[list[str]]) -> Iterable[str]:
    """Nobody is killed: a job runs once, and once more if its first attempt is to fail."""
    leases = Counter(f"{queue} {fence}" for _, queue, fence in runs)
    yield from (f"lease {lease} ran {number} times" for lease, number in leases.items() if number > 1)
    for what, number in Counter(what for what, _, _ in runs).items():
        if number != 1 + what.endswith("-fails"):
            yield f"{what}: ran {number} times"


def _logged(folder: Path) -> Iterable[str]:
    for path in sorted(folder.glob("*.log")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if not any(one.search(entry["says"]) for one in ANNOUNCED):
                yield f"{path.stem} logged: {entry['level']} {entry['logger']}: {entry['says']} ({entry['error']})"
    for path in sorted(folder.glob("*.err")):
        if said := path.read_text().strip():
            yield f"{path.stem} printed: {said[-2000:]}"
