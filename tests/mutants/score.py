"""The mutation score: the share of mutants that the tests detect which are about the changed line.

Each mutant runs the steps in turn until one detects it:

- ``sqlite``: the tests that reach the line on SQLite (``reached.py``), cheap ones first, up to ``--budget`` seconds
- ``beside``: files of ``BESIDE``, for code that runs in processes of its own or in migrations
- ``golden``: the golden SQL
- ``postgresql``: the same on PostgreSQL, with tests that need a server
- ``new``: the files of ``--tests``, on SQLite: tests that were written since

A mutant that survived some steps is run again with steps that it has not had.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.mutants.areas import SCORE, files_of, mutants_of
from tests.mutants.bench import Bench, Chosen, first_failure
from tests.mutants.mutate import Mutant
from tests.mutants.reached import Reached, Recorder
from tests.mutants.results import Record, read

STEPS = ("sqlite", "beside", "golden", "postgresql", "new")

#: What is recorded. Left out: tests of minutes, of Spark's own processes, of the documents and of the comparison. A test of
#: tests/negative runs a test of another folder, and is slow when it is recorded.
TESTS = [
    "tests/properties",
    "tests/staging",
    "tests/streams",
    "tests/conformance/test_every_combination.py",
    "tests/conformance/test_pop.py",
    "tests/races",
    "tests/faults",
    "tests/plans",
    "tests/worker",
    "tests/cli",
    "tests/aio/test_verbs.py",
    "tests/migrations/test_tables.py",
    "tests/migrations/test_view.py",
    "tests/migrations/test_migrate.py",
    "tests/spark",
    "--ignore=tests/spark/test_spark_cluster.py",
    "--ignore=tests/spark/test_spark_demo.py",
    "--ignore=tests/spark/test_spark_kills.py",
    "--ignore=tests/worker/test_worker_storms.py",
    "--ignore=tests/worker/test_worker_supervisor.py",
]

#: What is also recorded on PostgreSQL: lost connections, row locks, notifications.
SERVERS = [
    "tests/faults/test_contention.py",
    "tests/faults/test_failover.py",
    "tests/faults/test_network.py",
    "tests/faults/test_prepared.py",
    "tests/plans/test_delete_on_claim.py",
    "tests/plans/test_prepared_plans.py",
    "tests/races",
    "tests/staging/test_publication_faults.py",
    "tests/staging/test_publication_loses.py",
    "tests/streams/test_stream_loses.py",
    "tests/worker/test_claim_unless.py",
    "tests/worker/test_worker_outages.py",
    "tests/worker/test_worker_queues.py",
]

#: Beginning of a path → the files of tests that are about it beside those of the record.
BESIDE = {
    "queue_db/spark/writer.py": ["tests/spark/test_spark_source.py", "tests/spark/test_spark_streams.py"],
    "queue_db/spark/batch_reader.py": ["tests/spark/test_spark_source.py"],
    "queue_db/spark/stream_reader.py": ["tests/spark/test_spark_streams.py", "tests/spark/test_spark_stream_ends.py"],
    "queue_db/verbs/claim": ["tests/aio/test_cancelled.py"],
    "queue_db/store/schema/": [
        "tests/migrations/test_tables.py",
        "tests/migrations/test_view.py",
        "tests/migrations/test_migrate.py",
    ],
}


class Score:
    """The steps on one mutant at a time."""

    def __init__(self, bench: Bench, reached: Reached, budget: float, new: Sequence[str]) -> None:
        self._bench = bench
        self._reached = reached
        self._budget = budget
        self._new = list(new)

    def try_out(self, mutant: Mutant, steps: Sequence[str], before: Record) -> Record:
        """Run those of the steps that the mutant has not had, until one detects it."""
        began = time.monotonic()
        record: Record = {"name": mutant.name, "steps": [], "seconds": 0.0, "tests": 0, **before, "detected": None}
        record["reached"] = self._reached.reaches(mutant)
        with self._bench.changed([mutant]):
            for step in steps:
                if step in record["steps"] and step != "new":
                    continue
                answer, output, count = self._run(step, mutant)
                record |= {"steps": [*record["steps"], step], "tests": record["tests"] + count}
                if answer != 0:
                    record |= {"detected": step, "by": output.partition("\n")[0] if step == "golden" else first_failure(output)}
                    break
        record["seconds"] = round(record["seconds"] + time.monotonic() - began, 1)
        print(f"{record['detected'] or 'SURVIVED':10} {record['seconds']:6} s  {mutant.name}  {record.get('by', '')}", flush=True)
        return record

    def _run(self, step: str, mutant: Mutant) -> tuple[int | None, str, int]:
        """Exit status, output, and how many tests were chosen."""
        match step:
            case "golden":
                return *self._bench.run(_check_golden_files), 0
            case "new" | "beside":
                files = (
                    self._new
                    if step == "new"
                    else [file for path, some in BESIDE.items() if mutant.path.startswith(path) for file in some]
                )
                return (*self._bench.pytest(files, ["sqlite"]), 0) if files else (0, "", 0)
            case _:
                return self._run_chosen(self._reached.tests(mutant, self._budget, step), step)

    def _run_chosen(self, chosen: list[str], kind: str) -> tuple[int | None, str, int]:
        """Run them up to the first failure, those of a few files first."""
        first = self._reached.about(chosen)
        for some in (first, [nodeid for nodeid in chosen if nodeid not in first]):
            answer, output = self._run_in_order(some, kind)
            if answer != 0:
                return answer, output, len(chosen)
        return 0, "", len(chosen)

    def _run_in_order(self, chosen: list[str], kind: str) -> tuple[int | None, str]:
        """Run them up to the first failure, which a second run of that test alone has to confirm if it may be one of time."""
        while chosen:
            answer, output = self._run_these(chosen, kind)
            failed = first_failure(output).partition(" ")[0]
            if answer == 0 or failed not in chosen or not _OF_TIME.match(failed) or self._run_these([failed], kind)[0] != 0:
                return answer, output
            chosen = chosen[chosen.index(failed) + 1 :]
        return 0, ""

    def _run_these(self, chosen: list[str], kind: str) -> tuple[int | None, str]:
        files = list(dict.fromkeys(nodeid.partition("::")[0] for nodeid in chosen))
        answer, output = self._bench.pytest(files, [kind], partial(Chosen, chosen, self._reached.seconds))
        return 0 if answer == _NO_TESTS else answer, output


_NO_TESTS = 5

# Where tests wait for threads, processes and networks: on a busy machine one of them may fail without a mutant.
_OF_TIME = re.compile(r"tests/(aio|cli|faults|races|worker)/")

# Seconds that the recording may take.
_RECORDING = 7200.0


def _check_golden_files() -> int:
    from tests.sql.__main__ import main  # in the child: with the changed code

    return main(["check"])


def wanted(record: Record, steps: Sequence[str]) -> bool:
    """Whether the mutant of this record has survived and has not had all of the steps."""
    return record["detected"] is None and ("new" in steps or bool(set(steps) - set(record["steps"])))


def record_reached(bench: Bench, to: Path) -> None:
    """Run all tests of the record once, and write it."""
    files = [file for patterns in SCORE.values() for file in files_of(patterns)]
    print("recording which tests reach which lines …", flush=True)
    recorder = partial(Recorder, bench.folder, files, to.resolve(), SERVERS)
    bench.pytest([*TESTS, "--maxfail=1000"], ["sqlite", "postgresql"], recorder, limit=_RECORDING)


def report(results: Path) -> int:
    """Print the score of each area with its 95 % interval, and what survived."""
    records = list(read(results).values())
    sizes = {area: len(every) for area, every in mutants_of(SCORE).items()}
    shares, spread = 0.0, 0.0
    for area, size in sizes.items():
        mine = [record for record in records if record["area"] == area]
        if mine:
            by = Counter(record["detected"] for record in mine)
            killed, total = len(mine) - by[None], len(mine)
            low, high = interval(killed, total)
            steps = ", ".join(f"{step} {by[step]}" for step in STEPS if by[step])
            print(f"{area}: {killed} of {total} = {killed / total:.1%} [{low:.1%}, {high:.1%}] of {size} mutants ({steps})")
            share = (killed + 1) / (total + 2)
            shares += killed / total * size
            spread += size**2 * share * (1 - share) / total
    together = sum(size for area, size in sizes.items() if any(record["area"] == area for record in records))
    if together:
        print(f"all, by the size of the areas: {shares / together:.1%} ± {1.96 * math.sqrt(spread) / together:.1%}")
    print("Survived:", *(_line(record) for record in records if record["detected"] is None), sep="\n  ")
    return 0


def _line(record: Mapping[str, object]) -> str:
    return f"{record['name']}{'' if record['reached'] else ' (no test of the record reaches it)'}"


def interval(killed: int, total: int) -> tuple[float, float]:
    """The interval of Wilson for a share, 95 %."""
    z, share = 1.96, killed / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)
