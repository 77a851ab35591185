"""Masks passwords in logs, ``repr``, reports, errors and on the screen. No other module decides what is masked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote, unquote_plus

from sqlalchemy import URL
from sqlalchemy.exc import ArgumentError

from queue_db.database import addresses
from queue_db.errors import ConfigurationError

MASK = "***"

# The length of the shortest secret that is masked. Shorter secrets are often parts of ordinary words. A mask in such a word would
# reveal the secret.
_SHORTEST = 3

# The credentials in a URL, except in the example URL of our own messages. If the real password is also "password", the argument
# ``secrets`` of mask() contains it.
_CREDENTIALS = re.compile(r"(://[^\s:/@]*):(?!password@host\b[^\s@]*(?:\s|$))[^\s]*@")

# Parts of the names of options that hold a secret. They do not match passfile and sslkey, which hold names of files.
_WORDS = "password|passwd|passphrase|pwd|secret|token|api_?key|access_?key|credential"
_SECRET = re.compile(f"{_WORDS}|^pass$", re.IGNORECASE)
_IN_QUERY = re.compile(rf"([?&;](?:[^\s=&;?]*?(?:{_WORDS})[^\s=&;?]*|pass)=)[^\s&;'\"]+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether an option with this name holds a secret."""
    return _SECRET.search(name) is not None


def masked(url: URL | str) -> str:
    """The URL with ``***`` in place of its password and of secrets in its query."""
    try:
        parsed = addresses.parsed(url)
        addresses.several(parsed)  # refuses what cannot be shown
    except (ArgumentError, ValueError, ConfigurationError):
        return MASK
    values = [value for given in parsed.query.values() for value in ([given] if isinstance(given, str) else given)]
    after = [parsed.database or "", *parsed.query, *values] if _names_server(parsed) else []
    if has_stray_at(url, parsed) or any("@" in part for part in after):
        return f"{parsed.drivername}://{MASK}"
    hidden = {name: MASK for name in parsed.query if is_secret(name)}
    return addresses.shown(parsed.update_query_dict(hidden))


def has_stray_at(url: URL | str, parsed: URL) -> bool:
    """Whether the password may contain an unescaped @. Parsers would end the password there, and misread the rest of the password.

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
    """The secret parts of one or several URLs, longest first. The URLs may be invalid."""
    if isinstance(url, URL):
        url = url.render_as_string(hide_password=False)
    if not url:
        return []
    if not isinstance(url, str):
        return _longest_first({secret for one in url for secret in secrets_in(one)})
    _, _, rest = url.partition("://")
    found: set[str] = set()
    # If a password contains an unescaped @ or /, parsers take a part of it for the host, and drivers print the host. So each part
    # of the password is a secret.
    before, at, _ = rest.rpartition("@")
    if at:
        password = before.partition(":")[2]
        found |= {password, *re.split(r"[@/:]", password)}
    options = [option.partition("=") for option in rest.partition("?")[2].split("&")]
    found |= {value for name, _, value in options if is_secret(unquote_plus(name))}
    found |= {way(piece) for piece in found for way in (unquote, unquote_plus)}
    return _longest_first({piece for piece in found if len(piece) >= _SHORTEST})


def mask(text: str, secrets: Sequence[str]) -> str:
    """``text`` with a mask in place of these secrets and of every password in a URL."""
    text = _CREDENTIALS.sub(rf"\1:{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _longest_first(pieces: set[str]) -> list[str]:
    return sorted(pieces, key=lambda piece: (-len(piece), piece))
