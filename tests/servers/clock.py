"""Servers whose clocks are wrong on purpose, by libfaketime from this machine's Debian packages."""

from pathlib import Path

from tests.servers import folders
from tests.servers.cluster import Cluster
from tests.servers.errors import ServerMissing
from tools import debian_packages


def shift(cluster: Cluster, number: int, seconds: float) -> None:
    """Restart a node with a clock that is wrong by so many seconds, also after each later start.

    :raises ServerMissing: the library cannot be had on this machine.
    """
    engine, library = cluster.nodes[number]._engine, _library()
    usual = engine.environment

    def environment(folder: Path) -> dict[str, str]:
        # The monotonic clock, by which a server waits, is right.
        clock = {"LD_PRELOAD": str(library), "FAKETIME": f"{seconds:+}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return usual(folder) | clock

    engine.environment = environment  # type: ignore[method-assign]
    cluster.nodes[number].stop()
    cluster.nodes[number].start()
    cluster.restore()


def _library() -> Path:
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"faketime-{system}-{suite}"
    if not tree.is_dir():
        try:
            debian_packages.unpack(tree, "own", ["libfaketime"])
        except debian_packages.Unavailable as error:
            raise ServerMissing(f"No clock to be set wrong: {error}") from error
    (library,) = tree.glob("usr/lib/*/faketime/libfaketimeMT.so.1")
    return library
