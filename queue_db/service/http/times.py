"""Times as every response, event and webhook writes them: RFC 3339 in UTC, always with microseconds and ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """The time as text; texts of times sort as the times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
