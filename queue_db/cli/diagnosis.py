"""What ``queue-db doctor`` and a comparison ask each database: settings, missing rights, and open transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from queue_db.dialects.base import Companion

# The maximum number of open transactions in one diagnosis. The oldest ones come first.
_MOST = 10


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of another connection that delays the queue."""

    #: The state of its connection, in the server's words.
    state: str
    #: The user of its connection; None: the server shows none.
    user: str | None
    #: The seconds for which it has been open.
    age: float
    #: The statement that ends the transaction.
    end: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one server shows of its cluster; empty without a cluster."""

    facts: dict[str, str] = field(default_factory=dict)
    #: Why this server cannot be used now.
    problems: list[str] = field(default_factory=list)
    #: Settings with which commits are lost or wait in a failure, and what is lost.
    warnings: list[str] = field(default_factory=list)


class Diagnosis(Companion):
    """Defaults that work on most databases. ``Diagnosis.of(dialect)`` is the one for a dialect of the queue."""

    #: The advice if the database refuses changes.
    when_read_only: ClassVar[str] = "connect to a server that takes changes"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def cluster(self, connection: Connection) -> ClusterView:
        """The cluster of this server. Default: none."""
        return ClusterView()

    def grantee(self, connection: Connection) -> str:
        """The user of this connection in the syntax of GRANT. Default: there are no users."""
        return "…"

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        """The quoted schema of the tables if the user has no right to use it. Default: None, schemas need no right."""
        return None

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The id sequences of these tables that the user has no right to use. Default: ids need no right of their own."""
        return []

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        """The transactions of other connections that delay the queue and are open for more than ``age`` seconds.

        Only those that the user may see. Default: none, they are unknown.
        """
        return []

    def hidden_transactions(self, connection: Connection) -> str | None:
        """The GRANT that the user needs to see the transactions of other users. Default: None, the user sees them."""
        return None


# Times in innodb_trx are in the server's time zone, and NOW() is in the session's. A transaction at READ COMMITTED that has locked
# nothing delays nothing. Thread 0 stands for a transaction without a connection.
_OPEN_MYSQL = text(
    "SELECT t.trx_mysql_thread_id AS thread, p.user AS name, p.command AS state, "
    "TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) AS age "
    "FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
    "WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) "
    "AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_rows_locked + t.trx_rows_modified > 0) "
    "HAVING age >= :age ORDER BY age DESC LIMIT :most"
)

_OF_CLUSTER = "^(wsrep_|group_replication_|auto_increment_increment$|innodb_flush_log_at_trx_commit$)"

# The error numbers if the user lacks a privilege of the server (PROCESS), or the right to read a table.
_NOT_ALLOWED = frozenset({1227, 1142})

# A member of Group Replication that cannot be reached stays in this table until the others expel it.
_MEMBERS = text(
    "SELECT member_state AS state, member_role AS role, member_id = @@server_uuid AS own "
    "FROM performance_schema.replication_group_members"
)

_FEW = "with fewer than three nodes, the failure of one may stop the others: add a node, or an arbitrator"
_EQUAL_IDS = (
    "auto_increment_increment={} on {} nodes: jobs that are enqueued on two nodes at once get the same id, and one of them fails; "
    "set {}"
)
_NOT_FLUSHED = (
    "innodb_flush_log_at_trx_commit={}: if all nodes fail within a second, the last commits are lost: new jobs are gone, and "
    "completed jobs run again"
)


def _galera(of: Mapping[str, str]) -> ClusterView:
    """The cluster by the variables and the status of a node of Galera."""
    size, state, status = int(of["wsrep_cluster_size"]), of["wsrep_local_state_comment"], of["wsrep_cluster_status"]
    node = repr(of["wsrep_node_name"])
    view = ClusterView(
        {
            "cluster": f"Galera {of['wsrep_cluster_name']!r} of {size} nodes; this node: {node}, {state}, {status}",
            "conflicts of this node": f"{of['wsrep_local_cert_failures']} at COMMIT, {of['wsrep_local_bf_aborts']} before it",
        }
    )
    if of["wsrep_ready"] != "ON" or status != "Primary":
        view.problems.append(
            f"this node is {state} in a {status} part of its cluster and refuses all statements: start the other nodes, or connect "
            "to a node of the majority"
        )
    elif size < _QUORUM:
        view.warnings.append(_FEW)
    if int(of["auto_increment_increment"]) < size:
        step = of["auto_increment_increment"]
        view.warnings.append(_EQUAL_IDS.format(step, size, "wsrep_auto_increment_control=ON"))
    return view


def _group_replication(of: Mapping[str, str], members: Sequence[Any]) -> ClusterView:
    """The group by the variables of a member of Group Replication, and by its view of the members."""
    size, online = len(members), sum(one.state in ("ONLINE", "RECOVERING") for one in members)
    several = of["group_replication_single_primary_mode"] == "OFF"
    own = next((one for one in members if one.own), None)
    state = "no member" if own is None else f"{own.state}, {own.role}"
    kind = "several primaries" if several else "one primary"
    view = ClusterView({"cluster": f"Group Replication of {size} nodes with {kind}; this node: {state}"})
    if own is None or own.state != "ONLINE":
        view.problems.append(
            f"this node is {state} of its group: connect to a node that is ONLINE, or START GROUP_REPLICATION here"
        )
    elif 2 * online <= size:
        view.problems.append(f"this node sees {online} of {size} nodes, no majority: a COMMIT waits until it sees more of them")
    elif size < _QUORUM:
        view.warnings.append(_FEW)
    if of["group_replication_unreachable_majority_timeout"] == "0":
        view.warnings.append(
            "group_replication_unreachable_majority_timeout=0: without a majority a COMMIT waits for ever instead of failing; "
            "set seconds"
        )
    if several and int(of["auto_increment_increment"]) < size:
        step = of["auto_increment_increment"]
        view.warnings.append(_EQUAL_IDS.format(step, size, "group_replication_auto_increment_increment"))
    return view


# The least number of nodes of which the others have a majority when one fails.
_QUORUM = 3


class MySQLDiagnosis(Diagnosis):
    """Names accounts with their hosts."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    when_read_only: ClassVar[str] = "connect to the primary, or switch read_only off"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # Not every server has all of these variables.
        query = text(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_snapshot_isolation', 'innodb_lock_wait_timeout', "
            "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_buffer_pool_size', 'sync_binlog', 'binlog_format', "
            "'log_bin', 'max_allowed_packet', 'max_connections', 'transaction_isolation', 'tx_isolation')"
        )
        units = {"innodb_lock_wait_timeout": " s", "innodb_buffer_pool_size": " bytes", "max_allowed_packet": " bytes"}
        return {str(name): f"{value}{units.get(name, '')}" for name, value in connection.execute(query)}

    def cluster(self, connection: Connection) -> ClusterView:
        of: dict[str, str] = {}
        for kind in ("VARIABLES", "STATUS"):
            query = text(f"SHOW GLOBAL {kind} WHERE Variable_name RLIKE :names")
            of |= {str(name): str(value) for name, value in connection.execute(query, {"names": _OF_CLUSTER})}
        if of.get("wsrep_on") == "ON":
            view = _galera(of)
        elif of.get("group_replication_group_name"):
            try:
                members = connection.execute(_MEMBERS).all()
            except DBAPIError as error:
                if getattr(error.orig, "args", (None,))[0] not in _NOT_ALLOWED:
                    raise
                right = f"GRANT SELECT ON performance_schema.replication_group_members TO {self.grantee(connection)}"
                return ClusterView({"cluster": f"Group Replication, which this user cannot see: {right}"})
            view = _group_replication(of, members)
        else:
            return ClusterView()
        if of["innodb_flush_log_at_trx_commit"] != "1":
            view.warnings.append(_NOT_FLUSHED.format(of["innodb_flush_log_at_trx_commit"]))
        return view

    def grantee(self, connection: Connection) -> str:
        # CURRENT_USER() is the account with which the server has authenticated this user. A GRANT to a name without a host is for
        # the account 'name'@'%', which might not exist.
        name, _, host = str(connection.execute(text("SELECT CURRENT_USER()")).scalar_one()).rpartition("@")
        return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        if self.hidden_transactions(connection):
            return []
        rows = connection.execute(_OPEN_MYSQL, {"age": age, "most": _MOST})
        return [OpenTransaction(row.state or "unknown", row.name, float(row.age), f"KILL {row.thread}") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        try:
            connection.execute(text("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")).close()
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] not in _NOT_ALLOWED:
                raise
            return f"GRANT PROCESS ON *.* TO {self.grantee(connection)}"
        return None


# A transaction that has written nothing and keeps no snapshot delays nothing. For a user without the right to see transactions of
# other users, their times are NULL.
_OPEN_POSTGRESQL = text(
    "SELECT pid, usename AS name, state, EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS age FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) "
    "AND xact_start <= clock_timestamp() - :age * INTERVAL '1 second' ORDER BY xact_start LIMIT :most"
)

# A user without a right to the schema can still read the catalog. If no schema is given, this looks for the table in the schemas of
# the search path.
_CLOSED = text(
    "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :name AND NOT has_schema_privilege(n.oid, 'USAGE') "
    "AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND n.nspname = ANY "
    "(string_to_array(translate(replace(current_setting('search_path'), '$user', current_user), '\" ', ''), ',')) "
    "AND NOT EXISTS (SELECT FROM pg_class v WHERE v.relname = :name AND pg_table_is_visible(v.oid)))"
)


# Users without the right pg_read_all_stats see the rows, but not the state of a standby. Backups and subscribers of logical
# replication are no standbys.
_STANDBYS = text(
    "SELECT pg_is_in_recovery() AS standby, current_setting('synchronous_commit') AS waits, "
    "current_setting('synchronous_standby_names') AS wanted, count(pid) AS connected, "
    "count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous, count(pid) - count(state) AS hidden "
    "FROM (SELECT) one LEFT JOIN pg_stat_replication r ON r.state IS DISTINCT FROM 'backup' AND NOT EXISTS "
    "(SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')"
)


class PostgreSQLDiagnosis(Diagnosis):
    """Checks rights on schemas and sequences."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    when_read_only: ClassVar[str] = (
        "connect to the primary (with several hosts in the URL: target_session_attrs=read-write), or switch "
        "default_transaction_read_only off"
    )

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        # current_setting has a unit; the column ``setting`` counts shared_buffers in pages.
        settings = text(
            "SELECT name, current_setting(name) AS setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', "
            "'full_page_writes', 'max_connections', 'shared_buffers', 'synchronous_commit', 'transaction_isolation')"
        )
        facts = {row.name: row.setting for row in connection.execute(settings)}
        # A table that was created without the migration has none of these options.
        options = text(
            "SELECT unnest(c.reloptions) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relname = :name AND (n.nspname = :schema OR CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid))"
        )
        for option in connection.execute(options, {"name": jobs.name, "schema": jobs.schema}).scalars():
            name, _, value = option.partition("=")
            if name in ("fillfactor", "autovacuum_vacuum_threshold"):
                facts[f"{name} of {jobs.name}"] = f"{value} %" if name == "fillfactor" else f"{value} rows"
        return dict(sorted(facts.items()))

    def cluster(self, connection: Connection) -> ClusterView:
        seen = connection.execute(_STANDBYS).one()
        view = ClusterView()
        if seen.waits == "off":
            view.warnings.append(
                "synchronous_commit=off: a crash of the server loses the last commits: new jobs are gone, and completed jobs run "
                "again"
            )
        if seen.standby or not (seen.connected or seen.wanted):
            return view
        view.facts["cluster"] = f"primary with {seen.connected} connected standbys, {seen.synchronous} of them synchronous"
        if seen.wanted and not (seen.synchronous or seen.hidden) and seen.waits not in ("off", "local"):
            view.problems.append(
                f"no standby of synchronous_standby_names={seen.wanted!r} is connected: a COMMIT waits until one is"
            )
        elif not seen.wanted or seen.waits == "local":
            view.warnings.append(
                "no commit waits for a standby: after a failover the last commits may be lost: new jobs are gone, and completed "
                "jobs run again; set synchronous_standby_names and synchronous_commit=on"
            )
        return view

    def grantee(self, connection: Connection) -> str:
        return str(connection.execute(text("SELECT quote_ident(current_user)")).scalar_one())

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        return connection.execute(_CLOSED, {"name": jobs.name, "schema": jobs.schema}).scalars().first()

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        quoted = connection.dialect.identifier_preparer.format_table
        named = [
            {"place": quoted(one), "id": one.autoincrement_column.name} for one in tables if one.autoincrement_column is not None
        ]
        query = text("SELECT pg_get_serial_sequence(:place, :id)")
        found = [connection.execute(query, one).scalar_one() for one in named]
        allowed = text("SELECT has_sequence_privilege(:sequence, 'USAGE')")
        return [one for one in found if one is not None and not connection.execute(allowed, {"sequence": one}).scalar_one()]

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        rows = connection.execute(_OPEN_POSTGRESQL, {"age": age, "most": _MOST})
        return [OpenTransaction(row.state, row.name, float(row.age), f"SELECT pg_terminate_backend({row.pid})") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        sees_all = connection.execute(text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")).scalar_one()
        return None if sees_all else f"GRANT pg_read_all_stats TO {self.grantee(connection)}"


class SQLiteDiagnosis(Diagnosis):
    """Has no users and shows no transactions."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)
    when_read_only: ClassVar[str] = "let this user write to the file and to its folder, and leave out mode=ro in the URL"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        units = {"journal_mode": "", "synchronous": "", "busy_timeout": " ms", "page_size": " bytes"}
        return {name: f"{connection.exec_driver_sql(f'PRAGMA {name}').scalar()}{unit}" for name, unit in units.items()}
