"""A message as an event of CloudEvents 1.0, in the structured mode of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_db.service.http.times import rfc3339

CONTENT_TYPE = "application/cloudevents+json"

# Names of extension attributes, and those that mean something else.
_NAME = re.compile("[a-z0-9]{1,20}")
_TAKEN = frozenset({"id", "source", "specversion", "type", "subject", "time", "datacontenttype", "dataschema", "data", "headers"})

# Characters that a text of an attribute must not have.
_NOT_IN_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

_INT32 = range(-(2**31), 2**31)


def event(
    event_id: str, source: str, kind: str, *, key: str | None, at: datetime, payload: Any, headers: Mapping[str, Any]
) -> dict[str, Any]:
    """The event of a message.

    The kind is its ``type``, the key its ``subject``. A header whose name and value can be those of an extension attribute is one,
    such as ``traceparent``; the others are in the attribute ``headers``, as JSON in a text.

    :param source: where it comes from, a URI reference.
    """
    extensions = {
        name: value for name, value in headers.items() if _NAME.fullmatch(name) and name not in _TAKEN and _is_simple(value)
    }
    others = {name: value for name, value in headers.items() if name not in extensions}
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": kind,
        **({"subject": key} if key else {}),
        "time": rfc3339(at),
        "datacontenttype": "application/json",
        **extensions,
        **({"headers": json.dumps(others)} if others else {}),
        "data": payload,
    }


def _is_simple(value: Any) -> bool:
    if isinstance(value, str):
        return value != "" and _NOT_IN_TEXT.search(value) is None
    return isinstance(value, bool) or (isinstance(value, int) and value in _INT32)
