"""The files that are changed, and the draw of mutants."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).parents[2]

#: Of the question whether the cut of the grid loses anything: area → its files.
GRID = {
    "strategies": ["queue_db/strategies/*.py"],
    "removal": ["queue_db/removal.py"],
    "store": ["queue_db/store/*.py"],
    "verbs": ["queue_db/verbs/*.py"],
    "dialects": ["queue_db/dialects/*.py"],
}
#: Left out of it: what the conformance suite does not use, has tests of its own, or is about other databases.
_NOT_OF_THE_GRID = re.compile(
    r"/(__init__|schema|streams?|staging|stag\w+|schedules|samples|history|insights?|upcoming|controls|presence|worker_registry|progress"
    r"|pieces|windows|recurrence|next_due|mysql|asynchronous|listening|jdbc|pooled|greeting|tabbed|bulk|lab\w*|clock)\.py$"
)

#: Of the mutation score: area → its files, all of them.
SCORE = {
    "strategies": ["queue_db/strategies/*.py"],
    "store": ["queue_db/store/**/*.py"],
    "verbs": ["queue_db/verbs/*.py"],
    "spark": ["queue_db/spark/writer.py", "queue_db/spark/stream_reader.py", "queue_db/spark/batch_reader.py"],
}


def files_of(patterns: Sequence[str]) -> list[str]:
    """The paths that match, from the top of the checkout."""
    return sorted({str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)})


def mutants_of(areas: Mapping[str, Sequence[str]]) -> dict[str, list[Mutant]]:
    """Area → all its mutants."""
    paths = {
        area: [path for path in files_of(patterns) if areas is SCORE or not _NOT_OF_THE_GRID.search(path)]
        for area, patterns in areas.items()
    }
    return {area: [one for path in found for one in mutants(path, (ROOT / path).read_text())] for area, found in paths.items()}


def drawn(every: Mapping[str, list[Mutant]], sample: Mapping[str, int], seed: int) -> Iterator[tuple[Mutant, str]]:
    """``sample`` mutants of each area, mixed, so that a run that ends early has some of each."""
    found: list[tuple[float, Mutant, str]] = []
    for area, all_of_it in every.items():
        count = min(sample.get(area, 0), len(all_of_it))
        print(f"{area}: {len(all_of_it)} mutants, {count} drawn")
        some = random.Random(f"{seed} {area}").sample(all_of_it, count)
        found += [((number + 0.5) / count, one, area) for number, one in enumerate(some)]
    yield from ((one, area) for _, one, area in sorted(found, key=lambda entry: entry[0]))
