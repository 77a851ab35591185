"""The changes that the mutants make."""

from __future__ import annotations

import ast

from tests.mutants.mutate import mutants

SOURCE = '''
Pairs = Sequence[tuple[int, int]]

def held(jobs: Table, limit: int = 2) -> Select | None:
    """Text stays."""
    if limit < 1 and jobs:
        raise ValueError(f"{limit + 1}")
    values = {"a": 1, "ü": not jobs}
    jobs.note(values)
    return select(jobs).where(jobs.a == limit, jobs.b).order_by(jobs.a)
'''


def changed() -> list[str]:
    return [one.applied(SOURCE) for one in mutants("held.py", SOURCE)]


def test_each_change_is_another_program() -> None:
    assert len({ast.dump(ast.parse(text)) for text in [SOURCE, *changed()]}) == len(changed()) + 1


def test_what_is_changed() -> None:
    lines = {line.strip() for text in changed() for line in text.splitlines() if line not in SOURCE.splitlines()}
    assert lines == {
        "def held(jobs: Table, limit: int = 3) -> Select | None:",
        "if not (limit < 1 and jobs):",
        "if ((limit < 1) or (jobs)):",
        "if limit <= 1 and jobs:",
        "if limit < 2 and jobs:",
        'values = {"ü": not jobs}',
        'values = {"a": 1}',
        'values = {"a": 2, "ü": not jobs}',
        'values = {"a": 1, "ü": (jobs)}',
        "pass",
        "return select(jobs).where(jobs.b).order_by(jobs.a)",
        "return select(jobs).where(jobs.a == limit).order_by(jobs.a)",
        "return select(jobs).where(jobs.a != limit, jobs.b).order_by(jobs.a)",
    }


def test_a_mutant_is_named_by_its_place() -> None:
    names = [one.name for one in mutants("held.py", SOURCE)]
    assert "held.py:6: limit < 1 -> limit <= 1" in names
    assert len(set(names)) == len(names)


def test_each_mutant_of_an_assignment_in_an_expression_is_a_program() -> None:
    found = mutants("held.py", "if (one := first()) is not None:\n    use(one)\n")
    assert found
    for one in found:
        ast.parse(one.applied("if (one := first()) is not None:\n    use(one)\n"))
