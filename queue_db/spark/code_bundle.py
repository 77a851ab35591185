"""The package's source code, sent by value to executors and Connect servers on which it is not installed.

A bundled object carries the package's sources beside its own serialized form. Unpickling first makes the package importable from
these sources, in memory, unless it is installed, and then restores the object. The classes here are pickled by value, not by
name; so this module imports the rest of the package within functions only.

The package's dependencies (SQLAlchemy, a driver, pyarrow) must be installed on the other side.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
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


class SourceFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from source text.

    :param texts: module → (source, whether it is a package).
    """

    def __init__(self, texts: Mapping[str, tuple[str, bool]]) -> None:
        self.texts = texts

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self.texts:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=f"bundled {fullname}", is_package=self.texts[fullname][1])

    def get_source(self, fullname: str) -> str:
        return self.texts[fullname][0]

    def is_package(self, fullname: str) -> bool:
        return self.texts[fullname][1]


class CodeBundle:
    """The sources of one version of the package, compressed."""

    def __init__(self, name: str, version: str, packed: bytes) -> None:
        self.name, self.version, self.packed = name, version, packed

    def install(self) -> None:
        """Make the package importable here.

        :raises RuntimeError: another version is installed, or a dependency is missing.
        """
        if self.name not in sys.modules and importlib.util.find_spec(self.name) is None:
            sys.meta_path.append(SourceFinder(pickle.loads(zlib.decompress(self.packed))))  # noqa: S301 - trusted: Spark unpickled this
        try:
            found = importlib.import_module(self.name)
        except ImportError as error:
            raise RuntimeError(
                f"{self.name} was sent to this Python ({sys.executable}), but its dependencies are missing: {error}. Spark runs "
                "its Python workers with PYSPARK_PYTHON, else with python3 from PATH: set PYSPARK_PYTHON (or spark.pyspark.python) "
                "to a Python that has them, install them there (pip install sqlalchemy pyarrow and the driver), or send an "
                "environment with --archives"
            ) from None
        if found.__version__ != self.version:
            raise RuntimeError(
                f"{self.name} {found.__version__} is installed for {sys.executable}, but the client has {self.version}: install "
                "the same version on both"
            )


@cache
def package_bundle() -> CodeBundle:
    """The sources of this package, as they were at the first call: what this process has imported."""
    import queue_db

    root = Path(queue_db.__file__).parent
    texts = {}
    for file in sorted(root.rglob("*.py")):
        parts = [root.name, *file.relative_to(root).with_suffix("").parts]
        package = parts[-1] == "__init__"
        texts[".".join(parts[:-1] if package else parts)] = (file.read_text(encoding="utf-8"), package)
    return CodeBundle(root.name, queue_db.__version__, zlib.compress(pickle.dumps(texts)))


class Bundled:
    """An object of the package, pickled together with the package's code."""

    def __init__(self, bundle: CodeBundle, inner: Any) -> None:
        self.bundle, self.inner = bundle, inner

    def __getstate__(self) -> tuple[CodeBundle, bytes]:
        return self.bundle, cloudpickle.dumps(self.inner)  # type: ignore[no-untyped-call]

    def __setstate__(self, state: tuple[CodeBundle, bytes]) -> None:
        self.bundle = state[0]
        self.bundle.install()
        self.inner = pickle.loads(state[1])  # noqa: S301 - trusted: Spark unpickled this


class BundledReader(Bundled, DataSourceReader):
    """The BatchReader, with the package's code."""

    def partitions(self) -> Any:
        return self.inner.partitions()

    def read(self, partition: Any) -> Any:
        return self.inner.read(partition)


class BundledWriter(Bundled, DataSourceArrowWriter):
    """The BatchWriter, with the package's code."""

    def write(self, iterator: Any) -> Any:
        return self.inner.write(iterator)

    def commit(self, messages: Any) -> None:
        self.inner.commit(messages)

    def abort(self, messages: Any) -> None:
        self.inner.abort(messages)


class BundledStreamReader(Bundled, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The StreamReader, with the package's code."""

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


class BundledStreamWriter(Bundled, DataSourceStreamArrowWriter):
    """The StreamWriter, with the package's code."""

    def write(self, iterator: Any) -> Any:
        return self.inner.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self.inner.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self.inner.abort(messages, batchId)


class BundledDataSource(DataSource):
    """The QueueDataSource, with the package's code."""

    bundle: ClassVar[CodeBundle]
    #: The database of what has no option ``url``; empty: there is none.
    url: ClassVar[str] = ""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = dict(options)
        if self.url and "url" not in map(str.lower, options):
            self._options["url"] = self.url

    @classmethod
    def name(cls) -> str:
        return "queue_db"

    def _source(self) -> Any:
        self.bundle.install()
        return importlib.import_module("queue_db.spark.source").QueueDataSource(self._options)

    def schema(self) -> StructType:
        schema: StructType = self._source().schema()
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return BundledReader(self.bundle, self._source().reader(schema=schema))

    def writer(self, schema: StructType, overwrite: bool) -> BundledWriter:
        return BundledWriter(self.bundle, self._source().writer(schema=schema, overwrite=overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BundledStreamReader(self.bundle, self._source().streamReader(schema=schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> BundledStreamWriter:
        return BundledStreamWriter(self.bundle, self._source().streamWriter(schema=schema, overwrite=overwrite))


def register(spark: Any) -> None:
    """Register ``format("queue_db")`` with a Spark session; the package's code travels with each task.

    Where the package is installed on driver, executors and Connect server, ``spark.dataSource.register(QueueDataSource)`` is
    enough. Call it once for each session, and in each thread that writes; calling it again is harmless.

    Reads and writes without the option ``url``, such as statements of SQL, use the database that the environment variable
    ``QUEUE_DB_URL`` of this process names now. It is in no plan, log or catalog, since it is no option.

    :raises ConfigurationError: the Python that Spark runs its workers with lacks a dependency of the package.
    """
    from queue_db.database.urls import URL_VARIABLE
    from queue_db.spark import python_workers

    python_workers.check(spark, on_the_driver=True)
    python_workers.use_here(spark)
    _pickle_by_value()

    class Source(BundledDataSource):
        bundle = package_bundle()
        url = os.environ.get(URL_VARIABLE, "")

    spark.dataSource.register(Source)


def bundled(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """``function``, for ``mapInArrow``, together with the package's code."""
    _pickle_by_value()
    carrier = Bundled(package_bundle(), function)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        return iter(carrier.inner(batches))

    return call


def _pickle_by_value() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
