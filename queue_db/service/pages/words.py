"""Numbers, times, payloads and databases as text for people."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import ArgumentError

from queue_db.database import addresses
from queue_db.model import Controls, GroupLimit
from queue_db.service.api.shapes import shown

NOTHING = "–"

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))

# Characters of a database in the head of a page. Longer texts lose their middle: hosts differ at their beginning, and databases at
# their end.
_WHERE = 60


def span(seconds: float | None) -> str:
    """A duration: ``3.2 s``, ``5 min``, ``2 d``."""
    if seconds is None:
        return NOTHING
    for length_, unit in _UNITS:
        if seconds >= 2 * length_:
            return f"{seconds / length_:.0f} {unit}"
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


def size(count: int) -> str:
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


def limits(controls: Controls) -> str:
    """The limits of a queue in words."""
    found = [] if controls.concurrency is None else [f"at most {controls.concurrency:,} at the same time"]
    found += [] if controls.rate is None else [f"at most {controls.rate:,} begun in {controls.per:g} s"]
    found += [] if controls.per_group == 1 else [f"at most {controls.per_group:,} of one group at the same time"]
    return ", ".join(found) or "no limits"


def group_limits(rule: GroupLimit | None) -> str:
    """The limits of a group in words."""
    if rule is None:
        return "no limits"
    found = [] if rule.concurrency is None else [f"at most {rule.concurrency:,} at the same time"]
    found += [] if rule.rate is None else [f"at most {rule.rate:,} begun in {rule.per:g} s"]
    return ", ".join(found) or "no limits"


def payload(value: Any, keys: Collection[str], most: int = 20_000) -> str:
    """A payload as indented JSON, masked, and cut after ``most`` characters."""
    text = json.dumps(shown(value, keys), ensure_ascii=False, indent=2)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


def brief(value: Any, keys: Collection[str], most: int = 80) -> str:
    """A payload in one line of a table."""
    text = json.dumps(shown(value, keys), ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def length(*values: Any) -> int:
    """Characters of payloads as JSON."""
    return len(json.dumps(shown(values)))


def whereabouts(url: str) -> str:
    """Which database a page is of: host, port and name, or its file; people have production open beside staging.

    :param url: masked.
    """
    try:
        parsed = addresses.parsed(url)
    except ArgumentError:
        return url
    named = parsed.query.get("host", "")
    hosts = [parsed.host] if parsed.host else list(map(str, addresses.several(parsed))) or [str(named)]
    servers = ",".join(host for host in hosts if host and not host.startswith("/"))  # others are folders of sockets
    port = "" if parsed.port is None else f":{parsed.port}"
    text = "/".join(part for part in (f"{servers}{port}", parsed.database) if part) or url
    half = (_WHERE - 1) // 2
    return text if len(text) <= _WHERE else f"{text[:half]}…{text[-half:]}"
