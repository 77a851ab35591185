"""Rows of a DataFrame as jobs, without a Spark: values that are refused, and how many rows go together."""

import datetime as dt
import itertools
import random

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DoubleType, StructType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from queue_db.errors import QueueDBError
from queue_db.spark import encoding
from queue_db.spark.encoding import Encoder

NUMBER = StructType().add("n", "double")
NOT_A_NUMBER = dict(zip(("value", "metadata"), VariantUtils.parse_json('{"n": NaN}'), strict=True))


def chunks(columns, *rows):
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    arrow = to_arrow_schema(schema, timezone="UTC")
    batch = pa.RecordBatch.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], schema=arrow)
    return list(Encoder(schema, "json").chunks(iter([batch])))


@pytest.mark.parametrize(
    ("column", "form", "value", "message"),
    [
        ("payload", NUMBER, {"n": float("nan")}, "row 2: column 'payload.n': Out of range float values are not JSON compliant"),
        ("payload", ArrayType(DoubleType()), [1.0, float("inf")], "row 2: column 'payload[1]': Out of range float values"),
        ("payload", "string", "{", "row 2: column 'payload' has a string that is not JSON"),
        ("payload", "string", "1],[2", "column 'payload' has a string that is not JSON"),
        ("payload", "string", "[NaN]", "row 2: column 'payload' has a string that is not JSON (NaN is not JSON)"),
        ("payload", "string", "-Infinity", "row 2: column 'payload' has a string that is not JSON (-Infinity is not JSON)"),
        ("payload", VariantType(), NOT_A_NUMBER, "row 2: column 'payload': a variant that JSON cannot hold"),
        ("headers", VariantType(), NOT_A_NUMBER, "row 2: column 'headers': a variant that JSON cannot hold"),
        ("headers", "string", '{"n": Infinity}', "row 2: column 'headers' has '{\"n\": Infinity}', which is not a JSON object"),
        ("kind", "string", "", "row 2: kind is empty"),
        ("delay", "integer", -1, "row 2: delay=-1.0: must be 0 or more seconds"),
        ("delay", "double", float("inf"), "delay=inf"),
        ("priority", "long", 2**31, "row 2: priority=2147483648: must be"),
        ("max_attempts", "integer", 0, "max_attempts=0: must be 1"),
        ("unique_key", "string", "k" * 201, "unique_key has 201 characters"),
        ("headers", "string", "[]", "column 'headers' has '[]', which is not a JSON object"),
    ],
)
def test_bad_values_are_refused_with_the_name_of_their_column(column, form, value, message):
    columns, rows = {"payload": "string", column: form}, [("1", None), ("1", value)]
    if column == "payload":
        columns, rows = {column: form}, [(None,), (value,)]
    assert len(chunks(columns, rows[0])) == 1
    with pytest.raises(QueueDBError) as refused:
        chunks(columns, *rows)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "bad"),
    [
        (["1, [2", "3]"], 1),
        (['{"a": 1', '"b": 2}', "1,2"], 1),
        (["1", "2, 3", '"', '"'], 2),
        (["0", "[1", "2]"], 2),
        (['"a', 'b"'], 1),
        (["1", ""], 2),
        (["1", " "], 2),
        (["1", "2 3"], 2),
    ],
)
def test_texts_that_are_json_only_together_are_refused(texts, bad):
    with pytest.raises(QueueDBError, match=f"row {bad}: column 'payload' has a string that is not JSON"):
        chunks({"payload": "string"}, *((text,) for text in texts))


def test_a_raw_payload_that_not_every_database_stores_is_refused_with_its_row():
    schema = StructType().add("payload", "string")
    batch = pa.RecordBatch.from_pylist([{"payload": text} for text in ("a", "b\0c")], schema=to_arrow_schema(schema))
    with pytest.raises(QueueDBError, match="row 2: column 'payload' has a NUL character"):
        list(Encoder(schema, "raw").chunks(iter([batch])))


def test_json_texts_are_stored_as_they_are():
    texts = [' {"a": [1e5, "ü"]}\n', "null", "-0", '"\\ud800"', "[[]]", "1e999"]
    (found,) = chunks({"payload": "string"}, *((text,) for text in texts))
    assert found["payload"] == texts


@pytest.mark.parametrize("bad", [0, 1, 6, 7])
def test_the_bad_row_is_named_with_its_key_also_in_a_later_batch(bad):
    schema = StructType().add("payload", "string").add("unique_key", "string")
    rows = [{"payload": "{" if number == bad else "1", "unique_key": f"k{number}"} for number in range(8)]
    batches = [pa.RecordBatch.from_pylist(some, schema=to_arrow_schema(schema)) for some in (rows[:3], rows[3:])]
    with pytest.raises(QueueDBError, match=rf"row {bad + 1} \(unique_key 'k{bad}'\): column 'payload' has a string"):
        list(Encoder(schema, "json").chunks(iter(batches)))


def test_values_become_what_the_database_stores():
    moment = dt.datetime(2026, 3, 1, 4, 5, 6, 7, tzinfo=dt.UTC)
    columns = {"payload": NUMBER, "available_at": "timestamp", "priority": "short"}
    (found,) = chunks(columns, ({"n": 1.5}, moment, -1), ({"n": None}, None, None))
    assert found == {
        "payload": ['{"n":1.5}', '{"n":null}'],
        "priority": [-1, None],
        "not_before": [round(moment.timestamp() * 1_000_000), None],
    }


@pytest.mark.parametrize("longest", [5, 400, 3000])
def test_chunks_are_neither_too_many_jobs_nor_too_long(monkeypatch, longest):
    monkeypatch.setattr(encoding, "CHUNK_JOBS", 10)
    monkeypatch.setattr(encoding, "CHUNK_LENGTH", 1000)
    draw = random.Random(longest)
    monkeypatch.setattr(encoding, "_SLICE", 1 << 30)
    texts = ["1" * draw.randint(1, longest) for _ in range(200)]
    found = [columns["payload"] for columns in chunks({"payload": "string"}, *((text,) for text in texts))]
    assert list(itertools.chain(*found)) == texts
    for some in found:
        assert 1 <= len(some) <= 10
        assert len(some) == 1 or sum(map(len, some)) <= 1000
    for some, after in itertools.pairwise(found):
        assert len(some) == 10 or sum(map(len, some)) + len(after[0]) > 1000, "room was left"


def test_large_batches_become_objects_part_by_part(monkeypatch):
    monkeypatch.setattr(encoding, "_SLICE", 1000)
    texts = [str(number) * 100 for number in range(1, 10)]
    batch = pa.RecordBatch.from_pydict({"payload": texts})
    sizes = [part.num_rows for part in encoding._slices(batch)]
    assert sum(sizes) == len(texts)
    assert max(sizes) * len(texts[0]) <= 1000
    found = chunks({"payload": "string"}, *((text,) for text in texts))
    assert list(itertools.chain.from_iterable(columns["payload"] for columns in found)) == texts
    assert list(encoding._slices(batch.slice(0, 0))) == []
