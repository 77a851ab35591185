"""The nodes of a cluster: the faults that strike them, and how long nobody could claim meanwhile."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pymysql
from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos import ledger
from tests.chaos.log import Operation
from tests.servers import ServerFailed
from tests.servers.cluster import Cluster
from tests.servers.clusters import CLUSTERS as _MYSQL
from tests.servers.postgresql_ha import PostgreSQLCluster

#: What rounds run on: three nodes; of PostgreSQL two.
CLUSTERS: dict[str, Callable[[], Cluster]] = {
    "galera": _MYSQL["galera"],
    "group-replication-single": _MYSQL["group-replication-single"],
    "postgresql-ha": PostgreSQLCluster,
}
#: Seconds of a silence or partition: the others have noticed it for some seconds.
AWAY = 8.0
#: Seconds in which all nodes must be back.
WHOLE_AGAIN = 120.0
#: Seconds for which all nodes must have been members.
SETTLED = 4
#: Starts of a node that fails at first.
STARTS = 3
#: Operations whose result shows that somebody has won a job.
CLAIMS = frozenset({"claim", "complete_and_claim", "begin"})


def kill(cluster: Cluster, *numbers: int) -> None:
    """End nodes by SIGKILL; after two seconds they come back, at once."""
    for number in numbers:
        cluster.kill(number)
    time.sleep(2.0)
    _start(cluster, *numbers)


def pause(cluster: Cluster, *numbers: int) -> None:
    """Stop nodes (SIGSTOP), and let them go on."""
    cluster.pause(*numbers)
    time.sleep(AWAY)
    cluster.resume(*numbers)


def isolate(cluster: Cluster, *numbers: int) -> None:
    """Cut nodes off from all others; clients still reach them."""
    for number in numbers:
        _isolate(cluster, number, "1")
    time.sleep(AWAY)
    for number in numbers:
        _isolate(cluster, number, "0")


def restart(cluster: Cluster, *numbers: int) -> None:
    """Restart one node after the other."""
    for number in numbers:
        cluster.nodes[number].stop()
        _start(cluster, number)
        cluster.restore()


def shrink(cluster: Cluster, *numbers: int) -> None:
    """Stop one node after the other, and start them again together."""
    for number in numbers:
        cluster.nodes[number].stop()
        time.sleep(2.0)
    _start(cluster, *numbers)


def cut_off(cluster: Cluster, number: int) -> None:
    """The same of one node, of a cluster that cannot do it by itself."""
    with cluster.cut_off(number):
        time.sleep(AWAY)


def mute(cluster: Cluster, *_: int) -> None:
    """Stop all but the primary, also what would notice it: no COMMIT is answered."""
    assert isinstance(cluster, PostgreSQLCluster)
    with cluster.standby_silent():
        time.sleep(AWAY)


#: Fault → what it does, and to which nodes, counted from a node on. Where each node takes changes, from any.
OF_EQUALS: dict[str, tuple[Callable[..., None], Sequence[int]]] = {
    "one killed": (kill, [0]),
    "two killed": (kill, [0, 1]),
    "one silent": (pause, [0]),
    "two silent": (pause, [0, 1]),
    "one cut off": (isolate, [0]),
    "each alone": (isolate, [0, 1, 2]),
    "rolling restart": (restart, [0, 1, 2]),
    "3, 2, 1, 3 nodes": (shrink, [0, 1]),
}
#: The same where one takes changes, from that one on.
OF_A_PRIMARY: dict[str, tuple[Callable[..., None], Sequence[int]]] = {
    "primary killed": (kill, [0]),
    "primary killed after lost replies": (kill, [0]),
    "standby killed": (kill, [1]),
    "primary and standby killed": (kill, [0, 1]),
    "primary silent": (pause, [0]),
    "primary and standby silent": (pause, [0, 1]),
    "primary cut off": (cut_off, [0]),
}
#: Cluster → its faults.
OF = {
    "galera": OF_EQUALS,
    "group-replication-single": OF_A_PRIMARY
    | {
        "both standbys silent": (pause, [1, 2]),
        "rolling restart": (restart, [0, 1, 2]),
        "3, 2, 1, 3 nodes": (shrink, [0, 1]),
    },
    "postgresql-ha": OF_A_PRIMARY
    | {
        "standby silent": (pause, [1]),
        "standby and monitor silent": (mute, []),
        "both restarted": (restart, [0, 1]),
        "2, 1, 2 nodes": (shrink, [0]),
    },
}
FAULTS = {name: fault for faults in OF.values() for name, fault in faults.items()}
#: Faults before which clients lose the replies to their COMMITs.
REPLIES_LOST = frozenset({"primary killed after lost replies"})


def strike(cluster: Cluster, kind: str, first: int) -> None:
    """Play a fault from this node on, counted from the first that takes changes; return when all nodes are back."""
    play, positions = FAULTS[kind]
    first += _first_writer(cluster)
    play(cluster, *((first + position) % len(cluster.nodes) for position in positions))
    limit, whole = time.monotonic() + WHOLE_AGAIN, 0
    # Members that were silent seem to be back before they hear that the others have gone on without them.
    while whole < SETTLED and time.monotonic() < limit:
        _start(cluster, *_ended(cluster))
        with contextlib.suppress(SQLAlchemyError):  # a node went away meanwhile, or no connection was left
            cluster.rejoin()
        time.sleep(1.0)
        is_whole = all(cluster.size(number) == len(cluster.nodes) for number in range(len(cluster.nodes)))
        whole = whole + 1 if is_whole else 0
    cluster.wait()


def _first_writer(cluster: Cluster) -> int:
    limit = time.monotonic() + WHOLE_AGAIN
    while time.monotonic() < limit:
        with contextlib.suppress(SQLAlchemyError, IndexError):
            return cluster.writers()[0]
        time.sleep(0.2)
    raise ServerFailed("no node takes changes")


def _ended(cluster: Cluster) -> list[int]:
    """The nodes whose process has ended: one that comes back and has missed too much ends by itself."""
    found = [number for number, node in enumerate(cluster.nodes) if node._process is None or node._process.poll() is not None]
    for number in found:
        cluster.kill(number)
    return found


def _start(cluster: Cluster, *numbers: int) -> None:
    """Start nodes at the same time: two that were killed wait for each other."""

    def start(number: int) -> None:
        # As a service manager: a node that joins ends if the node that gives it the data has lost its cluster meanwhile.
        for _ in range(STARTS):
            with contextlib.suppress(ServerFailed):
                cluster.nodes[number].start()
                return

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, numbers))


def _isolate(cluster: Cluster, number: int, value: str) -> None:
    url = make_url(cluster.nodes[number].url())
    # Not by SQLAlchemy: a node that is alone refuses what that asks at first.
    with pymysql.connect(
        host=url.host, port=url.port or 0, user=url.username, password=str(url.password), autocommit=None
    ) as connection:
        connection.cursor().execute(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={value}'")


def without_a_claim(operations: Sequence[Operation], began: float, ended: float) -> float:
    """The longest time from the begin of a fault, or a claim that won a job during it, to the next such claim."""
    # A node that cannot commit still says of an empty queue that it is empty.
    won = sorted(one.returned for one in operations if one.ok and one.name in CLAIMS and len(one.result) > 1)
    moments = [began, *(moment for moment in won if moment > began)]
    return max((after - before for before, after in pairwise(moments) if before < ended), default=math.inf)


def catch_up(urls: Sequence[str]) -> None:
    """Return when each node that takes changes has applied all that was committed on the others."""
    for url in urls if len(urls) > 1 and make_url(urls[0]).get_backend_name() == "mariadb" else ():
        engine = ledger.engine_of(url)
        with engine.connect() as connection:
            connection.execute(text("SET SESSION wsrep_sync_wait = 1"))
            connection.execute(text("SELECT 1"))
            connection.invalidate()
        engine.dispose()
