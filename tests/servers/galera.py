"""A Galera cluster of MariaDB nodes on loopback, from Debian's packages.

The first node starts alone. The others, and those that come back, get their data by a state transfer from a node that runs.
"""

import os
from pathlib import Path

from tests.servers import lookup, processes
from tests.servers.cluster import Cluster, unpacked
from tests.servers.engines import MariaDB
from tests.servers.errors import ServerMissing
from tests.servers.server import free_port
from tools import debian_packages

#: Release of MariaDB → Debian's suite.
SUITES = {"11.8": "trixie", "10.11": "bookworm"}
PACKAGES = ["mariadb-server-core", "galera-4"]

#: Seconds without a word from a node after which the others go on without it.
SILENCE = 3


# Galera runs this for a state transfer on both nodes. The joiner waits at a pipe for the position of its data in the cluster's
# history. The other node writes it there: at once if its cache holds all that the joiner missed, else after a copy of its data.
_TRANSFER = """\
#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
        --role) role=$2 ;;
        --address) pipe=$2 ;;
        --datadir) data=${2%/} ;;
        --gtid) position=$2 ;;
        --bypass) cached=yes ;;
        --mysqld-args) break ;;
    esac
    shift
done
if [ "$role" = joiner ]; then
    rm -f "$data.pipe" && mkfifo "$data.pipe" && echo "ready $data.pipe" && exec cat "$data.pipe"
fi
if [ -z "$cached" ]; then
    own="galera.cache grastate.dat gvwstate.dat pid tables_flushed"
    cd "$data" && rm -f tables_flushed && echo "flush tables"
    until [ -s tables_flushed ]; do sleep 0.05; done
    position=$(cat tables_flushed)
    for file in "${pipe%.pipe}"/*; do case " $own " in *" ${file##*/} "*) ;; *) rm -rf "$file" ;; esac; done
    for file in *; do case " $own " in *" $file "*) ;; *) cp -a "$file" "${pipe%.pipe}/" || exit 5 ;; esac; done
    rm tables_flushed && echo continue
fi
echo "$position" > "$pipe" && echo "done $position"
"""


class _Node(MariaDB):
    """One node: MariaDB with the provider of Galera."""

    def __init__(self, suite: str, tree: Path, ports: list[int], number: int) -> None:
        program = tree / "usr/sbin/mariadbd"
        command = debian_packages.command(tree, "usr/sbin/mariadbd")
        super().__init__(f"debian {suite}'s packages, node {number}", program, lookup.mariadb_share(tree / "usr"), command)
        self._first = number == 0
        self._settings = [
            "--wsrep-on=ON",
            f"--wsrep-provider={tree}/usr/lib/galera/libgalera_smm.so",
            "--wsrep-cluster-name=queue_db",
            "--wsrep-cluster-address=gcomm://" + ",".join(f"127.0.0.1:{port}" for port in ports),
            f"--wsrep-node-name=node{number}",
            f"--wsrep-node-address=127.0.0.1:{ports[number]}",
            "--wsrep-sst-method=pipe",
            "--wsrep-provider-options="
            + ";".join(
                [
                    f"gmcast.listen_addr=tcp://127.0.0.1:{ports[number]}",
                    f"ist.recv_addr=127.0.0.1:{free_port()}",
                    "gcache.size=16M",
                    "evs.keepalive_period=PT0.5S",
                    "evs.inactive_check_period=PT0.5S",
                    f"evs.suspect_timeout=PT{SILENCE}S",
                    f"evs.inactive_timeout=PT{2 * SILENCE}S",
                ]
            ),
            "--loose-plugin-wsrep-provider=OFF",  # its options are one variable, as before 11.8, which can isolate a node
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]

    def environment(self, folder: Path) -> dict[str, str]:
        return {"PATH": f"{folder}:{os.defpath}"}

    def make_data(self, folder: Path, password: str) -> None:
        if self._first:
            super().make_data(folder, password)
        else:
            (folder / "data").mkdir()  # the first node's data come into it
            self.certify(folder)
        transfer = folder / "wsrep_sst_pipe"
        transfer.write_text(_TRANSFER)
        transfer.chmod(0o755)
        processes.hand_over(folder)

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        found = [*super().command(folder, port, durable=durable), *self._settings]
        if self._first and (folder / "first.sql").exists():
            found.append("--wsrep-new-cluster")
        return found


class Galera(Cluster):
    """A cluster; every node takes changes.

    :param release: of MariaDB, one of ``SUITES``; None: that of QUEUE_DB_TEST_GALERA_RELEASE in the environment, or the newest.
    """

    def __init__(self, release: str | None = None, size: int = 3) -> None:
        release = release or os.environ.get(lookup.variable("galera", "RELEASE")) or next(iter(SUITES))
        if release not in SUITES:
            raise ServerMissing(f"Galera {release!r}: the releases that can be installed are {', '.join(SUITES)}.")
        suite = SUITES[release]
        tree = unpacked(suite, "galera", PACKAGES)
        ports = [free_port() for _ in range(size)]
        super().__init__(lambda number: _Node(suite, tree, ports, number), size)

    def rejoin(self) -> None:
        """They do by themselves."""

    def _size(self, number: int) -> int:
        node = self.nodes[number]
        return int(node.variable("wsrep_cluster_size")) if node.variable("wsrep_ready") == "ON" else 0
