"""Change the code in many small ways, one at a time, and see which tests fail.

    python -m tests.mutants --sample 20 --seconds 1800 --results mutants.jsonl

Each mutant runs in a copy of the checkout, on SQLite and on one PostgreSQL server; a step runs if the one before did not fail:

cut    the conformance suite as ``make test`` runs it
rest   the cells of the grid that ``make test`` leaves out; with ``--check-rest``
other  the tests beside the conformance suite that are about the same code

A mutant that only ``rest`` detects shows that the cut of the grid is wrong: the exit status is 1. Results are
appended to a file, and its mutants are not run again: an interrupted run goes on where it ended. One process; run it with ``nice``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutate import Mutant, mutants
from tests.servers import provide

ROOT = Path(__file__).parents[2]
COPIED = ("queue_db", "tests", "tools", "migrations", "benchmarks", "pyproject.toml", "README.md")

#: Area → its files.
AREAS = {
    "strategies": ["queue_db/strategies/*.py"],
    "removal": ["queue_db/removal.py"],
    "store": ["queue_db/store/*.py"],
    "verbs": ["queue_db/verbs/*.py"],
    "dialects": ["queue_db/dialects/*.py"],
}
#: Left out: what the conformance suite does not use, has tests of its own, or is about other databases.
LEFT_OUT = re.compile(
    r"/(__init__|schema|streams?|staging|stag\w+|schedules|samples|history|insights?|upcoming|controls|presence|worker_registry|progress"
    r"|pieces|windows|recurrence|next_due|mysql|asynchronous|listening|jdbc|pooled|greeting|tabbed|bulk|lab\w*|clock)\.py$"
)

SUITE = ["tests/conformance/test_every_combination.py", "tests/conformance/test_pop.py"]
OTHER = [
    "tests/properties/test_arguments.py",
    "tests/properties/test_window.py",
    "tests/properties/test_marks.py",
    "tests/races",
    "tests/worker/test_claim_unless.py",
    "tests/worker/test_worker_outcomes.py",
    "tests/faults/test_contention.py",
    "tests/faults/test_payloads.py",
    "tests/faults/test_limits_of_columns.py",
    "tests/plans/test_small_queue.py",
    "tests/plans/test_marked_jobs.py",
    "tests/plans/test_low_water_mark.py",
    "tests/properties/test_interleavings.py",
]
STEPS = {"cut": [*SUITE, "--grid", "cut"], "rest": [*SUITE, "--grid", "rest"], "other": OTHER}


def main() -> int:
    """Run what the command line asks for; 1 if the cut of the grid loses a mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--areas", nargs="+", choices=AREAS, default=list(AREAS))
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="mutants of each area, drawn at random (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further mutant after this time (3600)")
    parser.add_argument("--check-rest", action="store_true", help="run the rest of the grid for what the cut does not detect")
    parser.add_argument("--only-cut", action="store_true", help="run no tests beside the conformance suite")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="where results are appended (mutants.jsonl)")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    steps = ["cut", *(["rest"] if asked.check_rest else []), *([] if asked.only_cut else ["other"])]
    server = provide("postgresql", durable=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), server.url())
            limits = {step: 60 + 4 * bench.baseline(step) for step in steps}
            done = _read(asked.results)
            for mutant, area in _drawn(asked.areas, asked.sample, asked.seed):
                if time.monotonic() > end:
                    print("The time is over.")
                    break
                if mutant.name not in done:
                    record = bench.try_out(mutant, steps, limits) | {"area": area}
                    with asked.results.open("a") as file:
                        file.write(json.dumps(record) + "\n")
    finally:
        server.remove()
    return _report(_read(asked.results).values())


def _drawn(areas: list[str], sample: int, seed: int) -> Iterator[tuple[Mutant, str]]:
    """The mutants of each area in turn, so that a run that ends early has some of each."""
    columns = []
    for area in areas:
        paths = sorted(str(path.relative_to(ROOT)) for pattern in AREAS[area] for path in ROOT.glob(pattern))
        every = [one for path in paths if not LEFT_OUT.search(path) for one in mutants(path, (ROOT / path).read_text())]
        print(f"{area}: {len(every)} mutants, {min(sample, len(every))} drawn")
        columns.append([(one, area) for one in random.Random(f"{seed} {area}").sample(every, min(sample, len(every)))])
    for number in range(sample):
        yield from (column[number] for column in columns if number < len(column))


class Bench:
    """A copy of the checkout, in which one file at a time is changed."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environment = os.environ | {"QUEUE_DB_TEST_POSTGRES_URL": url, "PYTHONPATH": str(folder)}
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, folder / name)

    def baseline(self, step: str) -> float:
        """How long a step takes on the code as it is.

        :raises SystemExit: it fails.
        """
        took, answer, output = self._run(step, 1800.0)
        print(f"{step}: {took:.0f} s without a change", flush=True)
        if answer != 0:
            raise SystemExit(f"{step} fails without a change:\n{output[-3000:]}")
        return took

    def try_out(self, mutant: Mutant, steps: list[str], limits: dict[str, float]) -> dict[str, object]:
        """Run the steps on one mutant until one of them fails."""
        file = self._folder / mutant.path
        source = file.read_text()
        began = time.monotonic()
        detected, by = None, ""
        try:
            self._write(file, mutant.applied(source))
            for step in steps:
                _, answer, output = self._run(step, limits[step])
                if answer != 0:
                    detected, by = step, _first_failure(output) if answer else "it did not end"
                    break
        finally:
            self._write(file, source)
        record = {
            "name": mutant.name,
            "detected": detected,
            "by": by,
            "seconds": round(time.monotonic() - began, 1),
            "steps": steps,
        }
        print(f"{detected or 'SURVIVED':8} {record['seconds']:6} s  {mutant.name}  {by}", flush=True)
        return record

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # it goes by size and second, which may be those of the text before

    def _run(self, step: str, limit: float) -> tuple[float, int | None, str]:
        """Seconds, exit status (None: it was ended at the limit) and output."""
        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", "-k", "not mysql and not mariadb"]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *STEPS[step]],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                answer: int | None = process.wait(limit)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                answer = None
            output.seek(0)
            return time.monotonic() - began, answer, output.read()


def _first_failure(output: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return found[1] if found else "the tests cannot be collected"


def _read(results: Path) -> dict[str, dict[str, object]]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def _report(records: object) -> int:
    records = list(records)  # type: ignore[call-overload]
    for area in AREAS:
        mine = [record for record in records if record["area"] == area]
        if mine:
            by = Counter(record["detected"] for record in mine)
            killed = len(mine) - by[None]
            print(f"{area}: {killed} of {len(mine)} detected ({100 * killed / len(mine):.0f} %), {by['cut']} by the cut grid")
    lost = [record["name"] for record in records if record["detected"] == "rest"]
    print(f"Detected by the whole grid and not by the cut: {len(lost)}", *lost, sep="\n  ")
    print("Survived:", *(record["name"] for record in records if record["detected"] is None), sep="\n  ")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
