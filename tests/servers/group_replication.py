"""A group of MySQL nodes on loopback that replicate by Group Replication, from Debian's packages.

The first node founds the group. The others, and those that come back, read what they missed from the binary log of a member.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tests.servers import partition, releases
from tests.servers.cluster import Cluster, unpacked
from tests.servers.engines import USER, MySQL
from tests.servers.errors import ServerFailed
from tests.servers.server import START_LIMIT, free_port
from tools import debian_packages

#: Seconds after which a node that has lost the majority of its group gives up the transactions that wait for it.
ALONE = 5

_MEMBERS = "performance_schema.replication_group_members"
_ONLINE = f"FROM {_MEMBERS} WHERE member_state = 'ONLINE'"
_SIZE = f"SELECT count(*) * coalesce(max(member_id = @@server_uuid), 0) {_ONLINE}"
_ROLE = f"SELECT member_role {_ONLINE} AND member_id = @@server_uuid"
_MEMBER = f"SELECT count(*) FROM {_MEMBERS} WHERE member_state IN ('ONLINE', 'RECOVERING') AND member_id = @@server_uuid"
_LOST = f"SELECT count(*) FROM {_MEMBERS} WHERE member_state = 'UNREACHABLE'"
#: Transactions that a node has, also those that it has not applied yet.
_HAS = """\
SELECT concat_ws(',', @@global.gtid_executed, (SELECT received_transaction_set FROM performance_schema.replication_connection_status
WHERE channel_name = 'group_replication_applier'))"""


class _Node(MySQL):
    """One node: MySQL with the plugin of Group Replication."""

    def __init__(self, tree: Path, group: str, ports: list[int], number: int, *, single: bool) -> None:
        program = "usr/sbin/mysqld"
        source = f"debian sid's packages, node {number}"
        super().__init__(source, tree / program, debian_packages.command(tree, program), tree / "usr/share/mysql")
        every, one = ("OFF", "ON") if single else ("ON", "OFF")
        options = {
            "group-name": group,
            "local-address": f"127.0.0.1:{ports[number]}",
            "group-seeds": ",".join(f"127.0.0.1:{port}" for port in ports),
            "start-on-boot": "OFF",
            "single-primary-mode": one,
            "enforce-update-everywhere-checks": every,
            "recovery-get-public-key": "ON",  # the members' own connections use no TLS
            "member-expel-timeout": "0",
            "unreachable-majority-timeout": ALONE,
            "autorejoin-tries": 0,  # a second try comes after five minutes: restore() does not wait for it
            "message-cache-size": 128 << 20,
        }
        self._group = [
            f"--plugin-dir={tree}/usr/lib/mysql/plugin",
            "--plugin-load-add=group_replication.so",
            f"--server-id={number + 1}",
            "--log-bin=changes",
            "--sync-binlog=0",
            # To the system's cache at each commit: a killed node must not know less than its binary log, or it differs for good.
            "--innodb-flush-log-at-trx-commit=2",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--report-host=127.0.0.1",
            "--performance-schema=ON",
            "--performance-schema-instrument=%=OFF",
            *(f"--loose-group-replication-{name}={value}" for name, value in options.items()),
        ]

    def make_data(self, folder: Path, password: str) -> None:
        super().make_data(folder, password)
        (folder / "data/auto.cnf").unlink()  # the template's identity; each node makes its own
        first = folder / "first.sql"
        # What a node alone has in its binary log keeps it out of the group.
        first.write_text(f"SET sql_log_bin = OFF;\n{first.read_text()}SET sql_log_bin = ON;\n")

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        found = [*super().command(folder, port, durable=durable), *self._group, f"--report-port={port}"]
        # Without it a node takes changes of its own from its start until it is in the group, which are lost and keep it out.
        return found if (folder / "first.sql").exists() else [*found, "--super-read-only=ON"]


class GroupReplication(Cluster):
    """A group; every node takes changes, or with ``single=True`` one, the primary."""

    def __init__(self, *, single: bool = False, size: int = 3) -> None:
        suite, package = releases.DEBIAN["mysql", "9"]
        tree = unpacked(suite, "mysql", [package])
        group = str(uuid.uuid4())
        self._ports = [free_port() for _ in range(size)]
        super().__init__(lambda number: _Node(tree, group, self._ports, number, single=single), size)

    def writers(self) -> list[int]:
        return [number for number in super().writers() if self.nodes[number]._ask(_ROLE) == "PRIMARY"]

    def _door(self, number: int) -> Callable[[partition.Address], bool]:
        return lambda listener: int(listener[1], 16) == self._ports[number]

    def start(self, number: int) -> None:
        super().start(number)
        self._join(number)

    def rejoin(self) -> None:
        is_member = dict[int, bool]()
        for number, node in enumerate(self.nodes):
            with suppress(SQLAlchemyError):
                is_member[number] = node._ask(_MEMBER) != "0"
        members = [number for number, member in is_member.items() if member]
        if not members and len(is_member) == len(self.nodes):
            # As an administrator does after the loss of a majority: the node that has most founds the group again.
            members = [max(is_member, key=lambda number: _transactions(self.nodes[number]._ask(_HAS)))]
            self._join(members[0], founds=True)
        if members and all(self.nodes[number]._ask(_LOST) == "0" for number in members):
            for number in is_member.keys() - set(members):
                self._join(number)

    def _join(self, number: int, *, founds: bool = False) -> None:
        node = self.nodes[number]
        if founds:
            node._ask("SET GLOBAL group_replication_bootstrap_group = ON")
        limit = time.monotonic() + START_LIMIT
        while True:
            try:
                node._ask("STOP GROUP_REPLICATION")  # a try that failed, or a loss of the majority, leaves it half started
                node._ask(f"START GROUP_REPLICATION USER = '{USER}', PASSWORD = '{self._password}'")
                break
            except SQLAlchemyError as error:
                # The group may not have noticed yet that the killed node, whose place this one takes, is gone.
                if time.monotonic() > limit:
                    raise ServerFailed(f"node {number} cannot join: {error}. The end of its log:\n{node.log()}") from error
                time.sleep(0.2)
        if founds:
            node._ask("SET GLOBAL group_replication_bootstrap_group = OFF")

    def _size(self, number: int) -> int:
        return int(self.nodes[number]._ask(_SIZE))


def _transactions(gtids: str) -> int:
    """How many transactions these sets of one history have together: ``uuid:1-5,uuid:1-7`` has 7."""
    last: dict[str, int] = {}
    for of_one in filter(None, gtids.split(",")):
        source, *_, span = of_one.strip().split(":")
        last[source] = max(last.get(source, 0), int(span.split("-")[-1]))
    return sum(last.values())
