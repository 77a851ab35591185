"""HAProxy before the nodes of a PostgreSQL cluster: its port leads to the node that takes changes."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from sqlalchemy import make_url

from tests.servers import folders, processes
from tests.servers.server import free_port
from tools import debian_packages

#: The role that the health check connects as: without a password or a right.
ROLE = "health"

_SETTINGS = """\
defaults
    mode tcp
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    timeout check 1s
listen primary
    bind {address}
    option tcp-check
    tcp-check connect
    tcp-check send-binary {ask}
    tcp-check expect binary {answer}
    default-server check inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
"""


class HAProxy:
    """A balancer that asks each node twice a second whether it takes changes.

    :param ports: of the nodes, on loopback.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.port = free_port()
        self._folder = folders.new_run_folder("haproxy")
        file = self._folder / "haproxy.cfg"
        file.write_text(
            settings({f"node{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports)}, f"127.0.0.1:{self.port}")
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_program(), "-db", "-f", str(file)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **processes.account(),
            )
        folders.note_process(self._folder, self._process.pid)

    def url(self, url: str) -> str:
        """Return the same URL through this balancer."""
        return make_url(url).set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    def remove(self) -> None:
        """Kill the balancer and remove its folder."""
        processes.kill_at_once(self._process.pid)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def settings(nodes: Mapping[str, str], address: str) -> str:
    """The configuration of a balancer at this address before nodes: name → address."""
    servers = "".join(f"    server {name} {node}\n" for name, node in nodes.items())
    return _SETTINGS.format(address=address, ask=_question().hex(), answer=_ANSWER.hex()) + servers


def _question() -> bytes:
    """The first message of PostgreSQL's protocol, and a query, which the server reads once it has let the role in."""
    start = b"\x00\x03\x00\x00" + f"user\0{ROLE}\0database\0postgres\0\0".encode()
    query = b"SHOW transaction_read_only\0"  # on in a standby, and in a node that is being promoted
    return (len(start) + 4).to_bytes(4, "big") + start + b"Q" + (len(query) + 4).to_bytes(4, "big") + query


#: A row of one column, "off".
_ANSWER = b"D" + (13).to_bytes(4, "big") + (1).to_bytes(2, "big") + (3).to_bytes(4, "big") + b"off"


def _program() -> list[str]:
    if installed := shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin"):
        return [installed]
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"haproxy-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", ["haproxy"])
    return debian_packages.command(tree, "usr/sbin/haproxy")
