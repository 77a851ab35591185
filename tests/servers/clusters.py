"""The clusters that can be started on this machine, by name."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.servers.cluster import Cluster
from tests.servers.galera import Galera
from tests.servers.group_replication import GroupReplication

CLUSTERS: Mapping[str, Callable[[], Cluster]] = {
    "galera": Galera,
    "group-replication": GroupReplication,
    "group-replication-single": partial(GroupReplication, single=True),
}
