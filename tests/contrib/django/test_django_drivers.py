"""The adapter on drivers that Django uses only where another one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.rest("test_django_transactions.py runs on psycopg; the seams of psycopg2 are those of tests/drivers")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_transactions_and_the_worker_on_psycopg2(url: str) -> None:
    """Django chooses its driver once for a process."""
    environment = os.environ | {"QUEUE_DB_TEST_DJANGO_DRIVER": "psycopg2", "QUEUE_DB_TEST_POSTGRES_URL": url}
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"):
        environment.pop(variable, None)
    files = [str(HERE / f"test_django_{name}.py") for name in ("transactions", "atomic", "drivers")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "postgresql and not on_psycopg2", *files]
    done = subprocess.run(command, env=environment, cwd=HERE.parents[2], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["postgresql"])
def test_the_queue_has_the_driver_of_django(site: None) -> None:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    from queue_db.contrib.django.databases import url_of

    wanted = os.environ.get("QUEUE_DB_TEST_DJANGO_DRIVER", "psycopg")
    assert is_psycopg3 is (wanted == "psycopg")
    assert url_of("default").drivername == f"postgresql+{wanted}"
