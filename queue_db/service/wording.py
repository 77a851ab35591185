"""Errors in the words of HTTP: those of the library name arguments and verbs of Python, and options of the command line."""

from __future__ import annotations

import re

# What the library says, and what a client of the REST API can do instead. In this order; each is replaced wherever it stands.
_WORDS = (
    (r'pass on_duplicate="skip" to keep it, or on_duplicate="replace"', 'send "on_duplicate": "skip" to keep it, or "replace"'),
    (r": db\.dead redrives or purges it", ": POST /api/v1/dead/redrive or /api/v1/dead/purge changes it"),
    (
        r"db\.feeds\.set\([^)]*claims=True\)( makes it| or `queue-db feeds set --claims`)?",
        'PUT /api/v1/feeds/{feed} with "claims": true',
    ),
    (r"feed\.claim\b", "POST /api/v1/feeds/{feed}/claims"),
    (r"claims=True", '"claims": true'),
    (r"delay= must be less than expires_in=", "delay must be less than expires_in"),
    (r"echo=False (.*) with client=", r"echo=false \1 with the header Client-ID"),
    (r"pass take_over=True \(--take-over\)", "send take_over=true"),
    (r"Then call db\.feeds\.restored\(\) once \(queue-db feeds restored\)", "Then run queue-db feeds restored once"),
    (r"feed\.start\(\) or feed\.end\(\)", "`start` or `end` of GET /api/v1/feeds/{feed}"),
    (r"\(page\.position, message\.position\)", "(`after` of a page, `id` of a message)"),
    (r'on_trimmed="skip" or --on-trimmed skip', "on_trimmed=skip"),
    (r"`queue-db cursors seek FEED CURSOR start`", "POST /api/v1/feeds/{feed}/cursors/{cursor}/seek"),
    (r'cron="0 3 \* \* \*" or every=seconds', "`cron`, such as 0 3 * * *, or `every`, in seconds"),
    (r"\bwebhook=:? ?", "target: "),
    (r"\b(\w+)=(?=['\d-])", r"\1 "),
    ("Out of range float values are not JSON compliant", "NaN and Infinity are no numbers of JSON"),
    (r"\bTrue\b", "true"),
    (r"\bFalse\b", "false"),
    (r"\bNone\b", "null"),
)
_COMPILED = tuple((re.compile(pattern), words) for pattern, words in _WORDS)


def of(error: Exception) -> str:
    """The text of an error for a client of the REST API."""
    text = str(error)
    for pattern, words in _COMPILED:
        text = pattern.sub(words, text)
    return text
