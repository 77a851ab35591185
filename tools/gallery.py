"""Write docs/gallery.md and its pictures: ``python -m tools.gallery``, in the project's environment (``make gallery``).

It starts each server that can be started here, compares the strategies there, and writes one card per server. ``--load FILE``
measures nothing and draws saved results again. What a figure is worth on this machine is written above the pictures.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from queue_db.compare.report.advice import Advice
from queue_db.compare.report.card import Origin, description
from queue_db.compare.report.findings import findings
from queue_db.compare.report.pictures import pictures
from queue_db.compare.results import Bench, Comparison

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

SERVERS = ("sqlite", "postgresql", "mysql", "mariadb")

#: Short, so that all servers are measured within half an hour.
OPTIONS = (
    *("--strategies", "product", "--batch", "1", "--workers", "1,2,4,8,16", "--jobs", "250", "--repeat", "3"),
    *("--no-feeds", "--limit", "60"),
)

#: Findings that belong to a card: about the curves, and about waits.
_SHOWN = ("With ", "When ", "Indicative: w")

_PAGE = """# Gallery: reports of several servers

The first picture of `queue-db compare` on each server that the suite could start. `{url}-card.svg` in the folder of your report
is such a picture, for a README or a chat; it is dark where the reader prefers dark colours.

**What these figures are:** short runs ({jobs} jobs, {repeat} of each strategy) on a shared machine with {cores} cores, on which
workers and server compete with each other and with other programs; taken {date}, with a load of {load} before the start. They show
what a report looks like. They are no benchmark, and no comparison of servers: durability and isolation differ, as the last line of
each picture says. Measure on your own machine, as [comparing strategies](compare.md) explains.

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
    parser.add_argument("--load", type=Path, metavar="FILE", help="results.json of a report with these servers")
    load = parser.parse_args().load
    if load is None:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "saved.json"
            compare = [sys.executable, "-m", "tests.servers", "compare", *SERVERS, "--", *OPTIONS]
            subprocess.run([*compare, "--report", folder, "--json", str(results)], cwd=ROOT, check=True)
            write(Comparison.load(results))
    else:
        write(Comparison.load(load))
    return 0


def write(comparison: Comparison) -> None:
    """Write the page and the pictures."""
    for old in DOCS.glob("compare-*.svg"):
        old.unlink()
    plan, machine = comparison.plan, comparison.machine
    origin = Origin(machine, plan, comparison.began, comparison.version)
    sections = [_section(bench, origin) for bench in comparison.benches]
    text = _PAGE.format(
        url="{database}",
        jobs=plan["jobs"],
        repeat=plan["repeat"],
        cores=machine["cores"],
        date=comparison.began[:10],
        load=machine["load before"].split()[0],
        sections="".join(sections),
    )
    (DOCS / "gallery.md").write_text(text, encoding="utf-8")


def _section(bench: Bench, origin: Origin) -> str:
    slug = bench.title.lower()
    first = pictures(bench, origin, slug)[0]
    (DOCS / f"compare-{slug}.svg").write_text(first.svg, encoding="utf-8")
    (DOCS / f"compare-{slug}-phone.svg").write_text(first.phone, encoding="utf-8")
    found = [one for one in findings(bench) if one.startswith(_SHOWN)]
    words = "\n".join(f"- {one}" for one in [Advice.of(bench).sentence, *found])
    return _SECTION.format(server=bench.server, slug=slug, alt=description(bench), words=words)


if __name__ == "__main__":
    sys.exit(main())
