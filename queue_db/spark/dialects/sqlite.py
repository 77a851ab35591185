"""SQLite for Spark: JSON in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlalchemy import ColumnElement, LargeBinary, cast, func

from queue_db.spark.dialects.base import SparkDialect
from queue_db.spark.staging.chunks import Unpacked


class SQLiteForSpark(SparkDialect):
    """Takes chunks apart in SQL."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def size(self, text: ColumnElement[str]) -> ColumnElement[int]:
        return func.length(cast(text, LargeBinary))

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked:
        rows = func.json_each(chunk).table_valued("value", name="given")
        return Unpacked(rows, {name: func.json_extract(rows.c.value, f"$[{place}]") for place, name in enumerate(fields)})
