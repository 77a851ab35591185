"""The upper end of a chart's scale: the next value that is short as text."""

from __future__ import annotations

from collections.abc import Callable

from queue_db.service.pages import words

# Of a number with two digits.
_TENTHS = (10, 15, 20, 25, 30, 40, 50, 60, 80)
_SPANS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)
_PER_MINUTE = 1 / 60


def top_of(largest: float, text: Callable[[float | None], str]) -> float:
    """The upper end of a scale for values up to ``largest``, which ``text`` shows without rounding."""
    if text is words.span:
        return next((float(one) for one in _SPANS if one >= largest), _next(largest, 86_400))
    if text is words.rate:
        return _next(largest, _PER_MINUTE if largest <= 5 * _PER_MINUTE else 0.1)
    return _next(largest, 1)


def _next(largest: float, unit: float) -> float:
    wanted, power = largest / unit, 1
    while True:
        for tenths in _TENTHS:
            # Whole numbers of the unit: the text has no more digits.
            if tenths * power % 10 == 0 and tenths * power / 10 >= wanted:
                return tenths * power / 10 * unit
        power *= 10
