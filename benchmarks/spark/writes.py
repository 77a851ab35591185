"""Writing a DataFrame into the jobs table, in one large write and in small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from benchmarks.spark import rivals
from benchmarks.spark.lab import SIZE, Row, Spent, alone, measured
from benchmarks.spark.setting import AT_LEAST, EXACTLY, JDBC, SMALL, Chart, Setting, milliseconds, missing


def enqueue(setting: Setting) -> Iterator[Chart]:
    """Measure writing a DataFrame into the empty jobs table."""
    tables, jobs = setting.tables, setting.jobs
    rows = [Row(f"data source, {way}", partial(_write, setting, way), ours=True) for way in (EXACTLY, AT_LEAST)]
    solo = _solo(setting)
    rows += solo
    if tables.family != "sqlite":
        url, ways = setting.jdbc()
        rows += [Row(name, partial(_append, setting, url, properties)) for name, properties in ways.items()]
    spark = [row.name for row in rows if row not in solo]
    chart = Chart("enqueue", f"a DataFrame of {jobs:,} rows of {SIZE} bytes into the jobs table", rows)
    chart.rivals = tuple(row.name for row in rows if not row.ours)
    setting.turns(chart, jobs, lambda row: tables.empty(), lambda row, count: missing(count, *tables.count()), spark)
    ours = {way: f"data source, {way}" for way in (EXACTLY, AT_LEAST)}
    if setting.title == "PostgreSQL":
        chart.bar("exactly once, against one process's COPY", ours[EXACTLY], solo[0].name, 0.65)
        chart.bar("exactly once, against JDBC at its defaults", ours[EXACTLY], JDBC, 1.3)
        chart.bar("at least once, against JDBC with reWriteBatchedInserts", ours[AT_LEAST], setting.tuned(), 1.1)
    elif setting.title == "MariaDB":
        chart.bar("exactly once, against JDBC at its defaults", ours[EXACTLY], JDBC, 2.5)
        chart.bar("at least once, against JDBC with useBulkStmts", ours[AT_LEAST], setting.tuned(), 0.85)
    yield chart


def _write(setting: Setting, way: str, jobs: int) -> Spent:
    return setting.write(setting.frame(jobs), guarantee=way)


def _append(setting: Setting, url: str, properties: Mapping[str, str], jobs: int) -> Spent:
    return setting.append(setting.frame(jobs), url, properties)


def _solo(setting: Setting) -> list[Row]:
    """Return the rows of a single Python process."""
    tables = setting.tables
    if tables.family == "postgresql":
        return [Row("one process, COPY", partial(alone, rivals.copy, tables.url, tables.jobs))]
    many = Row("one process, executemany", partial(alone, rivals.insert_many, tables.url, tables.jobs))
    if tables.family == "sqlite":
        return [many]
    load = Row("one process, LOAD DATA LOCAL", partial(_load, setting))
    ((allowed,),) = tables.ask("SELECT @@local_infile")
    if not allowed:
        load.missing = "the server does not allow it (local_infile)"
    return [many, load]


def _load(setting: Setting, jobs: int) -> Spent:
    return alone(rivals.load_data, setting.tables.url, setting.tables.jobs, jobs, str(setting.folder))


def small(setting: Setting) -> Iterator[Chart]:
    """Measure small writes."""
    tables = setting.tables
    rows = [Row(f"data source, {way}", partial(_write, setting, way), ours=True) for way in (EXACTLY, AT_LEAST)]
    if tables.family != "sqlite":
        url, ways = setting.jdbc()
        rows += [Row(name, partial(_append, setting, url, ways[name])) for name in (JDBC, setting.tuned())]
    # Spark's own share: for any sink, and for any Python sink.
    idle = [
        Row(title, partial(_noop, setting, form)) for title, form in (("Python sink, nothing", "nothing"), ("noop sink", "noop"))
    ]
    rows += idle
    for row in rows:
        row.figure = milliseconds
    others = tuple(row.name for row in rows if not row.ours)
    chart = Chart("small", f"{SMALL:,} rows of {SIZE} bytes in one write", rows, "ms", others)
    expected = 0

    def before(row: Row) -> None:
        nonlocal expected
        if expected > 100 * SMALL:
            tables.empty()
            expected = 0

    def check(row: Row, jobs: int) -> tuple[int, int]:
        nonlocal expected
        expected += 0 if row in idle else jobs
        found, _ = tables.count(distinct=False)
        wrong = found - expected
        expected = found
        return max(0, -wrong), max(0, wrong)

    tables.empty()
    repeat, setting.repeat = setting.repeat, 10 * setting.repeat
    try:
        setting.turns(chart, SMALL, before, check, [row.name for row in rows])
    finally:
        setting.repeat = repeat
    if tables.family != "sqlite":
        chart.bar("a small write, exactly once, against JDBC at its defaults: time", rows[0].name, JDBC, 1.3, at_most=True)
    yield chart


def _noop(setting: Setting, form: str, jobs: int) -> Spent:
    frame = setting.frame(jobs)
    with measured() as spent:
        frame.write.format(form).mode("append").save()
    return spent()
