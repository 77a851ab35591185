"""Settlements read in one pass from the bytes of a body, without a model of pydantic for each.

What is refused here is read again by pydantic, which accepts it or says what is wrong. What is accepted here has the same values
there: each field has the type and the limits of its namesake in :mod:`~queue_db.service.api.settlements`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from queue_db.service.api.shapes import LONGEST_LEASE, LONGEST_WAIT
from queue_db.service.http.declared import parsed
from queue_db.store.schema import WORKER_LENGTH
from queue_db.verbs.claim import MAX_CLAIM

_Digits = Annotated[str, Meta(min_length=1, max_length=19)]
_Seconds = Annotated[float, Meta(ge=0, le=3_155_760_000)]
_Text = Annotated[str, Meta(max_length=100_000)]


class QuickLease(Struct, forbid_unknown_fields=True, gc=False):
    """A ``Lease``."""

    id: _Digits
    version: _Digits
    token: Annotated[str, Meta(min_length=1, max_length=100)]

    def __repr__(self) -> str:
        return f"QuickLease(id={self.id!r}, version={self.version!r})"


class QuickFailure(Struct, forbid_unknown_fields=True, gc=False):
    """A ``Failure``."""

    message: _Text
    error_class: Annotated[str, Meta(max_length=200)] = ""
    trace: _Text | None = None


class QuickSettlement(Struct, forbid_unknown_fields=True, gc=False):
    """A ``Settlement``."""

    lease: QuickLease
    verb: Literal["complete", "fail", "snooze", "release", "extend", "cancel", "bury"]
    result: Any = None
    result_ttl: Annotated[float, Meta(gt=0, le=3_155_760_000)] | None = None
    error: QuickFailure | None = None
    retry_in: _Seconds | None = None
    seconds: _Seconds | None = None


class QuickSettlements(Struct, forbid_unknown_fields=True, gc=False):
    """A ``Settlements``."""

    settlements: Annotated[list[QuickSettlement], Meta(min_length=1, max_length=MAX_CLAIM)]


# Keys that each settlement has at most once.
_KEYS = tuple(f'"{one}"'.encode() for struct in (QuickLease, QuickFailure, QuickSettlement) for one in struct.__struct_fields__)

# Keys of a settlement that has no more than it needs.
_REQUIRED = sum(len(struct.__struct_fields__) - len(struct.__struct_defaults__) for struct in (QuickLease, QuickSettlement))

_decode = msgspec.json.Decoder(QuickSettlements).decode


class QuickClaim(Struct, forbid_unknown_fields=True, gc=False):
    """A ``ClaimRequest``."""

    limit: Annotated[int, Meta(ge=1, le=MAX_CLAIM)] = 1
    lease: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)] = 60.0
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    worker: Annotated[str, Meta(min_length=1, max_length=WORKER_LENGTH)] | None = None


_CLAIM_KEYS = tuple(f'"{one}"'.encode() for one in QuickClaim.__struct_fields__)

_decode_claim = msgspec.json.Decoder(QuickClaim).decode


def claim(body: bytes) -> QuickClaim | None:
    """The claim of a body; None: pydantic reads it."""
    if b"\\" in body or any(body.count(key) > 1 for key in _CLAIM_KEYS):
        return None
    try:
        return _decode_claim(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def settlements(body: bytes) -> QuickSettlements | None:
    """The settlements of a body; None: pydantic reads it.

    :raises RequestValidationError: an object has a key twice.
    """
    try:
        found = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not _are_whole(found.settlements):
        return None
    if _may_repeat_a_key(body, len(found.settlements)):
        parsed(body)
    return found


def _are_whole(settlements: list[QuickSettlement]) -> bool:
    """Whether ids and versions are digits, and each verb has what it needs."""
    # All at once: a pattern, or a method of each settlement, would take several times as long.
    digits = "".join([one.lease.id + one.lease.version for one in settlements])
    if not (digits.isascii() and digits.isdecimal()):
        return False
    for one in settlements:
        if (one.verb == "snooze" and one.seconds is None) or (one.verb == "extend" and not 0 < (one.seconds or 0) <= LONGEST_LEASE):
            return False
    return True


def _may_repeat_a_key(body: bytes, settlements: int) -> bool:
    """Whether an object may have a key twice: no if no key is there more often than settlements. A result may have any keys."""
    if body.count(b":") == 1 + _REQUIRED * settlements:
        return False  # each key that must be there is there once, and no other one
    return (
        b"\\u" in body
        or b'"result"' in body
        or body.count(b'"settlements"') > 1
        or any(body.count(key) > settlements for key in _KEYS)
    )
