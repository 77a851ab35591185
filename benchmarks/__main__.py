"""``python -m benchmarks``: measure the performance targets on your own database."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.bars import BARS, Bar, bars
from benchmarks.figures import Line
from benchmarks.lab import Lab, Pools, lab_at
from benchmarks.report import WIDTH, Sheet, show
from benchmarks.running import addresses, ended, exit_on_sigterm, say, sql_of
from queue_db.compare.machine import machine
from queue_db.errors import QueueDBError

_EPILOG = """\
bars:
{bars}

how it measures:
  Both sides of a ratio are measured in turns (A B A B …), so that other load on the machine affects both; the ratio is that of
  their medians. Each throughput is printed with its errors, misses (jobs that another worker won) and duplicates; a side that
  executes a job twice fails its bar. Jobs are empty: only the queue is measured. Everything happens in a schema of its own (on
  MySQL and MariaDB a database, on SQLite a file next to yours), which is dropped afterwards, also after Ctrl-C. The server is
  under full load.

recommendations:
  Use an idle machine, --scale 1 and at least 3 repeats for reliable figures: about an hour for PostgreSQL and MariaDB.
  --scale 0.01 checks in a minute that everything works; its figures are meaningless.
  Bars with other queues need their packages: pip install --group peers (benchmarks/README.md). Without them they are skipped.

examples:
  python -m benchmarks --url postgresql://me@localhost/test
  python -m benchmarks --url mysql://me@localhost/test --only batches-mysql,overhead --repeat 5 --json mariadb.json
  python -m benchmarks --only sqlite,enqueue --scale 0.1
  python -m benchmarks spark --help       the Spark data source
  python -m benchmarks worker --help      a worker process
  python -m benchmarks spans --help       consumers of a shared cursor
  python -m benchmarks routes --help      a publish to a topic
  python -m benchmarks graphs --help      graphs beside plain jobs
  python -m benchmarks fairness --help    fair queues and limits of groups
  python -m benchmarks service --help     jobs over HTTP
  python -m benchmarks simulate --help    many workers and nodes, simulated
"""


# Modules that are programs of their own.
_OTHERS = ("spark", "worker", "spans", "routes", "graphs", "fairness", "service", "simulate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if every measured bar is met, otherwise 1."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] and given[0] in _OTHERS:
        # Only now: one needs packages that the other bars do not need.
        other = importlib.import_module(f"benchmarks.{given[0]}")
        return int(other.main(given[1:]))
    asked = _parse(given)
    exit_on_sigterm()
    pools = Pools()
    sheets: list[Sheet] = []
    facts = machine()
    try:
        with addresses(asked.url, {title for bar in asked.only for title in bar.on}) as urls:
            for url in urls:
                _measure(url, asked, pools, sheets)
    except (KeyboardInterrupt, QueueDBError) as error:
        return ended(error)
    finally:
        pools.close()
        # Also after an error: print what has been measured.
        _print([sheet for sheet in sheets if sheet.lines], facts, asked)
    lines = [line for sheet in sheets for _, line in sheet.lines]
    if not lines:
        say(f"nothing was measured: no database here has a bar of {', '.join(bar.name for bar in asked.only)} (see --help)")
        return 2
    return 1 if any(line.met is False for line in lines) else 0


def _measure(url: str, asked: argparse.Namespace, pools: Pools, sheets: list[Sheet]) -> None:
    with lab_at(
        url,
        repeat=asked.repeat,
        scale=asked.scale,
        workers=asked.workers,
        pools=pools,
        say=say,
        pgmq=asked.pgmq,
        old=asked.old,
    ) as lab:
        sheet = Sheet(lab.bench)
        sheets.append(sheet)
        for bar in asked.only:
            if lab.bench.title in bar.on:
                say(f"== {lab.bench.server}: {bar.name}: {bar.asks}")
                sheet.lines.extend((bar.name, line) for line in _lines(bar, lab, pools))


def _lines(bar: Bar, lab: Lab, pools: Pools) -> Iterator[Line]:
    """Yield the lines of a bar; after an error the other bars continue."""
    try:
        yield from bar.measure(lab)
    except Exception as error:  # noqa: BLE001 - reported; the bar is not met
        say(traceback.format_exc())
        pools.close()
        reason = (str(error).splitlines() or [""])[0]
        yield Line(bar.asks, missing=f"failed: {type(error).__name__}: {reason}", failed=True)


def _print(sheets: Sequence[Sheet], facts: dict[str, str], asked: argparse.Namespace) -> None:
    if not sheets:
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        show(sheet, facts, asked.repeat, asked.scale, console)
    if asked.json is not None:
        record: dict[str, Any] = {
            "machine": facts,
            "repeat": asked.repeat,
            "scale": asked.scale,
            "workers": asked.workers,
            "databases": [sheet.record() for sheet in sheets],
        }
        asked.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    width = max(len(bar.name) for bar in BARS)
    listed = "\n".join(f"  {bar.name:{width}}  {', '.join(bar.on)}: {bar.asks}" for bar in BARS)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the performance targets (bars) of this queue, compared with the raw driver and other queues.",
        epilog=_EPILOG.format(bars=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="database to measure, as a SQLAlchemy URL; repeatable. Its user needs the right to create a schema. "
        "Default: SQLite in a temporary folder, and the private PostgreSQL and MariaDB of the test suite",
    )
    parser.add_argument("--only", metavar="NAME,…", help="measure only these bars")
    parser.add_argument("--repeat", type=_positive_whole, default=3, metavar="N", help="runs per side (default 3)")
    parser.add_argument(
        "--scale", type=_positive, default=1.0, metavar="X", help="factor for all sizes (default 1; 0.01 for a trial)"
    )
    parser.add_argument("--workers", type=_positive_whole, default=10, metavar="N", help="number of worker processes (default 10)")
    parser.add_argument(
        "--pgmq", type=sql_of("pgmq"), metavar="FILE", help="the SQL of pgmq, to take part (benchmarks spans --help)"
    )
    parser.add_argument(
        "--old",
        type=_checkout,
        metavar="FOLDER",
        help="another checkout of this project, to take part in bars of claims with processes and migrations of its own",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file too")
    asked = parser.parse_args(arguments)
    if asked.json is not None and not asked.json.parent.is_dir():
        parser.error(f"--json {asked.json}: there is no folder {asked.json.parent}")
    try:
        asked.only = bars(asked.only)
    except ValueError as error:
        parser.error(str(error))
    return asked


def _checkout(name: str) -> Path:
    folder = Path(name).absolute()
    if not (folder / "queue_db" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{name} is not a checkout of this project: it has no queue_db/__init__.py")
    return folder


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
