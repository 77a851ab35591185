"""Change the code in many small ways, one at a time, and see which tests fail.

    python -m tests.mutants score --sample strategies=24 store=60 --results score.jsonl
    python -m tests.mutants grid --sample strategies=20 store=20 --rest --results grid.jsonl

``score`` measures how much the tests detect: each mutant runs the tests that reach its line. ``grid`` compares the cut of the
conformance suite that ``make test`` runs with the whole of it: exit status 1 if the rest detects a mutant that the cut does not.

Each mutant runs in a copy of the checkout. Results are appended to a file, and its mutants are not run again: an interrupted run
goes on where it ended. One process; run it with ``nice``.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.databases import KINDS
from tests.mutants import grid, score
from tests.mutants.areas import GRID, ROOT, SCORE, drawn, mutants_of
from tests.mutants.bench import Bench
from tests.mutants.mutate import Mutant
from tests.mutants.reached import Reached
from tests.mutants.results import append, read
from tests.servers import provide


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, areas, what in (("score", SCORE, score.__doc__), ("grid", GRID, grid.__doc__)):
        one = commands.add_parser(name, description=what, formatter_class=argparse.RawTextHelpFormatter)
        one.add_argument(
            "--sample", nargs="+", default=[f"{area}=20" for area in areas], metavar="AREA=N", help="mutants drawn (20 of each)"
        )
        one.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="only mutants with such a name")
        one.add_argument("--seed", type=int, default=1, help="of the draw (1)")
        one.add_argument("--seconds", type=float, default=3600.0, help="begin no further mutant after this time (3600)")
        one.add_argument("--limit", type=float, default=600.0, help="seconds after which a step counts as failed (600)")
        one.add_argument("--results", type=Path, default=Path(f"{name}.jsonl"), help=f"where results are appended ({name}.jsonl)")
        if name == "score":
            one.add_argument("--steps", nargs="+", choices=score.STEPS, default=list(score.STEPS[:4]), help="(the first four)")
            one.add_argument("--budget", type=float, default=60.0, help="seconds of the tests that are chosen for a mutant (60)")
            one.add_argument(
                "--reached", type=Path, default=Path("reached.json"), help="which tests reach which lines (reached.json)"
            )
            one.add_argument("--survivors", action="store_true", help="only mutants that survived the steps that they have had")
            one.add_argument("--tests", nargs="+", default=[], help="files of the step 'new'")
        else:
            one.add_argument("--rest", action="store_true", help="then run the rest of the grid on what the cut does not detect")
            one.add_argument(
                "--kinds", nargs="+", choices=KINDS, default=["sqlite", "postgresql"], help="databases (sqlite postgresql)"
            )
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for."""
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the server ends too
    server = provide("postgresql", durable=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), server.url(), asked.limit)
            return _score(bench, asked) if asked.command == "score" else _grid(bench, asked)
    finally:
        server.remove()


def _score(bench: Bench, asked: argparse.Namespace) -> int:
    if not asked.reached.exists():
        score.record_reached(bench, asked.reached)
    one = score.Score(bench, Reached(asked.reached, ROOT), asked.budget, asked.tests)
    for mutant, area in _in_time(asked):
        before = read(asked.results).get(mutant.name, {"area": area})
        known = "seconds" in before
        if score.wanted(before, asked.steps) if known else not asked.survivors:
            append(asked.results, one.try_out(mutant, asked.steps, before))
    return score.report(asked.results)


def _grid(bench: Bench, asked: argparse.Namespace) -> int:
    one = grid.Grid(bench, asked.kinds)
    one.baseline("cut")
    if asked.rest:
        one.baseline("rest")
    for mutant, area in _in_time(asked):
        if mutant.name not in read(asked.results):
            append(asked.results, one.try_cut(mutant) | {"area": area})
    if asked.rest:
        one.try_rest(asked.results)
    return grid.report(asked.results)


def _in_time(asked: argparse.Namespace) -> Iterator[tuple[Mutant, str]]:
    """The drawn mutants, until the time is over."""
    end = time.monotonic() + asked.seconds
    every = mutants_of(SCORE if asked.command == "score" else GRID)
    sample = {area: int(count) for area, _, count in (part.partition("=") for part in asked.sample)}
    for mutant, area in drawn(every, sample, asked.seed):
        if time.monotonic() > end:
            print("The time is over.")
            return
        if asked.only.search(mutant.name):
            yield mutant, area


if __name__ == "__main__":
    sys.exit(main())
