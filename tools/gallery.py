"""Write docs/gallery.md and its pictures: ``python -m tools.gallery``, in the project's environment (``make gallery``).

It starts each server that can be started here, compares the strategies there, and writes one card per server. ``--load FILE``
measures nothing and draws saved results again. What a figure is worth on this machine is written above the pictures.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from queue_db.compare.report.advice import Advice
from queue_db.compare.report.card import Origin, description
from queue_db.compare.report.findings import findings
from queue_db.compare.report.pictures import pictures
from queue_db.compare.results import Bench, Comparison

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

SERVERS = ("postgresql", "mysql", "mariadb", "sqlite")

#: Short, so that all servers are measured within a quarter of an hour.
OPTIONS = (
    *("--strategies", "pessimistic,skip_locked,optimistic,adaptive", "--batch", "1", "--workers", "1,2,4,8"),
    *("--jobs", "100", "--repeat", "3", "--no-feeds", "--limit", "60"),
)

#: Findings that belong to a card: about the curves, and about waits.
_SHOWN = ("With ", "When ", "Indicative: w")

_PAGE = """# Gallery: reports of several servers

The first picture of `queue-db compare` on each server that the suite could start. `{url}-card.svg` in the folder of your report
is such a picture, for a README or a chat; it is dark where the reader prefers dark colours.

**What these figures are:** short runs ({jobs} jobs, {repeat} of each strategy) on a shared machine with {cores} cores, on which
workers and server compete with each other and with other programs; taken {date}, with a load average of {load} before the start.
They show what a report looks like and are indicative at best. They are no benchmark, and no comparison of servers: durability and
isolation differ, as the last line of each picture says. [Compare strategies](compare.md) explains how to measure your own server.

`make gallery` takes all of them again.
{sections}"""

_SECTION = """
## {server}

<picture>
<source media="(max-width: 40em)" srcset="compare-{slug}-phone.svg">
<img src="compare-{slug}.svg" alt="{alt}">
</picture>

{words}
"""


def main() -> int:
    """Measure or load, and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.gallery")
    parser.add_argument("--load", type=Path, nargs="+", metavar="FILE", help="results of these servers, by queue-db compare --json")
    load = parser.parse_args().load
    found = [Comparison.load(path) for path in load] if load else [one for name in SERVERS if (one := measure(name))]
    if found:
        write(found)
    return 0 if found else 1


def measure(name: str) -> Comparison | None:
    """Compare the strategies on one server; None if it cannot be started here, or if the comparison fails."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "saved.json"
        compare = [sys.executable, "-m", "tests.servers", "compare", name, "--", *OPTIONS]
        subprocess.run([*compare, "--report", folder, "--json", str(results)], cwd=ROOT, check=False)
        return Comparison.load(results) if results.exists() else None


def write(found: Sequence[Comparison]) -> None:
    """Write the page and the pictures."""
    for old in DOCS.glob("compare-*.svg"):
        old.unlink()
    sections = [
        _section(bench, Origin(one.machine, one.plan, one.began, one.version))
        for one in found
        for bench in one.benches
        if bench.rows
    ]
    plan, machine = found[0].plan, found[0].machine
    loads = [float(one.machine["load before"].split()[0]) for one in found]
    text = _PAGE.format(
        url="{database}",
        jobs=plan["jobs"],
        repeat=plan["repeat"],
        cores=machine["cores"],
        date=found[0].began[:10],
        load=f"{min(loads):.0f} to {max(loads):.0f}",
        sections="".join(sections),
    )
    (DOCS / "gallery.md").write_text(text, encoding="utf-8")


def _section(bench: Bench, origin: Origin) -> str:
    slug, bench = bench.title.lower(), _indicative(bench)
    first = pictures(bench, origin, slug)[0]
    (DOCS / f"compare-{slug}.svg").write_text(first.svg, encoding="utf-8")
    (DOCS / f"compare-{slug}-phone.svg").write_text(first.phone, encoding="utf-8")
    found = [one for one in findings(bench) if one.startswith(_SHOWN)]
    words = "\n".join(f"- {one}" for one in [Advice.of(bench).sentence, *found])
    return _SECTION.format(server=bench.server, slug=slug, alt=description(bench), words=words)


def _indicative(bench: Bench) -> Bench:
    """Return the bench as if measured with ``--quick``: no figure of so short runs on a busy machine is a win."""
    return replace(
        bench,
        rows=[replace(row, quick=True) for row in bench.rows],
        sweep=[replace(row, quick=True) for row in bench.sweep],
        arrivals=[replace(row, quick=True) for row in bench.arrivals],
    )


if __name__ == "__main__":
    sys.exit(main())
