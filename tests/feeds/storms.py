"""Publishers, rankers, readers, holders of spans and claims, routers and forwarders are killed at random points, and counted.

``python -m tests.feeds.storms kills --points 200 --url URL`` (or ``--kind mariadb``: a private server) keeps a few processes of
each role at work on one set of feeds. Half of them are killed before or after a statement that the seed draws, the others at a
moment of its choice. Another one takes the place of each, until so many were killed. Then all are killed; after one lease a
consumer of each sort does what is left, and the account is made up (``accounts.py``). The suite has the short form, at chosen
points.

``--wrong ranker`` and ``--wrong router`` show that the account notices a version that does in two transactions what belongs in one.
The exit status is 1 if there was a fault. The seed fixes what is drawn, not how the processes meet.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from queue_db import QueueDB, QueueDBError
from tests.databases import FILES
from tests.feeds.accounts import Account, account, finish, prepare
from tests.feeds.lives import ROLES, Order, begin, notes
from tests.servers import provide

#: Processes of each role at work.
CREW = {role: 2 if role in {"publish", "topic", "observe", "share", "claim"} else 1 for role in ROLES}

#: Statement events of the longest life (of a reader: from when it has its cursor), and its seconds where a moment ends it.
EVENTS, SECONDS = 120, 1.5


@dataclass
class Storm:
    """A storm of kills."""

    url: str
    name: str
    folder: Path
    rng: random.Random
    points: int
    lease: float
    pause: float
    wrong: str = ""
    killed: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    # Process → its role, name and the moment of its end; infinite: it ends itself.
    _living: dict[int, tuple[str, str, float]] = field(default_factory=dict)

    def run(self) -> None:
        """Kill ``points`` processes, one after the other; then all."""
        for role, number in CREW.items():
            for who in range(number):
                self._start(role, f"{who}")
        while self.killed.total() < self.points and not self.failed:
            now = time.monotonic()
            for pid in [pid for pid, (_, _, end) in self._living.items() if end <= now]:
                os.kill(pid, signal.SIGKILL)
            self._reap(restart=True)
            time.sleep(0.005)
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)
        while self._living:
            self._reap(restart=False)
            time.sleep(0.005)

    def _start(self, role: str, who: str) -> None:
        order = Order(self.url, self.name, role, who, str(self.folder), self.rng.randrange(1 << 30))
        order.lease, order.pause, order.wrong = self.lease, self.pause, self.wrong
        by_itself = self.rng.random() < 0.5
        if by_itself:
            order.events = self.rng.randint(1, EVENTS)
        end = time.monotonic() + self.rng.uniform(0.05, SECONDS)
        self._living[begin(order)] = (role, who, float("inf") if by_itself else end)

    def _reap(self, *, restart: bool) -> None:
        for pid in list(self._living):
            with suppress(ChildProcessError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                role, who, _ = self._living.pop(pid)
                if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
                    self.failed += 1
                elif restart:
                    self.killed[role] += 1
                    self._start(role, who)


def kills(storm: Storm, ordering: str | None) -> Account:
    """Play a storm; what is there afterwards."""
    with QueueDB(storm.url) as db:
        db.migrate()
        prepare(db, storm.name, ordering or ("ranked" if db.store.dialect.served else "counter"))
    storm.run()
    if storm.failed:
        raise SystemExit(f"{storm.failed} processes failed:\n{(storm.folder / 'errors').read_text()}")
    # From here on everything that they held must be free.
    time.sleep(storm.lease)
    with QueueDB(storm.url) as db:
        try:
            took = finish(db, storm.name)
        except (AssertionError, QueueDBError) as error:
            return Account(faults=[f"what is left cannot be done: {error}"])
        print(f"after one lease of {storm.lease} s nothing was held; the rest took {took:.1f} s")
        return account(db, storm.name, storm.folder)


def _print(storm: Storm) -> None:
    """How and where processes were killed."""
    lines = [values for role in ROLES for values in notes(storm.folder, f"{role}-")]
    places = Counter(f"{when} {text}" for what, *values in lines if what == "dies" for when, text in [values])
    errors = Counter(values[0] for what, *values in lines if what == "error")
    roles = ", ".join(f"{role} {number}" for role, number in sorted(storm.killed.items()))
    print(f"{storm.killed.total()} kills: {roles}; {places.total()} at {len(places)} places between statements")
    print(f"errors that processes got over: {dict(errors) or 'none'}")


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("storm", choices=["kills"])
    parser.add_argument("--url", help="a database for tests; otherwise a private one of --kind")
    parser.add_argument("--kind", default="postgresql", help="postgresql, mysql, mariadb or sqlite (postgresql)")
    parser.add_argument("--points", type=int, default=200, help="processes to kill (200)")
    parser.add_argument("--ordering", help="of the feeds: ranked or counter; default: that of new feeds")
    parser.add_argument("--lease", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--pause", type=float, default=0.01, help="mean seconds between two steps of a process (0.01)")
    parser.add_argument("--wrong", default="", choices=["", "ranker", "router"], help="a version that must be noticed")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="drawn, and printed")
    options = parser.parse_args()
    server = None if options.url or options.kind in FILES else provide(options.kind, durable=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or (server.create_database() if server else f"{options.kind}:///{folder}/queue.db")
            print(f"--kind {options.kind} --points {options.points} --seed {options.seed}", flush=True)
            rng, name = random.Random(options.seed), f"storm-{options.seed}-{os.getpid()}"
            storm = Storm(url, name, Path(folder), rng, options.points, options.lease, options.pause, options.wrong)
            began = time.monotonic()
            seen = kills(storm, options.ordering)
            _print(storm)
            print(f"{seen}; {time.monotonic() - began:.0f} s")
    finally:
        if server is not None:
            server.remove()
    return 1 if seen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
