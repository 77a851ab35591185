"""The compose files as Docker would read them: what their services run, and with which environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import URL, make_url

ROOT = Path(__file__).parents[1]
TEXT, CLUSTER_TEXT = ((ROOT / f"{name}.yml").read_text(encoding="utf-8") for name in ("docker-compose", "docker-compose.cluster"))

_VARIABLE = re.compile(r"\$\$|\$\{(\w+):-([^}]*)\}")


def _filled(value: Any) -> Any:
    """A value with the defaults of its variables."""
    if isinstance(value, str):
        filled = _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else found[2], value)
        assert "${" not in filled, f"{value!r} has a variable without a default"
        return filled
    if isinstance(value, dict):
        return {name: _filled(one) for name, one in value.items()}
    return [_filled(one) for one in value] if isinstance(value, list) else value


COMPOSE: Mapping[str, Any] = _filled(yaml.safe_load(TEXT))
CLUSTER: Mapping[str, Any] = _filled(yaml.safe_load(CLUSTER_TEXT))
SERVICES: Mapping[str, Any] = COMPOSE["services"]


def environment(service: str, url: str) -> dict[str, str]:
    """The environment of a service, with ``url`` in place of that of the database in its network."""
    found: dict[str, str] = dict(SERVICES[service]["environment"])
    given: URL = make_url(found["QUEUE_DB_URL"])
    postgres = SERVICES["postgres"]["environment"]
    assert (given.host, given.port, given.database) == ("postgres", 5432, postgres["POSTGRES_DB"])
    assert (given.username, given.password) == ("postgres", postgres["POSTGRES_PASSWORD"])
    return found | {"QUEUE_DB_URL": url}
