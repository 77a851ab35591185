"""Statements of SQL on queues: INSERT adds jobs, SELECT reads them, and no statement, plan or catalog has the address."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy import make_url

from queue_db import QueueDB
from queue_db.spark import register

ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")
COLUMNS = "queue STRING, kind STRING, payload STRING, priority INT, unique_key STRING, group_key STRING"

Ask = Callable[[str], list[Any]]


@pytest.fixture
def ask(spark: SparkSession, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Run a statement; ``{t}`` in it is a table of the catalog, and ``{q}`` the queue."""
    monkeypatch.setenv("QUEUE_DB_URL", url)
    register(spark)
    table = "table_" + "".join(letter if letter.isalnum() else "_" for letter in name)

    def run(statement: str) -> list[Any]:
        return spark.sql(statement.replace("{t}", table).replace("{q}", name)).collect()

    run(f"CREATE TABLE {{t}} ({COLUMNS}) USING queue_db")
    yield run
    run("DROP TABLE {t}")
    monkeypatch.undo()
    register(spark)


@ONE
def test_insert_adds_jobs_and_select_reads_what_is_there_now(ask: Ask, url: str, name: str) -> None:
    ask("INSERT INTO {t} SELECT '{q}', 'invoice', to_json(struct(id AS n)), id, concat('k', id), null FROM range(20)")
    ask("INSERT INTO {t} (queue, payload) VALUES ('{q}', '\"short\"')")
    ask("INSERT INTO {t} WITH ('queue' = '{q}') BY NAME SELECT 'mail' AS kind, '1' AS payload, 'one' AS group_key")
    with QueueDB(url) as db:
        jobs = db.queue(name).peek(100)
    assert len(jobs) == 22
    found = ask("SELECT * FROM {t} WITH ('queue' = '{q}') WHERE priority >= 18 OR group_key = 'one' ORDER BY kind, priority")
    assert [list(row) for row in found] == [
        [name, "invoice", '{"n":18}', 18, "k18", None],
        [name, "invoice", '{"n":19}', 19, "k19", None],
        [name, "mail", "1", 0, None, "one"],
    ]
    # The same table again: it reads what is there now, and follows the options of each statement.
    ask("INSERT INTO {t} (queue, payload) VALUES ('{q}', '\"later\"')")
    assert ask("SELECT count(*) AS n FROM {t} WITH ('queue' = '{q}')")[0].n == 23
    filtered = "SELECT payload FROM {t} WITH ('queue' = '{q}', 'filter' = 'kind = ''invoice'' AND priority > 18')"
    assert [json.loads(row.payload) for row in ask(filtered)] == [{"n": 19}]


@ONE
def test_a_named_insert_is_made_once_and_another_one_again(ask: Ask, url: str, name: str) -> None:
    for version in (1, 1, 2):
        once = f"WITH ('txnAppId' = 'load of {name}', 'txnVersion' = '{version}')"
        ask(f"INSERT INTO {{t}} {once} (queue, payload) VALUES ('{{q}}', '{version}'), ('{{q}}-b', '{version}')")
    with QueueDB(url) as db:
        assert [[job.payload for job in db.queue(queue).peek(9)] for queue in (name, f"{name}-b")] == [[1, 2], [1, 2]]
    # A bad row, and nothing of the statement is there.
    with pytest.raises(PySparkException, match="is not JSON"):
        ask("INSERT INTO {t} (queue, payload) SELECT '{q}', if(id = 1500, '{', '1') FROM range(0, 2000, 1, 2)")
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 2


@ONE
@pytest.mark.rest("the errors are raised by queue_db.spark.options, which tests/spark/test_spark_source.py asks without a table")
def test_what_sql_cannot_do_is_refused(ask: Ask, url: str, name: str) -> None:
    ask("INSERT INTO {t} (queue, payload) VALUES ('{q}', '1')")
    for statement, message in (
        ("SELECT * FROM {t}", "option 'queue' is missing"),
        ("INSERT INTO {t} (payload) VALUES ('1')", "option 'queue' is missing|queue"),
        ("INSERT OVERWRITE {t} SELECT '{q}', 'k', '1', 0, null, null", "a queue cannot be overwritten"),
        ("DELETE FROM {t}", "does not support"),
        ("CREATE TABLE other USING queue_db OPTIONS (queue '{q}')", "CREATE TABLE jobs .queue STRING"),
        ("CREATE TABLE other USING queue_db AS SELECT '{q}' AS queue, '1' AS payload", "does not pass a table's options"),
    ):
        with pytest.raises(PySparkException, match=message):
            ask(statement)
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 1


@ONE
def test_the_address_is_in_no_statement_plan_or_catalog(
    spark: SparkSession, ask: Ask, url: str, event_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ask("INSERT INTO {t} (queue, payload) VALUES ('{q}', '1')")
    ask("SELECT * FROM {t} WITH ('queue' = '{q}')")
    told = [
        *ask("SHOW CREATE TABLE {t}"),
        *ask("DESCRIBE EXTENDED {t}"),
        *ask("SHOW TBLPROPERTIES {t}"),
        *ask("EXPLAIN EXTENDED SELECT * FROM {t} WITH ('queue' = '{q}')"),
        *ask("EXPLAIN EXTENDED INSERT INTO {t} (queue, payload) VALUES ('{q}', '2')"),
    ]
    with pytest.raises(PySparkException) as failed:
        ask("INSERT INTO {t} (queue, payload) VALUES ('{q}', '{')")
    printed = capfd.readouterr()
    texts = [*map(str, told), str(failed.value), printed.out, printed.err]
    logged = [path.read_text() for path in event_log.rglob("events_*")]
    assert any("queue_db" in text for text in logged)
    texts += logged
    secret = make_url(url).password
    assert secret
    assert not any(secret in text for text in texts)


@pytest.mark.rest("what Spark does with a view; the table is tested here")
@ONE
def test_a_view_reads_and_inserts_but_keeps_its_first_plan(spark: SparkSession, ask: Ask, url: str, name: str) -> None:
    """Why the documentation has tables and no views."""
    ask("CREATE TEMPORARY VIEW v_{t} (payload STRING, kind STRING) USING queue_db OPTIONS (queue '{q}')")
    try:
        for _ in range(2):
            ask("INSERT INTO v_{t} WITH ('txnAppId' = 'v {q}', 'txnVersion' = '1') VALUES ('1', 'k')")
        assert len(ask("SELECT * FROM v_{t}")) == 2, "Spark passes the options of WITH on: say it in the docs"
        ask("INSERT INTO v_{t} VALUES ('2', 'k')")
        assert len(ask("SELECT * FROM v_{t}")) == 2, "Spark plans a view anew: say it in the docs"
    finally:
        ask("DROP VIEW v_{t}")
