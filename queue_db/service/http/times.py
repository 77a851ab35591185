"""Times as every response, event and webhook writes them: RFC 3339 in UTC, always with microseconds and ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema


def rfc3339(moment: datetime) -> str:
    """The time as text; texts of times sort as the times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


#: A time in a response.
Time = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-23T08:00:00.000000Z"]}),
]
