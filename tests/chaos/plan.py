"""The plan of a round, drawn from its seed: the clients, and the faults with their moments and victims.

What a client does as its operation ``n`` is drawn from the seed, its name and ``n``, so a client that was killed goes on with the
same plan. How the processes meet is different in each run.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tests.chaos import nodes
from tests.databases import FILES

#: Faults of every database; with the kind of client that each of them hits ("": any).
EVERYWHERE = {"kill": "", "stop": "", "interrupt": "", "lock": ""}
#: Faults of a database that is a server; those of the network hit all clients behind the proxy.
SERVED = {
    "session": "",
    "crowd": "",
    "cut": "proxy",
    "before commit": "proxy",
    "after commit": "proxy",
    "silence": "proxy",
    "latency": "proxy",
    "refuse": "proxy",
}
#: Only of a server that the round may kill.
PRIVATE = {"server": ""}
#: Of a cluster. Each round has one of these, the next seed the next: twice, or of 10 s and less once.
NODES = nodes.OF
KINDS = (*EVERYWHERE, *SERVED, *PRIVATE, *nodes.FAULTS)

#: How often each is drawn, against 1.
WEIGHTS = {"kill": 4.0, "stop": 3.0, "interrupt": 3.0, "before commit": 2.0, "after commit": 2.0, "session": 2.0, "server": 0.7}

#: Roles whose operations can be interrupted: they run on the main thread of their process.
INTERRUPTED = frozenset({"producer", "consumer", "publisher", "reader", "cursor", "spans"})

#: Clients of each role.
CREW = {"producer": 2, "consumer": 2, "worker": 1, "overtaken": 1, "publisher": 2, "reader": 1, "cursor": 2, "spans": 2}
#: Of a file, where one writes at a time, and of a cluster with one primary, whose nodes need the machine too.
FEWER = CREW | {"publisher": 1, "cursor": 1, "spans": 1}
#: Of a cluster whose nodes all take changes: one on each node, where they meet.
CREW_OF_A_CLUSTER = CREW | {"producer": 3, "consumer": 3}


@dataclass(frozen=True)
class ClientPlan:
    """One client."""

    name: str
    role: str
    #: Its connections lead through the proxy.
    proxied: bool
    #: Seconds by which its own clock is wrong.
    skew: float


@dataclass(frozen=True)
class Fault:
    """A fault."""

    #: When: the part of the round that is over, 0 to 1.
    at: float
    kind: str
    #: The client that it hits, or the first node, counted from the first that takes changes; empty: all that it concerns.
    target: str
    #: How long it lasts.
    seconds: float

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:4.0%} {self.kind}{lasting}{f' {self.target}' if self.target else ''}"


@dataclass(frozen=True)
class Plan:
    """A round."""

    seed: int
    kind: str
    #: How long producers go on, unless ``operations`` says so.
    seconds: float
    #: Operations of each producer; None: as many as there is time for.
    operations: int | None
    lease: float
    clients: list[ClientPlan] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    #: Mean seconds between two operations of a client: several rounds share a machine.
    pause: float = 0.1

    def without(self, kinds: Collection[str]) -> Plan:
        """The same plan, but for the faults of these kinds."""
        return replace(self, faults=[fault for fault in self.faults if fault.kind not in kinds])

    def __str__(self) -> str:
        whole = f"{self.seconds:.0f} s" if self.operations is None else f"{self.operations} operations of each producer"
        lines = [f"seed {self.seed} on {self.kind}: {whole}, leases of {self.lease:.1f} s"]
        for client in self.clients:
            skew = f", its clock off by {client.skew:+.0f} s" if client.skew else ""
            lines.append(f"  {client.name}{' behind the proxy' if client.proxied else ''}{skew}")
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


def make(
    seed: int,
    kind: str,
    *,
    seconds: float = 30.0,
    operations: int | None = None,
    faults: int | None = None,
    lease: float | None = None,
    pause: float = 0.1,
    private: bool = True,
) -> Plan:
    """Draw a plan.

    :param faults: how many; None: one in 1.5 s.
    :param lease: seconds; None: 1 to 2.
    :param private: the round has a server of its own, which may be killed.
    """
    rng = random.Random(f"{seed}")
    served, cluster = kind not in FILES, kind in NODES
    drawn_lease = round(rng.uniform(1.0, 2.0), 1)
    lease = lease or drawn_lease
    equals = cluster and NODES[kind] is nodes.OF_EQUALS
    crew = CREW_OF_A_CLUSTER if equals else FEWER if cluster or not served else CREW
    clients = [
        ClientPlan(
            f"{role}-{number}", role, served and (number % 2 == 1 or rng.random() < 0.4), rng.choice([0.0, 0.0, 3600.0, -3600.0])
        )
        for role, size in crew.items()
        for number in range(size)
    ]
    kinds = [*EVERYWHERE, *(SERVED if served else {}), *(PRIVATE if served and private and not cluster else {})]
    number = max(1, round(seconds / (5 if cluster else 1.5))) if faults is None else faults
    drawn = [_fault(rng, rng.choices(kinds, [WEIGHTS.get(one, 1.0) for one in kinds])[0], clients, lease) for _ in range(number)]
    if cluster and private:
        of_nodes, size = list(NODES[kind]), 3 if equals else 1
        drawn += [
            Fault(at, of_nodes[seed % len(of_nodes)], str(rng.randrange(size)), 0.0)
            for at in ((0.2, 0.65) if seconds > 10 else (0.3,))
        ]
    return Plan(seed, kind, seconds, operations, lease, clients, sorted(drawn, key=lambda fault: fault.at), pause)


def _fault(rng: random.Random, kind: str, clients: list[ClientPlan], lease: float) -> Fault:
    victims = [client.name for client in clients if kind != "interrupt" or client.role in INTERRUPTED]
    target = rng.choice(victims) if kind in {"kill", "stop", "interrupt"} else ""
    seconds = {
        "stop": rng.uniform(1.1, 2.5) * lease,
        "lock": rng.uniform(0.2, 1.5),
        "crowd": rng.uniform(0.3, 1.0),
        "silence": rng.uniform(0.5, 3.0),
        "latency": rng.uniform(1.0, 3.0),
        "refuse": rng.uniform(0.3, 2.0),
        "server": rng.uniform(0.1, 1.5),
    }.get(kind, 0.0)
    return Fault(round(rng.uniform(0.05, 0.95), 3), kind, target, round(seconds, 2))
