"""The code in docs/spark.md and docs/spark-streams.md runs, one after the other, on the Spark of these tests."""

import re
import subprocess
import sys

import pytest

from tests.spark.conftest import ROOT

pytestmark = pytest.mark.rest("test_spark_source.py and test_spark_streams.py do what the blocks show")


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


def test_the_package_alone_imports_no_spark():
    check = "import sys, queue_db; sys.exit(any(name in sys.modules for name in ('pyspark', 'pandas', 'pyarrow', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
