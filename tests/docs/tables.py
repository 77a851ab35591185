"""The tables of docs/concepts.md, from the code. ``python -m tests.docs.tables`` prints the one that needs no server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from queue_db import QueueDB
from queue_db.dialects import registered
from queue_db.model import Capability
from queue_db.testing import counted_statements
from tests.sql.recording import DATABASES, OLDER

#: The capabilities that a database has or lacks. Whether there are several writers depends on its cluster.
CAPABILITIES = [capability for capability in Capability if capability is not Capability.SEVERAL_WRITERS]

TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}


def capability_table() -> list[str]:
    """One row for each database, one column for each capability."""
    rows = ["| | " + " | ".join(capability.value for capability in CAPABILITIES) + " |", "|---" * (len(CAPABILITIES) + 1) + "|"]
    for name, title in TITLES.items():
        has = registered()[name]().product(SimpleNamespace(is_mariadb=name == "mariadb")).capabilities  # type: ignore[arg-type]
        rows.append(f"| {title} | " + " | ".join("yes" if capability in has else "–" for capability in CAPABILITIES) + " |")
    return rows


def statement_row(kind: str, db: QueueDB, name: str) -> str:
    """Statements of each verb on one database, counted: what is the same for 2, 10 and 100 jobs."""
    counts = [statements(db, f"{name}-{number}", number) for number in (2, 10, 100)]
    assert counts[0] == counts[1] == counts[2], f"the count depends on the number of jobs: {counts}"
    version, written_for = db.database.engine.dialect.server_version_info or (), DATABASES[kind][1]
    # The golden files have statements of their own for it.
    older = any(newer == kind for newer, _ in OLDER.values()) and version < written_for
    title = TITLES[kind] + (f" before {written_for[0]}.{written_for[1]}" if older else "")
    return f"| {title} | " + " | ".join(str(count) for count in counts[0]) + " |"


def statements(db: QueueDB, name: str, number: int) -> list[int]:
    """Statements for ``number`` jobs: claim, complete, fail, extend, enqueue one, enqueue_many."""
    queue = db.queue(name)

    def of(verb: Any) -> int:
        with counted_statements(db.database.engine) as seen:
            verb()
        # A hint to waiting workers is sent now and then, and not for each job.
        return len([statement for statement in seen if not statement.startswith("SELECT pg_notify")])

    queue.enqueue_many(("k", place) for place in range(3 * number))
    jobs: list[Any] = []
    claim = of(lambda: jobs.extend(queue.claim(number)))
    complete = of(lambda: queue.complete_many(jobs))
    extended = queue.claim(number)
    extend = of(lambda: queue.extend_many(extended, 60))
    fail = of(lambda: queue.fail_many(extended, "no"))
    one = of(lambda: queue.enqueue("k", 1))
    many = of(lambda: queue.enqueue_many(("k", place) for place in range(number)))
    return [claim, complete, fail, extend, one, many]


if __name__ == "__main__":
    print("\n".join(capability_table()))
