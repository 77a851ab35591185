"""The package's code, shipped by value: for executors and Connect servers on which it is not installed.

What is sent is wrapped: the package's sources beside a serialized object of the package. Where the wrapping arrives, it makes
the package importable from these sources, in memory, if it is not installed there, and only then unpacks the object. The
wrapping itself is serialized with its code, not by name; so this module imports nothing of the package but within functions.

What the package needs (SQLAlchemy, stamina, a driver, pyarrow) must be there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, ClassVar

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads modules of which only the text is here.

    :param texts: module → (source, whether it is a package).
    """

    def __init__(self, texts: Mapping[str, tuple[str, bool]]) -> None:
        self.texts = texts

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self.texts:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=f"shipped {fullname}", is_package=self.texts[fullname][1])

    def get_source(self, fullname: str) -> str:
        return self.texts[fullname][0]

    def is_package(self, fullname: str) -> bool:
        return self.texts[fullname][1]


class Code:
    """The package as it is on the client."""

    def __init__(self, name: str, version: str, packed: bytes) -> None:
        self.name, self.version, self.packed = name, version, packed

    def install(self) -> None:
        """Make the package importable here.

        :raises RuntimeError: another version of it is installed, or something that it needs is not.
        """
        if self.name not in sys.modules and importlib.util.find_spec(self.name) is None:
            sys.meta_path.append(Sources(pickle.loads(zlib.decompress(self.packed))))  # noqa: S301 - Spark has unpickled us
        try:
            found = importlib.import_module(self.name)
        except ImportError as error:
            raise RuntimeError(
                f"{self.name} was shipped to this Python ({sys.executable}), but not what it needs: {error}. Spark runs "
                "its Python workers with PYSPARK_PYTHON, else with python3 from PATH: set PYSPARK_PYTHON (or spark.pyspark.python) "
                "to a Python that has it, install it there (pip install sqlalchemy stamina pyarrow and the database's driver), or "
                "ship an environment with --archives"
            ) from None
        if found.__version__ != self.version:
            raise RuntimeError(
                f"{self.name} {found.__version__} is installed for {sys.executable}, and the client has {self.version}: "
                "install the same version on both"
            )


def code() -> Code:
    """The package that this module is of."""
    import queue_db

    root = Path(queue_db.__file__).parent
    texts = {}
    for file in sorted(root.rglob("*.py")):
        parts = [root.name, *file.relative_to(root).with_suffix("").parts]
        package = parts[-1] == "__init__"
        texts[".".join(parts[:-1] if package else parts)] = (file.read_text(encoding="utf-8"), package)
    return Code(root.name, queue_db.__version__, zlib.compress(pickle.dumps(texts)))


class Wrapped:
    """An object of the package with its code. ``inner`` is there as soon as the code is."""

    def __init__(self, code: Code, inner: Any) -> None:
        self.code, self.inner = code, inner

    def __getstate__(self) -> tuple[Code, bytes]:
        return self.code, cloudpickle.dumps(self.inner)  # type: ignore[no-untyped-call]

    def __setstate__(self, state: tuple[Code, bytes]) -> None:
        self.code = state[0]
        self.code.install()
        self.inner = pickle.loads(state[1])  # noqa: S301 - Spark has unpickled us


class WrappedReader(Wrapped, DataSourceReader):
    """A reader with its code."""

    def partitions(self) -> Any:
        return self.inner.partitions()

    def read(self, partition: Any) -> Any:
        return self.inner.read(partition)


class WrappedWriter(Wrapped, DataSourceArrowWriter):
    """A writer with its code."""

    def write(self, iterator: Any) -> Any:
        return self.inner.write(iterator)

    def commit(self, messages: Any) -> None:
        self.inner.commit(messages)

    def abort(self, messages: Any) -> None:
        self.inner.abort(messages)


class WrappedStreamReader(Wrapped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's reader with its code."""

    def getDefaultReadLimit(self) -> ReadLimit:
        limit: ReadLimit = self.inner.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:
        self.inner.prepareForTriggerAvailableNow()

    def initialOffset(self) -> Any:
        return self.inner.initialOffset()

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:
        return self.inner.latestOffset(start, limit)

    def reportLatestOffset(self) -> Any:
        return self.inner.reportLatestOffset()

    def partitions(self, start: Any, end: Any) -> Any:
        return self.inner.partitions(start, end)

    def read(self, partition: Any) -> Any:
        return self.inner.read(partition)

    def commit(self, end: Any) -> None:
        self.inner.commit(end)


class WrappedStreamWriter(Wrapped, DataSourceStreamArrowWriter):
    """A stream's writer with its code."""

    def write(self, iterator: Any) -> Any:
        return self.inner.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self.inner.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self.inner.abort(messages, batchId)


class ShippedDataSource(DataSource):
    """The data source with the package's code."""

    code: ClassVar[Code]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "queue_db"

    def _source(self) -> Any:
        self.code.install()
        return importlib.import_module("queue_db.spark.source").QueueDataSource(self._given)

    def schema(self) -> StructType:
        schema: StructType = self._source().schema()
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return WrappedReader(self.code, self._source().reader(schema=schema))

    def writer(self, schema: StructType, overwrite: bool) -> WrappedWriter:
        return WrappedWriter(self.code, self._source().writer(schema=schema, overwrite=overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return WrappedStreamReader(self.code, self._source().streamReader(schema=schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> WrappedStreamWriter:
        return WrappedStreamWriter(self.code, self._source().streamWriter(schema=schema, overwrite=overwrite))


def register(spark: Any) -> None:
    """Make ``format("queue_db")`` known to a Spark session, and send the package's code along with everything.

    Like ``spark.dataSource.register(QueueDataSource)``, which is enough where the package is installed on driver, executors and
    Connect server. For each session once, and in each thread of the program that writes; again does no harm.

    :raises ConfigurationError: the Python that Spark runs its workers with lacks what the package needs.
    """
    from queue_db.spark import python_workers

    python_workers.check(spark, on_the_driver=True)
    python_workers.use_here(spark)
    _by_value()

    class Source(ShippedDataSource):
        code = code()

    spark.dataSource.register(Source)


def shipped(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for ``mapInArrow`` that uses the package, with the package's code."""
    _by_value()
    wrapped = Wrapped(code(), function)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        return iter(wrapped.inner(batches))

    return call


def _by_value() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
