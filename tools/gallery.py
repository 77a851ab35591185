"""Write docs/gallery.md and its pictures: ``python -m tools.gallery``, in the project's environment (``make gallery``).

It starts each server that can be started here, compares the strategies there, and writes the chart of each server. ``--load FILE``
measures nothing and draws saved results again. What a figure is worth on this machine is written above the pictures.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from queue_db.compare.report import drawing
from queue_db.compare.report.chart import chart, description
from queue_db.compare.results import Bench, Comparison

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

SERVERS = ("postgresql", "mysql", "mariadb", "sqlite")

#: Short, so that all servers are measured within a quarter of an hour.
OPTIONS = (
    *("--strategies", "pessimistic,skip_locked,optimistic,adaptive", "--batch", "1,10", "--workers", "8"),
    *("--jobs", "100", "--repeat", "3", "--limit", "60"),
)

_PAGE = """# Gallery: reports of several servers

The chart of `queue-db compare` on each server that the suite could start.

**These figures are no benchmark:** short runs ({jobs} jobs, {repeat} of each strategy) on a shared machine with {cores} cores,
taken {date} at a load average of {load}. They do not compare servers: durability and isolation differ, as the last
line of each chart says.
[Compare strategies](compare.md) explains how to measure your own server; `make gallery` takes these again.
{sections}"""

_SECTION = """
## {server}

<picture>
<source media="(max-width: 40em)" srcset="compare-{slug}-phone.svg">
<img src="compare-{slug}.svg" alt="{alt}">
</picture>
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
    sections = [_section(bench, one) for one in found for bench in one.benches if bench.rows]
    plan, machine = found[0].plan, found[0].machine
    loads = [float(one.machine["load before"].split()[0]) for one in found]
    text = _PAGE.format(
        jobs=plan["jobs"],
        repeat=plan["repeat"],
        cores=machine["cores"],
        date=found[0].began[:10],
        load=f"{min(loads):.0f} to {max(loads):.0f}",
        sections="".join(sections),
    )
    (DOCS / "gallery.md").write_text(text, encoding="utf-8")


def _section(bench: Bench, comparison: Comparison) -> str:
    slug, bench = bench.title.lower(), _indicative(bench)
    for suffix, width in (("", drawing.WIDE), ("-phone", drawing.NARROW)):
        if (figure := chart(bench, comparison, width)) is not None:
            (DOCS / f"compare-{slug}{suffix}.svg").write_text(drawing.alone(figure, description(bench)), encoding="utf-8")
    return _SECTION.format(server=bench.server, slug=slug, alt=description(bench))


def _indicative(bench: Bench) -> Bench:
    """Return the bench as if measured with ``--quick``: no figure of so short runs on a busy machine is a win."""
    return replace(
        bench,
        rows=[replace(row, quick=True) for row in bench.rows],
        arrivals=[replace(row, quick=True) for row in bench.arrivals],
    )


if __name__ == "__main__":
    sys.exit(main())
