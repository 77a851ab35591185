"""Numbers, times and payloads as text for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from queue_db.model import Controls
from queue_db.service.api.shapes import DEEPEST, plain, plain_keys

NOTHING = "–"

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))

#: Shown instead of the value of a masked key.
MASK = "•••"


def span(seconds: float | None) -> str:
    """A duration: ``3.2 s``, ``5 min``, ``2 d``."""
    if seconds is None:
        return NOTHING
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.0):.1f} s"


def number(value: float | None) -> str:
    """A count, short enough for a table: ``1,204``, ``34.1k``."""
    if value is None:
        return NOTHING
    for size, unit in _SIZES:
        if abs(value) >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.1f}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:,.0f}"


def rate(per_second: float | None) -> str:
    """Events in a second."""
    if per_second is None:
        return NOTHING
    if per_second == 0:
        return "0"
    if per_second < 0.1:
        return f"{per_second * 60:.1f}/min" if per_second >= 1 / 600 else "<0.1/min"
    return f"{per_second:.1f}/s" if per_second < 100 else f"{number(per_second)}/s"


def share(part: float | None) -> str:
    """A fraction as a percentage."""
    return NOTHING if part is None else f"{part:.1%}" if 0 < part < 0.1 else f"{part:.0%}"


def millis(seconds: float | None) -> str:
    """A short duration in milliseconds."""
    return NOTHING if seconds is None else f"{seconds * 1000:.1f} ms"


def bytes_(count: int) -> str:
    """A size."""
    return f"{count:,} bytes" if count < 2048 else f"{count / 1024:,.0f} KiB"


def ago(moment: datetime | None, now: datetime) -> str:
    """How far a time is from now: ``4 min ago``, ``in 3 s``."""
    if moment is None:
        return NOTHING
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def exact(moment: datetime) -> str:
    """A time in UTC, to the millisecond."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def minute(moment: datetime) -> str:
    """A time in UTC, to the minute."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def iso(moment: datetime) -> str:
    """A time for machines."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def masked(value: Any, keys: Collection[str]) -> Any:
    """A payload without the values of these keys, at any depth; case, ``-`` and ``_`` do not matter."""
    return _masked(value, plain_keys(tuple(keys)), 0)


def _masked(value: Any, wanted: frozenset[str], depth: int) -> Any:
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {key: MASK if plain(str(key)) in wanted else _masked(inner, wanted, depth + 1) for key, inner in value.items()}
    return [_masked(inner, wanted, depth + 1) for inner in value]


def limits(controls: Controls) -> str:
    """The limits of a queue in words."""
    found = [] if controls.concurrency is None else [f"at most {controls.concurrency:,} at the same time"]
    found += [] if controls.rate is None else [f"at most {controls.rate:,} begun in {controls.per:g} s"]
    found += [] if controls.per_group == 1 else [f"at most {controls.per_group:,} of one group at the same time"]
    return ", ".join(found) or "no limits"


def payload(value: Any, keys: Collection[str], most: int = 20_000) -> str:
    """A payload as indented JSON, masked, and cut after ``most`` characters."""
    text = json.dumps(masked(value, keys), ensure_ascii=False, indent=2, default=str)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


def brief(value: Any, keys: Collection[str], most: int = 80) -> str:
    """A payload in one line of a table."""
    text = json.dumps(masked(value, keys), ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def length(*values: Any) -> int:
    """Characters of payloads as JSON."""
    return len(json.dumps(masked(values, ()), default=str))
