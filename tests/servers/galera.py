"""A Galera cluster of MariaDB nodes on loopback, from Debian's packages.

    cluster = Galera()
    urls = cluster.create_database()     # of one database, on each node
    cluster.pause(1, 2); cluster.resume(1, 2)
    cluster.remove()                     # or at the end of the process

The first node starts alone. The others, and those that come back, get their data by a state transfer from a node that runs.
"""

import os
import secrets
import signal
import time
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from tests.servers import folders, processes
from tests.servers.engines import MariaDB
from tests.servers.errors import ServerFailed, ServerMissing
from tests.servers.lookup import mariadb_share
from tests.servers.server import START_LIMIT, PrivateServer, free_port
from tools import debian_packages

SUITE = "trixie"
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

    def __init__(self, tree: Path, ports: list[int], number: int) -> None:
        program = tree / "usr/sbin/mariadbd"
        command = debian_packages.command(tree, "usr/sbin/mariadbd")
        super().__init__(f"debian {SUITE}'s packages, node {number}", program, mariadb_share(tree / "usr"), command)
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


class Galera:
    """A cluster; every node takes changes."""

    def __init__(self, size: int = 3) -> None:
        tree = _tree()
        ports = [free_port() for _ in range(size)]
        password = secrets.token_hex(12)
        self.nodes: list[PrivateServer] = []
        try:
            for number in range(size):
                self.nodes.append(PrivateServer(_Node(tree, ports, number), durable=False, password=password))
            self.wait()
        except BaseException:
            self.remove()
            raise

    def create_database(self) -> list[str]:
        """Create a database; return its URL on each node."""
        name = make_url(self.nodes[0].create_database()).database
        return [node.url(name) for node in self.nodes]

    def pause(self, *numbers: int) -> None:
        """Stop the processes of these nodes (SIGSTOP): they keep their connections and say nothing."""
        for number in numbers:
            os.kill(self.nodes[number].pid, signal.SIGSTOP)

    def resume(self, *numbers: int) -> None:
        """Let paused nodes go on."""
        for number in numbers:
            os.kill(self.nodes[number].pid, signal.SIGCONT)

    def wait(self, *numbers: int, size: int | None = None, ready: bool = True) -> None:
        """Wait until these nodes, or all, are ready in a cluster of ``size`` nodes; with ``ready=False`` until they
        are not.

        :raises ServerFailed: they are not in time.
        """
        wanted = ("ON", str(size or len(self.nodes)))
        limit = time.monotonic() + START_LIMIT
        for number in numbers or range(len(self.nodes)):
            while (self._state(number) == wanted) is not ready:
                if time.monotonic() > limit:
                    raise ServerFailed(f"node {number} is {self._state(number)}. The end of its log:\n{self.nodes[number].log()}")
                time.sleep(0.05)

    def _state(self, number: int) -> tuple[str, str]:
        """Whether the node is ready, and the size of its cluster; empty: a node without a cluster refuses even a ROLLBACK."""
        try:
            return self.nodes[number].variable("wsrep_ready"), self.nodes[number].variable("wsrep_cluster_size")
        except SQLAlchemyError:
            return "", ""

    def remove(self) -> None:
        """Kill the nodes and remove their folders."""
        for node in self.nodes:
            node.remove()


def _tree() -> Path:
    system, _ = debian_packages.distribution()
    if system != "debian":
        raise ServerMissing(f"The packages of Galera are known for debian only, and this is {system}.")
    tree = folders.cache_folder() / f"galera-debian-{SUITE}"
    if not tree.is_dir():
        try:
            debian_packages.unpack(tree, SUITE, PACKAGES)
        except debian_packages.Unavailable as error:
            raise ServerMissing(f"No Galera to test with: {error}") from error
    return tree
