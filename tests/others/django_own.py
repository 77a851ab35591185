"""Own tests of ``queue_db.contrib.django``, to run with ``--newest``: Django 6 wants a newer Python than the checkout has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.others.suite import CHECKOUT, Run, Suite
from tests.servers.lookup import PROGRAMS, variable


def _environment(run: Run) -> Mapping[str, str]:
    # The tests start many processes: each would compile the package anew.
    own = {"PYTHONDONTWRITEBYTECODE": ""}
    return own if run.kind == "sqlite" else own | {variable(run.kind, "URL"): run.url}


def _command(run: Run) -> Sequence[str]:
    # With SQLite go the tests that are for no database.
    wanted = run.kind if run.kind in PROGRAMS else " and ".join(f"not {kind}" for kind in PROGRAMS)
    return run.pytest("-q", "--part", "all", "-k", wanted, str(CHECKOUT / "tests" / "contrib" / "django"))


SUITE = Suite(
    name="django_own",
    version="–",
    source="",
    requirements=("pytest==9.2.0", "hypothesis>=6.170", "psycopg[binary]==3.3.9", "django-stubs-ext==6.1.2"),
    extras=("postgresql", "mysql", "async-postgresql", "async-mysql", "async-sqlite", "service", "fast", "testing", "django"),
    framework="django",
    kinds=("postgresql", "sqlite", "mysql", "mariadb"),
    command=_command,
    environment=_environment,
    timeout=1200,
)
