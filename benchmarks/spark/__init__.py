"""``python -m benchmarks spark``: the Spark data source and ``drain`` compared with Spark's JDBC and a plain Python process."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if every measured bar is met, otherwise 1."""
    # Only now: the measured processes import this package too.
    from benchmarks.spark.program import main

    return main(arguments)
