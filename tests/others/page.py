"""Write docs/integrations/suites.md from the stored results of the runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations" / "suites.md"

#: The first and last words of the page; the table is between them.
_TEXT = """# Suites of others

The adapters run the test suites of the projects that they are for, on private servers. A test that fails without a reason
below fails the run, and so does one with a reason that passes. `python -m tests.others NAME --on KIND` runs one again,
with `--newest` on the newest Python of Debian.

| suite | version | database | date | passed | failed | skipped |
|---|---|---|---|---|---|---|
{rows}
{adapted}{differences}"""


def store(result: Mapping[str, Any]) -> None:
    """Keep the result of a run: one file per suite and database."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1, sort_keys=True) + "\n"
    newest = "-newest" if result["beside"] else ""
    (RESULTS / f"{result['suite']}-{result['kind']}{newest}.json").write_text(text, encoding="utf-8")


def stored() -> list[dict[str, Any]]:
    """The results of the latest runs, by suite and database."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of the page."""
    columns = ("suite", "version", "database", "date", "passed", "failed", "skipped")
    shown = [{**one, "version": ", ".join(filter(None, (one["version"], one.get("beside"))))} for one in results]
    rows = ["| " + " | ".join(str(one[column]) for column in columns) + " |" for one in shown]
    adapted = sorted({f"- {one['suite']}: {one['adapted']}" for one in results if one.get("adapted")})
    reasons: dict[str, dict[str, list[str]]] = {}
    databases: dict[str, list[str]] = {}
    for one in results:
        database = " of ".join(filter(None, (one["database"].split()[0], one.get("beside"))))
        databases.setdefault(one["suite"], []).append(database)
        for test, reason in one["differences"].items():
            tests = reasons.setdefault(f"{one['suite']}: {reason}", {})
            tests.setdefault(test.rpartition("::")[2], []).append(database)
    lines = [f"- {reason} ({_tests(tests, databases[reason.partition(':')[0]])})" for reason, tests in sorted(reasons.items())]
    left = sorted({f"- {one['suite']}: {reason} (`{test}`)" for one in results for test, reason in one.get("left_out", {}).items()})
    return _TEXT.format(
        rows="\n".join(rows),
        adapted=_section("How far they are adapted", adapted),
        differences=_section("Why some fail", lines) + _section("What is left out", left),
    )


def _section(title: str, lines: Sequence[str]) -> str:
    return f"\n## {title}\n\n" + "\n".join(lines) + "\n" if lines else ""


def _tests(tests: Mapping[str, Sequence[str]], databases: Sequence[str]) -> str:
    """The tests, by the databases on which they fail, unless those are all of the suite."""
    by_databases: dict[tuple[str, ...], list[str]] = {}
    for test, on in tests.items():
        by_databases.setdefault(tuple(on), []).append(f"`{test}`")
    return "; ".join(
        ", ".join(names) + ("" if list(on) == databases else f" on {', '.join(on)}") for on, names in by_databases.items()
    )


def write() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(stored()), encoding="utf-8")
