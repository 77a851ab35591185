"""Rows as the text that PostgreSQL's COPY and MySQL's LOAD DATA read by default: tabs between values, a line for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

Value = str | int | None

_ESCAPED = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_NULL = r"\N"


def written(columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value]) -> str:
    """One line for each row of ``columns``, which are all of the same length; before them stands what is the ``same`` in all."""
    before = "".join([_text(value) + "\t" for value in same.values()])
    texts = list(map(_texts, columns.values()))
    lines = texts[0] if len(texts) == 1 else map("\t".join, zip(*texts, strict=True))
    return before + f"\n{before}".join(lines) + "\n"


def _texts(values: Sequence[Value]) -> Iterable[str]:
    if values and isinstance(values[0], str):
        with suppress(TypeError):  # one is no text
            together = "".join(values)  # type: ignore[arg-type]
            if not any(special in together for special in _ESCAPED):
                return values  # type: ignore[return-value]
    return map(_text, values)


def _text(value: Value) -> str:
    if value is None:
        return _NULL
    if isinstance(value, int):
        return str(value)
    for special, escape in _ESCAPED.items():
        if special in value:
            value = value.replace(special, escape)
    return value
