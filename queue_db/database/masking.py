"""Masks passwords for logs, ``repr``, reports, errors and the screen: the only place that does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote, unquote_plus

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

MASK = "***"

# Shorter pieces are often parts of other words, and masking those would show more than it hides.
_SHORTEST = 3

# Except the example in our own messages; if it is the real password, it is among the secrets.
_CREDENTIALS = re.compile(r"(://[^\s:/@]*):(?!password@host\b[^\s@]*(?:\s|$))[^\s]*@")

# In names of options that hold a secret; passfile, sslkey and the like name files.
_WORDS = "password|passwd|passphrase|pwd|secret|token|api_?key|access_?key|credential"
_SECRET = re.compile(f"{_WORDS}|^pass$", re.IGNORECASE)
_IN_QUERY = re.compile(rf"([?&;](?:[^\s=&;?]*?(?:{_WORDS})[^\s=&;?]*|pass)=)[^\s&;'\"]+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether an option with this name holds a secret."""
    return _SECRET.search(name) is not None


def masked(url: URL | str) -> str:
    """The URL with its passwords, also those in the query, as ``***``."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return MASK
    values = [value for given in parsed.query.values() for value in ([given] if isinstance(given, str) else given)]
    after = [parsed.database or "", *parsed.query, *values] if _names_server(parsed) else []
    if has_stray_at(url, parsed) or any("@" in part for part in after):
        return f"{parsed.drivername}://{MASK}"
    hidden = {name: MASK for name in parsed.query if is_secret(name)}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


def has_stray_at(url: URL | str, parsed: URL) -> bool:
    """Whether the password may hold an @ that is not escaped: for parsers it ends there, and the rest of it is something else.

    :param parsed: the parsed ``url``.
    """
    if parsed.host is not None and "@" in parsed.host:
        return True
    if parsed.password is None:
        return False
    if isinstance(url, str):
        return url.count("@") > 1
    return any("@" in part for part in (parsed.database or "", *parsed.query))


def _names_server(url: URL) -> bool:
    return any(part is not None for part in (url.username, url.password, url.host))


def secrets_in(url: str | URL | Sequence[str] | None) -> list[str]:
    """The secret parts of one or several URLs, longest first. The text need not be a valid URL."""
    if isinstance(url, URL):
        url = url.render_as_string(hide_password=False)
    if not url:
        return []
    if not isinstance(url, str):
        return _longest_first({secret for one in url for secret in secrets_in(one)})
    _, _, rest = url.partition("://")
    found: set[str] = set()
    # A password with an unescaped @ or / in it: parsers take part of it for the host, and drivers print the host.
    before, at, _ = rest.rpartition("@")
    if at:
        password = before.partition(":")[2]
        found |= {password, *re.split(r"[@/:]", password)}
    options = [option.partition("=") for option in rest.partition("?")[2].split("&")]
    found |= {value for name, _, value in options if is_secret(unquote_plus(name))}
    found |= {way(piece) for piece in found for way in (unquote, unquote_plus)}
    return _longest_first({piece for piece in found if len(piece) >= _SHORTEST})


def mask(text: str, secrets: Sequence[str]) -> str:
    """``text`` without these secrets, and without anything in the place of a password in a URL."""
    text = _CREDENTIALS.sub(rf"\1:{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _longest_first(pieces: set[str]) -> list[str]:
    return sorted(pieces, key=lambda piece: (-len(piece), piece))
