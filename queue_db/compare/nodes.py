"""A cluster whose every node takes changes is measured on one node, on two and so on; the workers are spread evenly over them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sqlalchemy import URL

from queue_db.database import addresses
from queue_db.database.urls import parse_url


def grown(url: str) -> Iterator[tuple[str, int]]:
    """With ``nodes=all``: the URL with its first address, its first two and so on, and their number; otherwise the URL and 0."""
    parsed = parse_url(url)
    found = addresses.several(parsed)
    if not found or addresses.option(parsed, "nodes", "first") != "all":
        yield url, 0
        return
    for count in range(1, len(found) + 1):
        yield _at(parsed, found[:count]), count


def of_worker(url: str, number: int) -> str:
    """The URL for a worker, with its own node first: the next worker has the next one."""
    parsed = parse_url(url)
    found = addresses.several(parsed)
    first = number % max(1, len(found))
    return _at(parsed, [*found[first:], *found[:first]]) if found else url


def of_each(url: str) -> list[str]:
    """The URL of each node."""
    parsed = parse_url(url)
    return [_at(parsed, [one]) for one in addresses.several(parsed)] or [url]


def measure_locks_too() -> None:
    """Log no warning of locks that other nodes do not see: the comparison shows what they cost. For a process of its own."""
    logging.getLogger("queue_db.strategies.locking").setLevel(logging.ERROR)


def _at(url: URL, found: Sequence[addresses.Address]) -> str:
    # Without nodes=all a connection goes to the first address, as long as that works.
    bare = url.difference_update_query(["host", "port", "nodes"])
    if len(found) == 1:
        bare = bare.difference_update_query(["target_session_attrs"]).set(host=found[0].host, port=int(found[0].port))
    return (bare if len(found) == 1 else addresses.placed(bare, list(found))).render_as_string(hide_password=False)
