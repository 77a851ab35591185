"""Does the cut of the conformance suite's grid lose anything?"""

from __future__ import annotations

import time
from pathlib import Path

from tests.databases import KINDS
from tests.mutants.areas import GRID, mutants_of
from tests.mutants.bench import Bench, first_failure
from tests.mutants.mutate import Mutant
from tests.mutants.results import Record, append, read

_SUITE = ["tests/conformance/test_every_combination.py", "tests/conformance/test_pop.py"]


class Grid:
    """The suite on mutants: the cut on one at a time, the rest on many together."""

    def __init__(self, bench: Bench, kinds: list[str]) -> None:
        self._bench = bench
        self._kinds = kinds

    def baseline(self, grid: str) -> None:
        """Run it without a change.

        :raises SystemExit: it fails.
        """
        began = time.monotonic()
        answer, output = self._bench.pytest([*_SUITE, "--grid", grid], self._kinds)
        print(f"{grid}: {time.monotonic() - began:.0f} s without a change", flush=True)
        if answer != 0:
            raise SystemExit(f"{grid} fails without a change:\n{output[-3000:]}")

    def try_cut(self, mutant: Mutant) -> Record:
        """Run the cut on a mutant."""
        began = time.monotonic()
        kinds = self._kinds_of([mutant])
        with self._bench.changed([mutant]):
            answer, output = self._bench.pytest([*_SUITE, "--grid", "cut"], kinds)
        by = first_failure(output) if answer != 0 else ""
        seconds = round(time.monotonic() - began, 1)
        print(f"{'cut' if answer else 'SURVIVED':8} {seconds:6} s  {mutant.name}  {by}", flush=True)
        return {"name": mutant.name, "detected": "cut" if answer != 0 else None, "by": by, "seconds": seconds, "on": kinds}

    def try_rest(self, results: Path) -> None:
        """Run the rest on all mutants of the file that the cut did not detect, and append what it detects."""
        done = read(results)
        every = [one for some in mutants_of(GRID).values() for one in some]
        unseen = [one for one in every if one.name in done and done[one.name]["detected"] != "cut"]
        lost = self._detected_by_rest(unseen)
        for one in unseen:
            append(results, done[one.name] | {"rest": "detected" if one in lost else "not detected"})

    def _detected_by_rest(self, unseen: list[Mutant]) -> list[Mutant]:
        """Those that the rest of the grid detects, by halves: hardly any is, so that one run is enough for many."""
        if not unseen or not self._rest_fails(unseen):
            return []
        if len(unseen) == 1:
            return unseen
        half = len(unseen) // 2
        return self._detected_by_rest(unseen[:half]) + self._detected_by_rest(unseen[half:])

    def _rest_fails(self, together: list[Mutant]) -> bool:
        began = time.monotonic()
        with self._bench.changed(together):
            answer, output = self._bench.pytest([*_SUITE, "--grid", "rest"], self._kinds_of(together))
        by = first_failure(output) if answer != 0 else ""
        print(f"rest: {len(together)} together, {time.monotonic() - began:.0f} s: {by or 'no failure'}", flush=True)
        return answer != 0

    def _kinds_of(self, together: list[Mutant]) -> list[str]:
        own = {Path(one.path).stem for one in together}
        return [kind for kind in KINDS if kind in own or (kind in self._kinds and own - set(KINDS))]


def report(results: Path) -> int:
    """Print what was found; 1 if the rest detects what the cut does not."""
    records = list(read(results).values())
    checked = [record for record in records if record["detected"] == "cut" or "rest" in record]
    lost = [str(record["name"]) for record in checked if record.get("rest") == "detected"]
    cut = sum(record["detected"] == "cut" for record in records)
    print(f"{cut} of {len(records)} are detected by the cut.")
    print(f"Cut and whole grid compared for {len(checked)}. Detected by the rest of the grid alone: {len(lost)}", *lost, sep="\n  ")
    return 1 if lost else 0
