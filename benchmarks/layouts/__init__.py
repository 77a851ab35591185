"""Layouts of the jobs and of the index that a claim reads, beside the product's: ``python -m benchmarks layouts``."""

from benchmarks.layouts.program import main

__all__ = ["main"]
