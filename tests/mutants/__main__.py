"""Change the code in many small ways, one at a time, and see which tests fail.

    python -m tests.mutants --sample 20 --seconds 1800 --results mutants.jsonl

Each mutant runs in a copy of the checkout: first the conformance suite as ``make test`` runs it (``cut``), then the tests beside it
that are about the same code (``other``). A mutant of one database's dialect runs on that database, the others run on ``--kinds``.

``--check-rest`` then runs the cells of the grid that ``make test`` leaves out, with all mutants that the cut did not detect applied
together: one run instead of many, because hardly any is detected there. If it fails, the mutants are halved until each detected one
is found. Such a mutant shows that the cut is wrong: the exit status is 1.

Results are appended to a file, and its mutants are not run again: an interrupted run goes on where it ended. One process; run it
with ``nice``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import alembic.command  # noqa: F401 - for the processes that are forked
import psycopg2  # noqa: F401
import pytest
import sqlalchemy.orm  # noqa: F401

from tests.mutants.mutate import Mutant, mutants
from tests.servers import provide

ROOT = Path(__file__).parents[2]
KINDS = ("sqlite", "postgresql", "mysql", "mariadb")
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
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="only mutants with such a path")
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="mutants of each area, drawn at random (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further mutant after this time (3600)")
    parser.add_argument("--check-rest", action="store_true", help="run the rest of the grid for what the cut does not detect")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the steps without a change first")
    parser.add_argument("--only-cut", action="store_true", help="run no tests beside the conformance suite")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["sqlite", "postgresql"], help="databases (sqlite postgresql)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a step counts as failed (600)")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="where results are appended (mutants.jsonl)")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    steps = ["cut"] if asked.only_cut else ["cut", "other"]
    server = provide("postgresql", durable=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), server.url(), asked.kinds, asked.limit)
            if not asked.no_baseline:
                bench.baseline([*steps, "rest"] if asked.check_rest else steps)
            for mutant, area in _drawn(asked.areas, asked.only, asked.sample, asked.seed):
                if time.monotonic() > end:
                    print("The time is over.")
                    break
                if mutant.name not in _read(asked.results):
                    _append(asked.results, bench.try_out(mutant, steps) | {"area": area})
            if asked.check_rest:
                done = _read(asked.results)
                every = [one for area in AREAS for one in _mutants_of(area)]
                unseen = [one for one in every if one.name in done and done[one.name]["detected"] != "cut"]
                lost = _detected_by_rest(bench, unseen)
                for one in unseen:
                    _append(asked.results, done[one.name] | {"rest": "detected" if one in lost else "not detected"})
    finally:
        server.remove()
    return _report(_read(asked.results).values())


def _detected_by_rest(bench: Bench, unseen: list[Mutant]) -> list[Mutant]:
    """Those that the rest of the grid detects, by halves."""
    if not unseen or not bench.rest_fails(unseen):
        return []
    if len(unseen) == 1:
        return unseen
    half = len(unseen) // 2
    return _detected_by_rest(bench, unseen[:half]) + _detected_by_rest(bench, unseen[half:])


def _mutants_of(area: str) -> list[Mutant]:
    paths = sorted(str(path.relative_to(ROOT)) for pattern in AREAS[area] for path in ROOT.glob(pattern))
    return [one for path in paths if not LEFT_OUT.search(path) for one in mutants(path, (ROOT / path).read_text())]


def _drawn(areas: list[str], only: re.Pattern[str], sample: int, seed: int) -> Iterator[tuple[Mutant, str]]:
    """The mutants of each area in turn, so that a run that ends early has some of each."""
    columns = []
    for area in areas:
        every = [one for one in _mutants_of(area) if only.search(one.path)]
        print(f"{area}: {len(every)} mutants, {min(sample, len(every))} drawn")
        columns.append([(one, area) for one in random.Random(f"{seed} {area}").sample(every, min(sample, len(every)))])
    for number in range(sample):
        yield from (column[number] for column in columns if number < len(column))


class Bench:
    """A copy of the checkout, in which one file at a time is changed."""

    def __init__(self, folder: Path, url: str, kinds: list[str], limit: float) -> None:
        self._folder = folder
        self._kinds = kinds
        self._limit = limit
        self._environment = {"QUEUE_DB_TEST_POSTGRES_URL": url, "PYTHONPATH": str(folder)}
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(source, folder / name)

    def baseline(self, steps: list[str]) -> None:
        """Run the steps on the code as it is.

        :raises SystemExit: one fails.
        """
        for step in steps:
            began = time.monotonic()
            answer, output = self._run(step, self._kinds)
            print(f"{step}: {time.monotonic() - began:.0f} s without a change", flush=True)
            if answer != 0:
                raise SystemExit(f"{step} fails without a change:\n{output[-3000:]}")

    def try_out(self, mutant: Mutant, steps: list[str]) -> dict[str, object]:
        """Run the steps on one mutant until one of them fails."""
        began = time.monotonic()
        detected, by = None, ""
        kinds = self._kinds_of([mutant])
        with self._changed([mutant]):
            for step in steps:
                answer, output = self._run(step, kinds)
                if answer != 0:
                    detected, by = step, _first_failure(output) if answer else "it did not end"
                    break
        seconds = round(time.monotonic() - began, 1)
        print(f"{detected or 'SURVIVED':8} {seconds:6} s  {mutant.name}  {by}", flush=True)
        return {"name": mutant.name, "detected": detected, "by": by, "seconds": seconds, "steps": steps, "on": kinds}

    def rest_fails(self, together: list[Mutant]) -> bool:
        """Whether the rest of the grid detects one of these mutants."""
        began = time.monotonic()
        with self._changed(together):
            answer, output = self._run("rest", self._kinds_of(together))
        by = _first_failure(output) if answer else "" if answer == 0 else "it did not end"
        print(f"rest: {len(together)} together, {time.monotonic() - began:.0f} s: {by or 'no failure'}", flush=True)
        return answer != 0

    def _kinds_of(self, together: list[Mutant]) -> list[str]:
        own = {Path(one.path).stem for one in together}
        return [kind for kind in KINDS if kind in own or (kind in self._kinds and own - set(KINDS))]

    @contextmanager
    def _changed(self, together: list[Mutant]) -> Iterator[None]:
        """The copy with these mutants in it; of two that overlap only the last one."""
        before: dict[Path, str] = {}
        try:
            for path in {one.path for one in together}:
                file = self._folder / path
                before[file] = text = file.read_text()
                begin = len(text.encode())
                for one in sorted((one for one in together if one.path == path), key=lambda one: -one.start):
                    if one.end <= begin:
                        text, begin = one.applied(text), one.start
                self._write(file, text)
            yield
        finally:
            for file, text in before.items():
                self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # it goes by size and second, which may be those of the text before

    def _run(self, step: str, kinds: list[str]) -> tuple[int | None, str]:
        """Exit status (None: it was ended at the limit) and output."""
        others = " and ".join(f"not {kind}" for kind in KINDS if kind not in kinds)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-k", others]
        with tempfile.TemporaryFile("w+") as output:
            sys.stdout.flush()
            pid = os.fork()  # with pytest and the drivers imported: half of the time of a short run
            if pid == 0:
                self._become_pytest([*options, *STEPS[step]], output.fileno())
            answer = _wait(pid, self._limit)
            output.seek(0)
            text = output.read()
        if answer == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise SystemExit(f"{step} on {kinds} has no tests:\n{text[-3000:]}")
        return answer, text

    def _become_pytest(self, arguments: list[str], output: int) -> NoReturn:
        status = 3
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self._folder)
            os.environ |= self._environment
            sys.path[:] = [str(self._folder), *(path for path in sys.path if path not in {"", str(ROOT)})]
            for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", "tools", "queue_db"}]:
                del sys.modules[name]
            status = int(pytest.main(arguments))
        except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(status)


def _wait(pid: int, limit: float) -> int | None:
    """The exit status of a child, or None if it had to be ended; its own children end with it."""
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
    except BaseException:
        os.killpg(pid, signal.SIGKILL)
        raise
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _first_failure(output: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return found[1] if found else "the tests cannot be collected"


def _read(results: Path) -> dict[str, dict[str, object]]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def _append(results: Path, record: dict[str, object]) -> None:
    with results.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _report(records: object) -> int:
    records = list(records)  # type: ignore[call-overload]
    for area in AREAS:
        mine = [record for record in records if record["area"] == area]
        if mine:
            by = Counter(record["detected"] for record in mine)
            killed = len(mine) - by[None]
            print(f"{area}: {killed} of {len(mine)} detected ({100 * killed / len(mine):.0f} %), {by['cut']} by the cut grid")
    checked = [record for record in records if record["detected"] == "cut" or "rest" in record]
    lost = [record["name"] for record in checked if record.get("rest") == "detected"]
    print(f"Cut and whole grid compared for {len(checked)}. Detected by the rest of the grid alone: {len(lost)}", *lost, sep="\n  ")
    print("Survived:", *(record["name"] for record in records if record["detected"] is None), sep="\n  ")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
