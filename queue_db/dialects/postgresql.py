"""PostgreSQL 12 and later, through psycopg2, and asyncpg for asyncio."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import (
    ARRAY,
    CTE,
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Integer,
    Select,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    column,
    delete,
    event,
    exists,
    func,
    literal,
    literal_column,
    null,
    select,
    text,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import asynchronous, direct, greeting, jdbc, pooled, prepared, transactions
from queue_db.dialects.base import ReturningDialect, Rows, due_time
from queue_db.dialects.chunks import FIELDS, Unpacked
from queue_db.dialects.claim_plan import DUE, ID, PRIORITY, ClaimPlan, TakeResult
from queue_db.dialects.clock import instant, now_us, now_us_after_waiting
from queue_db.dialects.listening import PostgreSQLListener
from queue_db.dialects.statements import Pairs, copied, stays, tied
from queue_db.dialects.tabbed import Value, written
from queue_db.errors import PermanentStorageError
from queue_db.model import MOST_ATTEMPTS, MOST_CLAIMED_VERSION, Capability, ClaimedRow, Fault, NewJob


@compiles(now_us, "postgresql")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # statement_timestamp is stable within a statement, so it may bound an index range; clock_timestamp may not.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(instant, "postgresql")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"(TIMESTAMPTZ '1970-01-01 00:00:00Z' + {micros} * INTERVAL '1 microsecond')"


@compiles(now_us_after_waiting, "postgresql")
def _now_after_waiting(element: now_us_after_waiting, compiler: Any, **kw: Any) -> str:
    # One statement locks and writes here.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


# What libpq's options are called in JDBC; the driver speaks UTF-8, and keeps connections alive as the system does.
_JDBC_NAMES: dict[str, str | None] = {
    "application_name": "ApplicationName",
    "channel_binding": "channelBinding",
    "connect_timeout": "connectTimeout",  # seconds there too
    "gssencmode": "gssEncMode",
    "krbsrvname": "kerberosServerName",
    "options": "options",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslnegotiation": "sslNegotiation",
    "sslpassword": "sslpassword",
    "sslrootcert": "sslrootcert",
    "client_encoding": None,
    "keepalives": None,
    "keepalives_count": None,
    "keepalives_idle": None,
    "keepalives_interval": None,
    "tcp_user_timeout": None,
}

# The same for asyncpg. It prepares all that it sends and keeps that with the connection, so each execution gets a plan of its own:
# one that was made while the table was empty would stay.
_ASYNCPG: dict[str, Any] = {
    "timeout": 10,
    "server_settings": {
        "application_name": "queue_db",
        "lock_timeout": "10000",
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_custom_plan",
        "enable_seqscan": "off",
        "jit": "off",
    },
}

# The prepared statement does not exist, or exists already.
_NOT_MY_SESSION = frozenset({"26000", "42P05"})


class PostgreSQL(ReturningDialect):
    """One statement for everything: UPDATE … RETURNING in a WITH, arrays for many rows."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    title: ClassVar[str] = "PostgreSQL"
    default_driver: ClassVar[str | None] = "psycopg2"
    extra: ClassVar[str] = "postgresql"
    async_driver: ClassVar[str | None] = "asyncpg"
    async_extra: ClassVar[str] = "async-postgresql"
    autocommits: ClassVar[bool] = True
    notifies: ClassVar[bool] = True
    deletes_on_claim: ClassVar[bool] = True
    minimum: ClassVar[tuple[int, ...]] = (12,)
    # Serialization failure, deadlock, lock not available, too many connections, shutting down, cannot connect now.
    # And what a prepared statement meets in a session that is not the one that it was prepared in.
    transient: ClassVar[frozenset[str]] = (
        frozenset({"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}) | _NOT_MY_SESSION
    )

    read_only: ClassVar[frozenset[str]] = frozenset({"25006"})

    faults: ClassVar[Mapping[str, Fault]] = {
        "40P01": Fault.DEADLOCK,
        "40001": Fault.SERIALIZATION,
        "55P03": Fault.LOCK_TIMEOUT,
    }

    def __init__(self) -> None:
        self._pooling = pooled.Pooling()

    def on_demand(self, connection: Connection, *, write: bool = True) -> transactions.OnDemand:
        # The connection has been made by now, so it is known.
        return self._pooling.begin(connection) or super().on_demand(connection, write=write)

    _prepares = False
    _full_until = 0.0  # the monotonic time before which claims do not use the fast path

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        return frozenset(Capability)

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # As people write it, with a unit: shared_buffers is counted in pages.
        settings = text(
            "SELECT name, current_setting(name) AS setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', "
            "'full_page_writes', 'max_connections', 'shared_buffers', 'synchronous_commit', 'transaction_isolation')"
        )
        facts = {row.name: row.setting for row in connection.execute(settings)}
        # A table that somebody made without the migration has none of these.
        options = text("SELECT unnest(reloptions) FROM pg_class WHERE oid = to_regclass(:name)")
        for option in connection.execute(options, {"name": jobs.fullname}).scalars():
            name, _, value = option.partition("=")
            if name in ("fillfactor", "autovacuum_vacuum_threshold"):
                facts[f"{name} of {jobs.name}"] = f"{value} %" if name == "fillfactor" else f"{value} rows"
        return dict(sorted(facts.items()))

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        quoted = connection.dialect.identifier_preparer.format_table
        named = [
            {"place": quoted(one), "id": one.autoincrement_column.name} for one in tables if one.autoincrement_column is not None
        ]
        query = text("SELECT pg_get_serial_sequence(:place, :id)")
        found = [connection.execute(query, one).scalar_one() for one in named]
        allowed = text("SELECT has_sequence_privilege(:sequence, 'USAGE')")
        return [one for one in found if one is not None and not connection.execute(allowed, {"sequence": one}).scalar_one()]

    def process(self, connection: Connection) -> int | None:
        # This connection's own; its parent is the postmaster.
        return int(connection.execute(select(func.pg_backend_pid())).scalar_one())

    def analyze(self, connection: Connection, table: Table) -> None:
        connection.exec_driver_sql(f"ANALYZE {connection.dialect.identifier_preparer.format_table(table)}")

    def engine_options(self, url: URL) -> dict[str, Any]:
        # Without these a query on a connection whose network was cut hung for 25 s and more; with them 20 s is the limit.
        # They give way to what the URL says.
        if url.get_driver_name() == "asyncpg":
            return {"connect_args": {name: value for name, value in _ASYNCPG.items() if name not in url.query}}
        waits = {
            "connect_timeout": 10,
            "keepalives": 1,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
            "application_name": "queue_db",
            # Milliseconds; nobody waits for ever for a row or a table that some forgotten transaction holds. At REPEATABLE READ a
            # lost version check is an error instead of no row. What is prepared here needs no plan for each set of values; and one
            # that is made while the table is small must not read all of it when it has grown. What must be read all the same
            # looks so expensive then that servers before 18 would compile it first.
            "options": r"-c lock_timeout=10000 -c default_transaction_isolation=read\ committed "
            f"-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off -c {pooled.MARK}=1",
        }
        if "options" in url.query:
            given = url.query["options"]
            waits["options"] = " ".join([str(waits["options"]), *([given] if isinstance(given, str) else given)])
        return {"connect_args": {name: value for name, value in waits.items() if name == "options" or name not in url.query}}

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        # Poolers refuse settings at the start of a session, or hand them on to the wrong client.
        arguments = self.engine_options(url)["connect_args"]
        arguments.pop("options")
        return {"connect_args": arguments | ({} if "application_name" in url.query else {"application_name": "queue_db spark"})}

    def limit_waits(self, engine: Engine) -> None:
        event.listen(engine, "begin", _limit_waits)

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        properties = {
            "reWriteBatchedInserts": "true",  # many rows in one statement: measured, 60,000 jobs in 0.8 s and not in 1.3 s
            "logServerErrorDetail": "false",  # or the error of a batch shows its payloads, thousands of them
            "connectTimeout": "10",
            "tcpKeepAlive": "true",
        } | jdbc.properties_of(url, _JDBC_NAMES)
        if "sslrootcert" in properties and properties.get("sslmode") == "require":
            properties["sslmode"] = "verify-ca"  # as libpq does; this driver would not look at the certificate
        if properties.get("sslrootcert") == "system":
            # libpq's word for the authorities that the system trusts; Java has its own list of them.
            properties |= {"sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory", "sslmode": "verify-full"}
            del properties["sslrootcert"]
        address = jdbc.address("jdbc:postgresql", url, 5432, quote(url.database or "", safe=""))
        return address, jdbc.driver_for(driver, ["org.postgresql.Driver"]), properties

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        self._prepares = made_here and engine.dialect.driver == "psycopg2"
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        if engine.dialect.driver == "psycopg2":
            self._pooling.watch(engine)
        if engine.dialect.driver == "asyncpg":
            event.listen(engine, "do_connect", pooled.refuse_pooler)
            event.listen(engine, "connect", asynchronous.limit_waits)
        return engine

    def match(self, jobs: Table, pairs: Pairs) -> ColumnElement[bool]:
        if len(pairs) == 1:
            return super().match(jobs, pairs)
        return _matching(
            jobs,
            bindparam(None, [job_id for job_id, _ in pairs], ARRAY(BigInteger), unique=True),
            bindparam(None, [version for _, version in pairs], ARRAY(BigInteger), unique=True),
        )

    def take(
        self,
        connection: Connection,
        plan: ClaimPlan,
        parameters: Mapping[str, Any],
        *,
        fast_path: bool = False,
        delete_on_claim: bool = False,
    ) -> TakeResult:
        if fast_path and time.monotonic() >= self._full_until:
            return self._take_fast_path(connection, plan, parameters, delete_on_claim=delete_on_claim)
        if delete_on_claim:
            return TakeResult((), 0, {}, (), conclusive=False)
        found = self.fetch(connection, _take(plan), parameters)
        unseen = sorted(row[PRIORITY] for row in found if row[ID] is None and row[_TRIED] is None)
        # What lies beyond a priority that was not looked into was not tried.
        tried = [row for row in found if row[_TRIED] is not None and not (unseen and unseen[0] < row[PRIORITY])]
        return TakeResult(
            rows=[row for row in found if row[ID] is not None],
            candidates=sum(row[_TRIED] for row in tried),
            heads={row[PRIORITY]: row[_HEAD] for row in tried},
            unseen=unseen,
        )

    def _take_fast_path(
        self, connection: Connection, plan: ClaimPlan, parameters: Mapping[str, Any], *, delete_on_claim: bool
    ) -> TakeResult:
        """One UPDATE … RETURNING, or with ``delete_on_claim`` one DELETE … RETURNING, half the work of the full statement."""
        one = parameters["limit"] == 1
        try:
            rows = self.fetch(connection, _fast_path(plan, one=one, delete_on_claim=delete_on_claim), parameters)
        except DBAPIError as error:
            if self.fault(error) is not Fault.LOCK_TIMEOUT:
                raise
            # Somebody holds a due job for longer than a claim takes: the full statement steps over it.
            self._full_until = time.monotonic() + _FULL_SECONDS
            transaction = transactions.own(connection)
            if transaction is None or transaction.begun:
                raise  # which has undone it all
            rows = ()
        if not rows:
            return TakeResult((), 0, {}, (), conclusive=False)
        tried = 1 if one else rows[0][_TRIED]
        # Within a slice nobody knows where the queue begins.
        heads = {} if "start" in parameters else {rows[0][PRIORITY]: rows[0][DUE] if one else rows[0][_HEAD]}
        return TakeResult(rows, tried, heads, (), conclusive=len(rows) == parameters["limit"])

    def delete_returning(self, connection: Connection, jobs: Table, pairs: Pairs) -> set[int]:
        if len(pairs) == 1:
            ((job_id, version),) = pairs
            gone = self.fetch(connection, _delete_one(jobs), {"of_id": job_id, "of_version": version})
        else:
            ids, versions = [job_id for job_id, _ in pairs], [version for _, version in pairs]
            gone = self.fetch(connection, _delete_many(jobs), {"ids": ids, "versions": versions})
        return {job_id for (job_id,) in gone}

    def hold(self, connection: Connection, jobs: Table, pairs: Pairs) -> Pairs:
        ordered = sorted(pairs)
        values = {"ids": [job_id for job_id, _ in ordered], "versions": [version for _, version in ordered]}
        return [(job_id, version) for job_id, version in self.fetch(connection, _hold(jobs), values)]

    def move_to_held(
        self,
        connection: Connection,
        jobs: Table,
        held: Table,
        *,
        due: Sequence[ColumnElement[bool]],
        limit: int,
        values: Mapping[str, ColumnElement[Any]],
        reserved: Mapping[str, Any] | None,
        skip: bool,
        parameters: Mapping[str, Any],
    ) -> int:
        # By the rows' places, which need no index; whoever changes such a row meanwhile is waited for, and it is looked at again.
        place: ColumnElement[Any] = literal_column("ctid")
        first = select(place.label("place")).select_from(jobs).where(*due)
        first = first.order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(limit)
        found = (first.with_for_update(skip_locked=True) if skip else first).cte("found")
        among = place == any_(func.array(select(found.c.place).scalar_subquery()))
        names = [name for name in values if name not in ("stream", "batch")]
        # A DELETE returns the row as it was, an UPDATE as it is now.
        gone = delete(jobs).where(among, *due, ~stays(jobs)).returning(*(values[name].label(name) for name in names))
        moved = [gone.cte("gone")]
        if reserved is not None:
            same = {"available_at": jobs.c.due_at, "version": jobs.c.version, "attempts": jobs.c.attempts}
            kept = update(jobs).where(among, *due, stays(jobs)).values(reserved)
            moved.append(kept.returning(*(same.get(name, jobs.c[name]).label(name) for name in names)).cte("kept"))
        arms = [select(values["stream"], values["batch"], *(arm.c[name] for name in names)) for arm in moved]
        source = arms[0] if len(arms) == 1 else union_all(*arms)
        return connection.execute(insert(held).from_select(["stream", "batch", *names], source), parameters).rowcount

    def fetch(self, connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """A statement that is an object of its own for ever, prepared on our own connections.

        A caller's connection may have another driver, or stand behind a pooler that gives each transaction another session. If
        that is so of ours, the first error shows it: the transaction is run again, and nothing is prepared any more.
        """
        try:
            return super().fetch(connection, statement, values)
        except DBAPIError as error:
            if self.code(error) in _NOT_MY_SESSION:
                self._prepares = False
            raise

    def bypasses_sqlalchemy(self, sql: SQLAlchemyDialect) -> bool:
        return self._prepares and not self._pooling.found

    def render(self, connection: Connection, statement: Executable, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        return prepared.render(connection, statement, values)

    def notify(self, connection: Connection, channel: str, text: str) -> None:
        connection.execute(select(func.pg_notify(channel, text)))

    def listen(self, engine: Engine, channel: str) -> PostgreSQLListener | None:
        # Through a pooler nothing can be heard.
        hears = engine.dialect.driver == "psycopg2" and not self._pooling.found
        return PostgreSQLListener(engine, channel) if hears else None

    def insert_new(self, connection: Connection, jobs: Table, rows: Rows, now: int | None) -> list[int | None]:
        # One array for each column keeps the statement's text the same for any number of rows; 2 × as fast as VALUES lists. What is
        # the same in all rows, as most is in most cases, needs no array.
        columns = dict(zip(NewJob._fields, zip(*rows, strict=True), strict=True))
        names = copied(rows)
        same = {name for name, values in columns.items() if name != "payload" and values.count(values[0]) == len(values)}
        kinds = {name: jobs.c[name].type if name in _NUMBERS else Text() for name in names}
        kinds |= {"after": BigInteger(), "not_before": BigInteger()}
        arrays = {name: kind for name, kind in kinds.items() if name not in same}
        given = (
            func.unnest(*(bindparam(f"{name}s", list(columns[name]), ARRAY(kind)) for name, kind in arrays.items()))
            .table_valued(*(column(name, kind) for name, kind in arrays.items()), with_ordinality="place", name="given")
            .render_derived(name="given")
        )
        value = {name: literal(columns[name][0], kind) if name in same else given.c[name] for name, kind in kinds.items()}
        clock = now_us() if now is None else literal(now, BigInteger)
        source = select(*(value[name] for name in names), due_time(clock, value["after"], value["not_before"]), clock).order_by(
            given.c.place
        )
        statement = insert(jobs).from_select([*names, "available_at", "created_at"], source)
        # Ids come from the sequence in the order of the sorted rows; rows without a key are never skipped.
        if "unique_key" in same and columns["unique_key"][0] is None:
            # To be ready for a conflict costs a third more.
            return sorted(connection.execute(statement.returning(jobs.c.id)).scalars())
        key, live = [jobs.c.queue, jobs.c.unique_key], jobs.c.unique_key.is_not(None)
        careful = statement.on_conflict_do_nothing(index_elements=key, index_where=live)
        inserted = connection.execute(careful.returning(jobs.c.id, *key)).all()
        keyless = iter(sorted(row.id for row in inserted if row.unique_key is None))
        keyed = {(row.queue, row.unique_key): row.id for row in inserted if row.unique_key is not None}
        return [next(keyless) if row.unique_key is None else keyed.get((row.queue, row.unique_key)) for row in rows]

    def append(
        self, connection: Connection, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        if connection.dialect.driver != "psycopg2":
            super().append(connection, table, columns, same)
            return
        preparer = connection.dialect.identifier_preparer
        names = ", ".join(map(preparer.quote, (*(same or {}), *columns)))
        statement = f"COPY {preparer.format_table(table)} ({names}) FROM STDIN"
        expected = len(next(iter(columns.values())))
        loaded = direct.copy(connection, statement, io.StringIO(written(columns, same or {})))
        if loaded != expected:
            raise PermanentStorageError(f"{loaded} of {expected} rows were loaded into {table.name}", statement_name="COPY")

    def as_csv(self, connection: Connection, query: Select[Any]) -> bytes | None:
        if connection.dialect.driver != "psycopg2":
            return None
        # COPY takes no parameters; these are numbers and checked names, and SQLAlchemy writes them.
        sql = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        rows = io.BytesIO()
        # Its own escapes of % are for parameters, which there are none of.
        direct.copy(connection, f"COPY ({sql.string.replace('%%', '%')}) TO STDOUT (FORMAT csv)", rows)
        return rows.getvalue()

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked:
        # jsonb is taken apart twice as fast as json; texts come out as they went in.
        rows = func.jsonb_array_elements(cast(chunk, JSONB)).table_valued(column("job", JSONB), name="given").render_derived()
        texts = {name: rows.c.job.op("->>")(literal_column(str(place))) for place, name in enumerate(fields)}
        return Unpacked(rows, {name: cast(value, FIELDS[name]) for name, value in texts.items()})

    def code(self, error: DBAPIError) -> str | None:
        return getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)

    def is_down(self, engine: Engine) -> bool:
        _, options = engine.dialect.create_connect_args(engine.url)
        return greeting.nobody_answers(greeting.places(options), options)

    def is_transient(self, code: str) -> bool:
        return super().is_transient(code) or code.startswith("08")

    def is_away(self, code: str) -> bool:
        return super().is_away(code) and code not in _NOT_MY_SESSION


def _limit_waits(connection: Connection) -> None:
    # Of this transaction alone. The last two are for tables that were small when their statistics were made, and because the tasks
    # are parallel already: to start helpers for each page takes longer than to read it.
    connection.exec_driver_sql(
        "SELECT set_config('lock_timeout', '60s', true), set_config('statement_timeout', '30min', true), "
        "set_config('idle_in_transaction_session_timeout', '5min', true), set_config('enable_seqscan', 'off', true), "
        "set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)"
    )


_NUMBERS = ("priority", "max_attempts", "callback_id")


# How long a fast-path claim waits for a row that another transaction is claiming; then it is a miss. No claim takes longer.
_WITH_PATIENCE = "set_config('lock_timeout', '50ms', true)"

# Seconds for which claims are careful after one has met such a row.
_FULL_SECONDS = 10.0

# What both statements tell besides.
_TRIED = len(ClaimedRow._fields)
_HEAD = _TRIED + 1


@lru_cache(maxsize=256)
def _fast_path(plan: ClaimPlan, *, one: bool, delete_on_claim: bool) -> Any:
    """Claim the candidates of the fast path without a temporary table, one job without an array.

    ``delete_on_claim``: delete them. It claims nothing if a candidate has a group or a callback, which the same transaction must
    update, and no job without attempts left.
    """
    jobs = plan.jobs
    assert plan.fast_path is not None  # noqa: S101 - or nobody would have asked
    assert plan.before is not None  # noqa: S101
    limit, start, front = (bindparam(name, type_=Integer) for name in ("limit", "start", "front"))
    fast_path = plan.fast_path.add_columns(tied(jobs).label("tied")) if delete_on_claim else plan.fast_path
    rows: Any = fast_path.limit(limit)
    if plan.slices:
        slice_, head = fast_path.offset(start).limit(limit), fast_path.limit(front)
        rows = union_all(select(slice_.subquery("slice")), select(head.subquery("head"))).limit(limit)
    elif plan.locks:
        rows = rows.with_for_update(skip_locked=True)
    window = rows.cte("candidate")
    # Waiting for whoever is taking these rows at this moment costs less than a step to see whether anybody is; but not for ever.
    patience = select(literal_column(_WITH_PATIENCE)).scalar_subquery()
    if not one:
        condition = jobs.c.id == any_(_array_of(window.c.id)) if plan.locks else _still(jobs, window)
    else:
        condition = jobs.c.id == select(window.c.id).scalar_subquery()
        if not plan.locks:
            condition = and_(condition, jobs.c.version == select(window.c.version).scalar_subquery())
    if delete_on_claim:
        last = func.least(jobs.c.max_attempts, MOST_ATTEMPTS - 1)
        change: Any = delete(jobs).where(jobs.c.attempts < last, jobs.c.version < MOST_CLAIMED_VERSION)
    else:
        change = update(jobs).ordered_values(*plan.values)
    change = change.where(condition, plan.before.scalar_subquery().is_(None))
    if not plan.locks:
        change = change.where(patience.is_not(None))
    told: list[Any] = list(plan.returning)
    if delete_on_claim:
        change = change.where(~exists().where(window.c.tied))
        # A DELETE tells what was there: the rows are told as the claim would have left them.
        left = {column.name: value for column, value in plan.values}
        told = [left[column.name].label(column.name) if column.name in left else column for column in told]
    if not one:
        tried = select(func.count()).select_from(window).scalar_subquery()
        first = select(func.min(window.c.available_at)).scalar_subquery()
        told += [tried.label("tried"), first.label("head")]
    return change.returning(*told)


def _held(jobs: Table, window: CTE, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    """The candidates that still have their version and that no other transaction is claiming.

    Such a row is a miss now: waiting for the commit to find another version brings nothing, and two batches that wait for each
    other's rows are a deadlock, which takes a second to be noticed.
    """
    held = select(jobs.c.id).where(_still(jobs, window), *more).with_for_update(skip_locked=True).cte("held")
    return jobs.c.id == any_(_array_of(held.c.id))


def _still(jobs: Table, window: CTE) -> ColumnElement[bool]:
    """The candidates that have their version still."""
    return and_(
        # The array drives the primary key, whatever the statistics say of a table that was empty a moment ago.
        jobs.c.id == any_(_array_of(window.c.id)),
        _among(jobs, select(window.c.id, window.c.version)),
    )


@lru_cache(maxsize=256)
def _take(plan: ClaimPlan) -> Any:
    """Read the candidates, take those that still have their version, and tell of both, in one statement."""
    jobs = plan.jobs
    window = plan.candidates.cte("candidate")
    unseen = None if plan.unseen is None else plan.unseen.cte("unseen")
    seen = [] if unseen is None else [~select(unseen.c.priority).where(unseen.c.priority < jobs.c.priority).exists()]
    condition = and_(_still(jobs, window), *seen) if plan.locks else _held(jobs, window, *seen)
    taken = update(jobs).where(condition).ordered_values(*plan.values).returning(*plan.returning).cte("taken")
    # Three kinds of rows: jobs won (id), what was tried of each priority (tried, head), priorities not looked into (neither).
    names = [item.key for item in taken.c]
    tried = select(
        *(window.c.priority if name == "priority" else null().label(name) for name in names),
        func.count().label("tried"),
        func.min(window.c.head).label("head"),
    ).group_by(window.c.priority)
    told = [select(*taken.c, null().label("tried"), null().label("head")), tried]
    if unseen is not None:
        blank = [unseen.c.priority if name == "priority" else null().label(name) for name in names]
        told.append(select(*blank, null().label("tried"), null().label("head")))
    return union_all(*told)


@lru_cache(maxsize=64)
def _delete_one(jobs: Table) -> Any:
    one = and_(jobs.c.id == bindparam("of_id", type_=BigInteger), jobs.c.version == bindparam("of_version", type_=BigInteger))
    return delete(jobs).where(one).returning(jobs.c.id)


@lru_cache(maxsize=64)
def _delete_many(jobs: Table) -> Any:
    ids = bindparam("ids", type_=ARRAY(BigInteger))
    return delete(jobs).where(_matching(jobs, ids, bindparam("versions", type_=ARRAY(BigInteger)))).returning(jobs.c.id)


@lru_cache(maxsize=64)
def _hold(jobs: Table) -> Any:
    ids, versions = (bindparam(name, type_=ARRAY(BigInteger)) for name in ("ids", "versions"))
    found = select(jobs.c.id, jobs.c.version).where(_matching(jobs, ids, versions)).order_by(jobs.c.id)
    return found.with_for_update()


def _array_of(item: ColumnElement[int]) -> ColumnElement[Any]:
    return func.array(select(item).scalar_subquery(), type_=ARRAY(BigInteger))


def _matching(jobs: Table, ids: ColumnElement[Any], versions: ColumnElement[Any]) -> ColumnElement[bool]:
    wanted = (
        func.unnest(ids, versions)
        .table_valued(column("id", BigInteger), column("version", BigInteger), name="wanted")
        .render_derived(name="wanted")
    )
    # The array of ids drives the primary key in id order, so that two settles never wait for each other in a circle, and no plan
    # made while the table was empty can turn this into a scan.
    return and_(jobs.c.id == any_(ids), _among(jobs, select(wanted.c.id, wanted.c.version)))


def _among(jobs: Table, pairs: Select[Any]) -> ColumnElement[bool]:
    """Whether id and version are one of the pairs: IS TRUE makes it a look into a hash table, and not a join that compares all."""
    return tuple_(jobs.c.id, jobs.c.version).in_(pairs).is_(true())
