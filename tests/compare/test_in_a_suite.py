"""``queue_db.testing.compare``: locking strategies compared in a test suite."""

import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update

from queue_db import ConfigurationError, Optimistic, Pessimistic
from queue_db.compare.product import QUEUE
from queue_db.errors import ArgumentError
from queue_db.store.base import Transaction
from queue_db.testing import compare
from tests.patience import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"], scope="session")
def test_the_test_of_the_docs_is_short_and_passes(fresh_url, tmp_path):
    (block,) = re.findall(r"```python\n(from queue_db.testing import compare\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    (tmp_path / "test_strategies.py").write_text(block.replace("sqlite:///compare.db", fresh_url).replace("jobs=200", "jobs=20"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_strategies.py"]
    # The plugins of this environment take longer to import than the test runs.
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_there_is_a_row_for_each_combination(kind, fresh_url):
    rows = compare(
        [fresh_url],
        strategies=[partial(Optimistic, window=3), "skip_locked"],
        removals=["delete", "lock_then_delete"],
        jobs=20,
        workers=2,
        kind="threads",
    )
    assert [(row.strategy, row.removal) for row in rows] == [
        (strategy, removal) for strategy in ("optimistic", "skip_locked") for removal in ("delete", "lock_then_delete")
    ]
    for row in rows:
        assert "***" in row.url or kind == "sqlite"
        if row.refused:
            assert kind == "sqlite"
            assert row.executions == row.jobs == row.jobs_per_second == 0
            continue
        assert row.finished
        assert (row.jobs, row.executions, row.duplicates, row.lost) == (20, 20, 0, 0)
        assert row.jobs_per_second > 0
        assert row.displacement <= row.max_displacement < 20
    refused = {row.strategy for row in rows if row.refused}
    assert refused == ({"skip_locked"} if kind == "sqlite" else set())


@dataclass
class Careless:
    """Makes the first job that it claims due again at once, and works when another worker has claimed that job too."""

    name: str = "careless"
    needs = frozenset()
    met = False
    both_have_it = threading.Barrier(2)

    def claim(self, tx: Transaction, request):
        tx.begin()
        result = Optimistic(window=1).claim(tx, request)
        jobs = tx.tables.jobs
        if request.queue == QUEUE and not self.met:
            tx.connection.execute(update(jobs).where(jobs.c.id.in_([row.id for row in result.rows])).values(available_at=0))
        return result

    def observe(self, result):
        if result.queue == QUEUE and result.rows and not self.met:
            self.met = True
            self.both_have_it.wait(PATIENCE)


def test_a_strategy_that_gives_a_job_to_two_workers_is_seen(tmp_path):
    url = f"sqlite:///{tmp_path}/queue.db"
    (careless,) = compare(url, strategies=[Careless], jobs=10, workers=2, work_ms=2, kind="threads", limit=PATIENCE)
    (sound,) = compare(url, strategies=["optimistic"], jobs=10, workers=2, work_ms=2, kind="threads", limit=PATIENCE)
    assert careless.duplicates > 0
    assert careless.executions > careless.jobs
    assert careless.lost > 0
    assert (sound.duplicates, sound.executions, sound.lost) == (0, 10, 0)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"strategies": ["optimist"]}, ConfigurationError, "unknown strategy 'optimist'"),
        ({"strategies": [Pessimistic()]}, ArgumentError, r"functools.partial\(Pessimistic\), not an object"),
        ({"strategies": [lambda: Optimistic(window=2)]}, ArgumentError, "cannot be sent to a worker process"),
        ({"removals": ["shred"]}, ConfigurationError, "unknown removal 'shred'"),
        ({"removals": "delete"}, ArgumentError, r"removals='delete': must be a list, such as \['delete'\]"),
        ({"strategies": "adaptive"}, ArgumentError, r"strategies='adaptive': must be a list, such as \['adaptive'\]"),
        ({"removals": []}, ArgumentError, "at least one"),
        ({"urls": []}, ArgumentError, "at least one database"),
        ({"workers": 0}, ArgumentError, "workers"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_made(tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        compare(**({"urls": f"sqlite:///{tmp_path}/queue.db", "jobs": 8} | changes))
    assert list(tmp_path.iterdir()) == []
