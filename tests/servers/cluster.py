"""What the clusters of the tests have in common: several nodes of one database on loopback.

cluster = Galera()
urls = cluster.create_database()     # of one database, on each node
cluster.pause(1, 2); cluster.resume(1, 2)
cluster.kill(0); cluster.start(0); cluster.wait()
cluster.remove()                     # or at the end of the process
"""

import os
import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from tests.servers import partition, releases
from tests.servers.engines import Engine
from tests.servers.errors import ServerFailed, ServerMissing
from tests.servers.server import START_LIMIT, PrivateServer
from tools import debian_packages


class Cluster(ABC):
    """A cluster of nodes, which all start with it.

    :param node: makes the engine of a node from its number.
    :param password: of all nodes; empty: a new one.
    :raises ServerFailed: a node does not start, or does not join the others in time.
    """

    def __init__(self, node: Callable[[int], Engine], size: int = 3, password: str = "") -> None:
        self._password = password or secrets.token_hex(12)
        self.nodes: list[PrivateServer] = []
        try:
            for number in range(size):
                self.nodes.append(PrivateServer(node(number), durable=False, password=self._password))
                self.rejoin()
            self.wait()
        except BaseException:
            self.remove()
            raise

    def create_database(self) -> list[str]:
        """Create a database; return its URL on each node."""
        name = make_url(self.nodes[self.writers()[0]].create_database()).database
        return [node.url(name) for node in self.nodes]

    def drop_database(self, urls: Sequence[str]) -> None:
        """Drop a database that `create_database` made; another node may take changes now."""
        number = self.writers()[0]
        node = self.nodes[number]
        node._databases.add(str(make_url(urls[number]).database))
        node.drop_database(urls[number])

    def writers(self) -> list[int]:
        """The numbers of the nodes that take changes: those that are ready, unless the cluster has one primary."""
        return [number for number in range(len(self.nodes)) if self.size(number)]

    def pause(self, *numbers: int) -> None:
        """Stop the processes of these nodes (SIGSTOP): they keep their connections and say nothing."""
        for number in numbers:
            os.kill(self.nodes[number].pid, signal.SIGSTOP)

    def resume(self, *numbers: int) -> None:
        """Let paused nodes go on."""
        for number in numbers:
            os.kill(self.nodes[number].pid, signal.SIGCONT)

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """In the block a node and the others do not hear each other; clients reach all of them."""
        others = [*self._more(), *(node for other, node in enumerate(self.nodes) if other != number)]
        with partition.cut_off(self.nodes[number].pid, [node.pid for node in others], self._door(number)):
            yield

    def story(self) -> str:
        """What the servers have written into their logs."""
        return "\n".join(f"{server.source}:\n{server.log(5000)}" for server in [*self._more(), *self.nodes])

    def _more(self) -> list[PrivateServer]:
        """Servers of the cluster that are no nodes."""
        return []

    def _door(self, number: int) -> Callable[[partition.Address], bool]:
        """Whether a listener, also of another server, is only for the way between a node and the others."""
        raise NotImplementedError

    def kill(self, number: int) -> None:
        """Kill a node (SIGKILL); it keeps its data."""
        self.nodes[number].kill()

    def start(self, number: int) -> None:
        """Start a killed node again; it gets from the others what it missed."""
        self.nodes[number].start()

    def restore(self) -> None:
        """Let the nodes that have left the cluster join it again; return when all are members.

        :raises ServerFailed: they are not in time.
        """
        self.rejoin()
        self.wait()

    @abstractmethod
    def rejoin(self) -> None:
        """Let the nodes that run and are not in the cluster join it, if they do not by themselves and if it can take them now."""

    def wait(self, *numbers: int, size: int | None = None) -> None:
        """Wait until these nodes, or all, see ``size`` ready nodes, or all; 0: until they are not ready themselves.

        :raises ServerFailed: they do not in time.
        """
        wanted = len(self.nodes) if size is None else size
        limit = time.monotonic() + START_LIMIT
        for number in numbers or range(len(self.nodes)):
            while (seen := self.size(number)) != wanted:
                if time.monotonic() > limit:
                    raise ServerFailed(f"node {number} sees {seen} nodes. The end of its log:\n{self.nodes[number].log()}")
                time.sleep(0.05)

    def size(self, number: int) -> int:
        """How many ready nodes a node sees; 0: it is not ready itself, or does not answer."""
        try:
            return self._size(number)
        except SQLAlchemyError:
            return 0

    @abstractmethod
    def _size(self, number: int) -> int:
        """As :meth:`size`.

        :raises SQLAlchemyError: it does not answer, or has no cluster.
        """

    def remove(self) -> None:
        """Kill the nodes and remove their folders."""
        for node in self.nodes:
            node.remove()


def together(urls: Sequence[str]) -> str:
    """One URL of the nodes of a database: connections go to each of them."""
    first, *_ = nodes = [make_url(url) for url in urls]
    hosts = tuple(f"{node.host}:{node.port}" for node in nodes)
    return first.set(host=None, port=None).update_query_dict({"host": hosts, "nodes": "all"}).render_as_string(hide_password=False)


def unpacked(suite: str, name: str, packages: Sequence[str]) -> Path:
    """The folder with the unpacked packages of a cluster's nodes.

    :raises ServerMissing: they cannot be had on this machine.
    """
    system, _ = debian_packages.distribution()
    if system != "debian":
        raise ServerMissing(f"The packages of {name} are known for debian only, and this is {system}.")
    try:
        return releases.debian_tree(suite, name, *packages)
    except debian_packages.Unavailable as error:
        raise ServerMissing(f"No {name} to test with: {error}") from error
