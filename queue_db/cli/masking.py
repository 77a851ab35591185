"""No password on the screen, in a log or in a script's output, whoever's message it stands in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

MASK = "***"

# Shorter pieces are too likely to be parts of other words, and masking those would tell more than it hides.
_SHORTEST = 3

# Not the example of our own messages; where that is somebody's password, it is among the secrets.
_CREDENTIALS = re.compile(r"(://[^\s:/@]*):(?!password@host\b[^\s@]*(?:\s|$))[^\s]*@")
_SECRET = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)


def secrets_in(url: str | Sequence[str] | None) -> list[str]:
    """What of ``url``, or of several, must not be shown, longest first. The text need not be a URL that anybody can parse."""
    if not url:
        return []
    if not isinstance(url, str):
        return sorted({secret for one in url for secret in secrets_in(one)}, key=lambda piece: (-len(piece), piece))
    _, _, rest = url.partition("://")
    found: set[str] = set()
    # A password with an unescaped @ or / in it: parsers take part of it for the host, and drivers print the host.
    before, at, _ = rest.rpartition("@")
    if at:
        password = before.partition(":")[2]
        found |= {password, *re.split(r"[@/:]", password)}
    try:
        query = urlsplit(url).query
    except ValueError:
        query = url.partition("?")[2]
    found |= {value for name, value in parse_qsl(query) if _SECRET.search(name)}
    found |= {unquote(piece) for piece in found}
    return sorted((piece for piece in found if len(piece) >= _SHORTEST), key=lambda piece: (-len(piece), piece))


def mask(text: str, secrets: list[str]) -> str:
    """``text`` without the secrets, and without anything that stands where passwords stand in URLs."""
    text = _CREDENTIALS.sub(rf"\1:{MASK}@", text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
