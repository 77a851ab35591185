"""A cluster whose every node takes changes is measured on one node, on two and so on; the workers are spread evenly over them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import URL

from queue_db.database import addresses
from queue_db.database.urls import parse_url

#: Names of this machine in an address.
LOOPBACK = ("localhost", "127.0.0.1", "::1", "")

# Warns of locks that other nodes do not see: a comparison shows what they cost.
_WARNINGS = logging.getLogger("queue_db.strategies.locking")


def grown(url: str) -> Iterator[tuple[str, int]]:
    """With ``nodes=all``: the URL with its first address, its first two and so on, and their number; otherwise the URL and 0."""
    parsed = parse_url(url)
    found = addresses.several(parsed)
    if not found or addresses.option(parsed, "nodes", "first") != "all":
        yield url, 0
        return
    for count in range(1, len(found) + 1):
        yield _at(parsed, found[:count]), count


def of_each(url: str) -> list[str]:
    """The URL of each node alone."""
    parsed = parse_url(url)
    return [_at(parsed, [one]) for one in addresses.several(parsed)] or [url]


def of_worker(url: str, number: int) -> str:
    """The URL of a worker's own node alone: without that node it fails, and is not measured on another."""
    each = of_each(url)
    return each[number % len(each)]


def on_one_machine(url: str) -> bool:
    """Whether the addresses show that some nodes share a machine."""
    found = addresses.several(parse_url(url))
    return len({"" if one.host in LOOPBACK else one.host for one in found}) < len(found)


def hush() -> None:
    """Log no warning of locks in this process."""
    _WARNINGS.setLevel(logging.ERROR)


@contextmanager
def hushed() -> Iterator[None]:
    """Log no warning of locks in the ``with`` block."""
    before = _WARNINGS.level
    hush()
    try:
        yield
    finally:
        _WARNINGS.setLevel(before)


def _at(url: URL, found: Sequence[addresses.Address]) -> str:
    # Without nodes=all a connection goes to the first address, as long as that works.
    bare = url.difference_update_query(["host", "port", "nodes"])
    if len(found) == 1:
        bare = bare.difference_update_query(["target_session_attrs"]).set(host=found[0].host, port=int(found[0].port))
    return (bare if len(found) == 1 else addresses.placed(bare, list(found))).render_as_string(hide_password=False)
