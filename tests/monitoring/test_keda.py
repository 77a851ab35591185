"""The queries of docs/monitoring/keda-*.yaml, on the databases that they are for: what they count, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from queue_db import QueueDB
from tests.plans import planner

PLACE = Path(__file__).resolve().parents[2] / "docs" / "monitoring"

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


@pytest.fixture
def db(own_url: str) -> Iterator[QueueDB]:
    with QueueDB(own_url) as db:
        yield db


@pytest.fixture
def query(kind: str) -> str:
    scaler = "postgresql" if kind == "postgresql" else "mysql"
    (trigger,) = yaml.safe_load((PLACE / f"keda-{scaler}.yaml").read_text())["spec"]["triggers"]
    assert trigger["type"] == scaler
    assert float(trigger["metadata"]["targetQueryValue" if scaler == "postgresql" else "queryValue"]) > 0
    found: str = trigger["metadata"]["query"]
    return found


def asked(db: QueueDB, query: str) -> Any:
    """The answer, as the scaler gets it: without a parameter, and as text or number."""
    with db.database.engine.connect() as connection:
        return connection.exec_driver_sql(query.replace("%", "%%")).scalar_one()


def test_the_query_counts_due_and_running_jobs(db: QueueDB, query: str) -> None:
    assert float(asked(db, query)) == 0  # nothing was counted yet: a number, not NULL
    mail = db.queue("mail")
    mail.enqueue_many([("send", number) for number in range(7)])
    mail.enqueue("send", delay=600)
    db.queue("other").enqueue("send")
    assert len(mail.claim(2)) == 2
    assert db.metrics.take()
    assert float(asked(db, query)) == 7
    other = query.replace("mail", "absent")
    assert other != query
    assert float(asked(db, other)) == 0


def test_the_query_reads_no_jobs(db: QueueDB, query: str, kind: str) -> None:
    db.queue("mail").enqueue_many([("send", number) for number in range(2000)])
    assert db.metrics.take()
    planner.analyse(db)
    assert tables_of(db, query, kind) == {"jobs_samples"}
    count = "SELECT count(*) FROM jobs WHERE queue = 'mail'"
    assert tables_of(db, count, kind) == {"jobs"}  # the control


def tables_of(db: QueueDB, query: str, kind: str) -> set[str]:
    """The tables that a query reads, by its plan."""
    with db.database.engine.connect() as connection:
        if kind == "postgresql":
            plan = connection.execute(text(f"EXPLAIN (FORMAT JSON) {query.replace(':', chr(92) + ':')}")).scalar_one()
            return set(_relations(plan))
        explain = "EXPLAIN FORMAT=TRADITIONAL" if kind == "mysql" else "EXPLAIN"  # else MySQL 9 tells a tree
        rows = connection.exec_driver_sql(f"{explain} {query.replace('%', '%%')}").mappings().all()
        return {row["table"] for row in rows}


def _relations(plan: Any) -> Iterator[str]:
    if isinstance(plan, str):
        plan = json.loads(plan)
    if isinstance(plan, list):
        for one in plan:
            yield from _relations(one)
    elif isinstance(plan, dict):
        if "Relation Name" in plan:
            yield plan["Relation Name"]
        for one in plan.values():
            if isinstance(one, list | dict):
                yield from _relations(one)


def test_the_role_of_the_scaler_needs_no_other_right(db: QueueDB, query: str, kind: str) -> None:
    if kind != "postgresql":
        assert "FROM jobs_samples" in query  # the plan above names no other table
        return
    with db.database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE keda_of_the_test")
        connection.exec_driver_sql("GRANT SELECT ON jobs_samples TO keda_of_the_test")
        connection.exec_driver_sql("SET ROLE keda_of_the_test")
        assert connection.exec_driver_sql(query).scalar_one() == 0
        with pytest.raises(Exception, match="permission denied"):
            connection.exec_driver_sql("SELECT 1 FROM jobs")
        connection.rollback()
