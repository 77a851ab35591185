"""The code in docs/spark.md and docs/spark-streams.md runs, one after the other, on the Spark of these tests."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from queue_db import QueueDB
from queue_db.spark import register
from tests.spark.conftest import ROOT

pytestmark = pytest.mark.rest("test_spark_source.py and test_spark_streams.py do what the blocks show")

DATA_TOOLS = "docs/integrations/data-tools.md"


def test_the_code_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUEUE_DB_URL", "")  # a block sets it
    text = "".join((ROOT / "docs" / page).read_text() for page in ("spark.md", "spark-streams.md"))
    code = re.findall(r"^~~~python\n(.*?)^~~~", text, re.MULTILINE | re.DOTALL)
    assert len(code) == 5
    try:
        exec("\n".join(code), {"__name__": "__docs__"})  # noqa: S102 - that is the point
    finally:
        spark.sql("DROP TABLE IF EXISTS jobs")


def test_the_code_for_databricks_reads_a_queue(spark, tmp_path):
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
        db.queue("mail").enqueue_many([("welcome", 1), ("welcome", 2)])
    (code,) = re.findall(r"^```text\n(url = dbutils.*?)^```", (ROOT / DATA_TOOLS).read_text(), re.MULTILINE | re.DOTALL)
    *before, read = code.splitlines()
    # Only Databricks has these: its secrets. The URL of ours is the one secret.
    secrets = SimpleNamespace(get=lambda scope, key: {("queue", "url"): url}[scope, key])
    names = {"dbutils": SimpleNamespace(secrets=secrets), "spark": spark, "register": register}
    exec("\n".join(before), names)  # noqa: S102 - that is the point
    exec(f"found = {read}", names)  # noqa: S102
    assert names["found"].count() == 2


def test_the_package_alone_imports_no_spark():
    check = "import sys, queue_db; sys.exit(any(name in sys.modules for name in ('pyspark', 'pandas', 'pyarrow', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
