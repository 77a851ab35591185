"""``python -m benchmarks``: measure the speed bars on your own database."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.bars import BARS, Bar, bars
from benchmarks.figures import Line
from benchmarks.lab import Crews, Lab, lab_at
from benchmarks.report import WIDTH, Sheet, show
from benchmarks.running import addresses, ended, leave_politely, say
from queue_db.compare.machine import machine
from queue_db.errors import QueueDBError

_EPILOG = """\
bars:
{bars}

how it measures:
  Both sides of every ratio come from one run and take turns (A B A B …), so that both share what the machine does meanwhile; the
  ratio is that of their medians. Beside every throughput stand its errors, misses (jobs that somebody else was faster at) and
  duplicates; a side that runs a job twice has not met its bar, however fast. Jobs do nothing: what is measured is the queue.
  Everything happens in a schema (a database, on MySQL and MariaDB; a file beside yours, on SQLite) of its own, which is gone
  afterwards, also after Ctrl-C. The server is under full load meanwhile.

what to look out for:
  Use a quiet machine, and --scale 1 with 3 repeats or more for figures to be believed: about an hour for PostgreSQL and MariaDB.
  --scale 0.01 shows in a minute whether everything works; its figures mean nothing.
  Bars about other queues need them: pip install --group peers (benchmarks/README.md). Without them they say so.

examples:
  python -m benchmarks --url postgresql://me@localhost/test
  python -m benchmarks --url mysql://me@localhost/test --only batches-mysql,overhead --repeat 5 --json mariadb.json
  python -m benchmarks --only sqlite,enqueue --scale 0.1
  python -m benchmarks spark --help       the Spark data source, which has a program of its own
  python -m benchmarks worker --help      a whole worker process, likewise
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit status whether every bar that was measured is met: 0, or 1."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["spark"]:
        from benchmarks import spark  # which needs packages that the other bars do without

        return spark.main(given[1:])
    if given[:1] == ["worker"]:
        from benchmarks import worker

        return worker.main(given[1:])
    asked = _parse(given)
    leave_politely()
    crews = Crews()
    sheets: list[Sheet] = []
    facts = machine()
    try:
        with addresses(asked.url, {title for bar in asked.only for title in bar.on}) as urls:
            for url in urls:
                _measure(url, asked, crews, sheets)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    finally:
        crews.drop()
        # What was measured before something went wrong is not lost.
        _tell([sheet for sheet in sheets if sheet.lines], facts, asked)
    lines = [line for sheet in sheets for _, line in sheet.lines]
    return 1 if any(line.met is False for line in lines) else 0


def _measure(url: str, asked: argparse.Namespace, crews: Crews, sheets: list[Sheet]) -> None:
    with lab_at(url, repeat=asked.repeat, scale=asked.scale, workers=asked.workers, crews=crews, say=say) as lab:
        sheet = Sheet(lab.bench)
        sheets.append(sheet)
        for bar in asked.only:
            if lab.bench.title in bar.on:
                say(f"== {lab.bench.server}: {bar.name}: {bar.asks}")
                sheet.lines.extend((bar.name, line) for line in _lines(bar, lab, crews))


def _lines(bar: Bar, lab: Lab, crews: Crews) -> Iterator[Line]:
    """The bar's lines; one that fails does not take the other bars with it."""
    try:
        yield from bar.measure(lab)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the bar is not met
        say(traceback.format_exc())
        crews.drop()
        reason = (str(error).splitlines() or [""])[0]
        yield Line(bar.asks, missing=f"failed: {type(error).__name__}: {reason}", failed=True)


def _tell(sheets: Sequence[Sheet], facts: dict[str, str], asked: argparse.Namespace) -> None:
    if not sheets:
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        show(sheet, facts, asked.repeat, asked.scale, console)
    if asked.json is not None:
        told: dict[str, Any] = {
            "machine": facts,
            "repeat": asked.repeat,
            "scale": asked.scale,
            "workers": asked.workers,
            "databases": [sheet.told() for sheet in sheets],
        }
        asked.json.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    width = max(len(bar.name) for bar in BARS)
    listed = "\n".join(f"  {bar.name:{width}}  {', '.join(bar.on)}: {bar.asks}" for bar in BARS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the speed bars: this queue against the raw driver, the article, SKIP LOCKED and other queues.",
        epilog=_EPILOG.format(bars=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="database to measure on, as SQLAlchemy writes it; more than once for several. Its user must be allowed to create a "
        "schema. Without it: SQLite in a temporary folder and the private PostgreSQL and MariaDB that the test suite starts",
    )
    parser.add_argument("--only", metavar="NAME,…", help="measure these bars only")
    parser.add_argument("--repeat", type=_positive_whole, default=3, metavar="N", help="runs of each side (default 3)")
    parser.add_argument(
        "--scale", type=_positive, default=1.0, metavar="X", help="multiply all sizes (default 1; 0.01: try it out)"
    )
    parser.add_argument("--workers", type=_positive_whole, default=10, metavar="N", help="processes that race (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured here too")
    asked = parser.parse_args(arguments)
    try:
        asked.only = bars(asked.only)
    except ValueError as error:
        parser.error(str(error))
    return asked


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return number


def _positive_whole(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 to 1000")
    return number


if __name__ == "__main__":
    sys.exit(main())
