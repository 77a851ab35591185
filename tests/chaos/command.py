"""Rounds of random operations and faults on real databases, and a check that every promise was kept.

python -m tests.chaos --kinds sqlite postgresql mysql mariadb --seconds 30 --rounds 100 --parallel 6
    100 rounds on each, six at a time, each on a private server that it may kill.
python -m tests.chaos --kinds postgresql --seed 7
    The round of seed 7 again: the same clients, operations and faults; how they meet differs.
python -m tests.chaos --kinds galera group-replication-single postgresql-ha --rounds 48
    Clients of two or three nodes, which are killed, silent, cut off and restarted; how long nobody could claim, for each fault.
python -m tests.chaos --url postgresql://… --seconds 60
    On a server of yours, in a database of its own for each round; its process stays alive.
python -m tests.chaos --check FOLDER
    Check the log of a round once more.

In a round producers, consumers and a worker, as processes, enqueue, claim and settle jobs in all the ways there are, with effects
in the transaction of a completion and outside of it; others publish to feeds and a topic with two routes, read along, and hold
cursors and spans. Meanwhile processes are killed, stopped beyond their leases and interrupted;
connections break before and after a COMMIT, and are silent or slow; sessions and the server are killed; rows are locked, and no
connection is left. When the faults are over, all must come to an end. Each client logs what it was about to do and what came of
it; `checker.py` and `feed_checker.py` compare this with the database: what was acknowledged is done once, what was refused never
is, leases and groups do not overlap, readers of a feed see one order and miss nothing, and an operation in doubt has happened as a
whole or not at all.

Each round prints one line. After a violation the folder with the log stays; the lines that prove it are printed. The exit status
is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from sqlalchemy import make_url

from tests.chaos import nodes
from tests.chaos import plan as plans
from tests.chaos.broken import BROKEN
from tests.chaos.checker import Final
from tests.chaos.log import read_log
from tests.chaos.rounds import FINAL, Result, Round, check
from tests.databases import FILES, KINDS
from tests.servers import Server, clock, provide
from tests.servers.cluster import Cluster

#: Few enough connections for a crowd to take all of them. A commit is written to the system before it is acknowledged: it survives
#: the end of the server, but nobody waits for the disk.
SERVER_OPTIONS = {
    "postgresql": ["-c", "max_connections=90"],
    "mysql": ["--max-connections=90", "--innodb-flush-log-at-trx-commit=2"],
    "mariadb": ["--max-connections=90", "--innodb-flush-log-at-trx-commit=2"],
}
#: Rounds that one process runs on one server, when several run at the same time.
AT_ONCE = 5
#: What rounds run on.
ALL = (*KINDS, *nodes.CLUSTERS)


@dataclass
class Row:
    """A round as the report has it."""

    kind: str
    seed: int
    operations: int
    unknown: int
    jobs: int
    seconds: float
    faults: dict[str, int]
    #: The errors of operations, by their classes.
    errors: dict[str, int]
    without_a_claim: list[float]
    violations: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, result: Result) -> Row:
        unknown = sum(one.status == "unknown" for one in result.operations)
        violations = sorted({one.check for one in result.violations})
        return cls(
            result.plan.kind,
            result.plan.seed,
            len(result.operations),
            unknown,
            result.jobs,
            round(result.seconds, 1),
            dict(Counter(fault.kind for fault in result.struck)),
            dict(Counter(one.error.partition(":")[0] for one in result.operations if one.error)),
            [round(seconds, 2) for seconds in result.without_a_claim],
            violations,
        )


def main() -> int:
    """Run the command line; return the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are removed at a normal exit
    if options.check is not None:
        return _check(options.check)
    if options.parallel > 1:
        rows = _in_parallel(options)
    else:
        rows = [row for kind, url in _databases(options) for row in _rounds(options, kind, url)]
    if options.report is not None:
        options.report.write_text(report(rows))
    if len(rows) > 1 and options.results is None:
        print(f"\n{report(rows)}")
    return 1 if any(row.violations for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=[], choices=ALL, metavar="KIND", help=f"private databases: {', '.join(ALL)}")
    parser.add_argument("--url", action="append", default=[], help="a server for tests; several times: several")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long clients work and faults strike (30)")
    parser.add_argument("--operations", type=int, help="operations of each producer, in place of --seconds")
    parser.add_argument("--faults", type=int, help="faults of a round (one in 1.5 s)")
    parser.add_argument("--pause", type=float, default=0.1, help="mean seconds between two operations of a client (0.1)")
    parser.add_argument("--lease", type=float, help="seconds of the leases (1 to 2)")
    parser.add_argument(
        "--skew", type=float, default=0.0, help="seconds by which the clocks of two nodes are wrong, one back, one ahead (0)"
    )
    parser.add_argument("--without", nargs="+", default=[], choices=plans.KINDS, metavar="FAULT", help="leave these faults out")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of the first round; the next have the next")
    parser.add_argument("--rounds", type=int, default=1, help="on each database (1)")
    parser.add_argument("--parallel", type=int, default=1, help="rounds at the same time (1)")
    parser.add_argument("--broken", default="", choices=["", *BROKEN], help="a queue without this, which must be noticed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a table in Markdown")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the logs of violations stay (the system's folder)")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="check the log of an earlier round")
    parser.add_argument("--results", type=Path, metavar="FILE", help="append a line of JSON for each round")
    options = parser.parse_args()
    if not options.kinds and not options.url:
        options.kinds = ["sqlite"]
    return options


def _databases(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Kind, and URL of a server that runs already or nothing."""
    kinds = [(kind, "") for kind in options.kinds]
    return kinds + [(make_url(url).get_backend_name(), url) for url in options.url]


def _check(folder: Path) -> int:
    final = Final(**json.loads((folder / FINAL).read_text()))
    violations = check(read_log(folder), final)
    print("\n".join(map(str, violations)) or "held")
    return 1 if violations else 0


# --- rounds ---------------------------------------------------------------------------------------------------------


def _rounds(options: argparse.Namespace, kind: str, url: str) -> list[Row]:
    """The rounds on one database, one after the other."""
    rows = []
    with _server(kind, url) as server:
        if options.skew and isinstance(server, Cluster):
            clock.shift(server, 0, -options.skew)
            clock.shift(server, 1, options.skew)
        for seed in range(options.seed, options.seed + options.rounds):
            numbers = {name: getattr(options, name) for name in ("seconds", "operations", "faults", "lease", "pause")}
            plan = plans.make(seed, kind, **numbers, private=not url).without(options.without)
            if options.rounds == 1:
                print(plan, flush=True)
            rows.append(Row.of(play(plan, server, options.broken, options.keep)))
            if options.results is not None:
                with options.results.open("a") as file:
                    file.write(f"{json.dumps(asdict(rows[-1]))}\n")
    return rows


@contextlib.contextmanager
def _server(kind: str, url: str) -> Iterator[Server | Cluster | None]:
    """The server of the rounds; None: the database is a file."""
    if kind in FILES:
        yield None
        return
    server: Server | Cluster
    if kind in nodes.CLUSTERS:
        server = nodes.CLUSTERS[kind]()
    else:
        server = Server(kind, "--url", make_url(url)) if url else provide(kind, options=SERVER_OPTIONS[kind], durable=False)
    try:
        yield server
    finally:
        server.remove()


def play(plan: plans.Plan, server: Server | Cluster | None, broken: str = "", keep: Path | None = None) -> Result:
    """Play a round in a database of its own, and print what came of it."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{plan.kind}-{plan.seed}-", dir=keep))
    found = f"sqlite:///{folder}/queue.db" if server is None else server.create_database()
    urls = [found] if isinstance(found, str) else found
    try:
        result = Round(plan, urls, server, folder, broken).run()
    finally:
        if isinstance(server, Cluster):
            server.drop_database(urls)
        elif server is not None:
            server.drop_database(urls[0])
    print(result, flush=True)
    if result.violations:
        if isinstance(server, Cluster):
            (folder / "story").write_text(server.story())
        print("\n".join(f"  {violation}" for violation in result.violations[:10]), f"\n  the log is in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return result


def _in_parallel(options: argparse.Namespace) -> list[Row]:
    """A process for some of the rounds at a time: clients are many, and one process would wait for itself."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.parallel) as pool:
        results = Path(folder) / "results"
        results.touch()

        def run(part: tuple[str, str, int, int]) -> None:
            kind, url, seed, rounds = part
            command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--rounds", str(rounds), "--results", str(results)]
            command += ["--seconds", str(options.seconds), *(["--url", url] if url else ["--kinds", kind])]
            for name in ("operations", "faults", "lease", "pause", "skew", "broken", "keep"):
                if getattr(options, name):
                    command += [f"--{name}", str(getattr(options, name))]
            command += ["--without", *options.without] if options.without else []
            subprocess.run(command, check=False)

        firsts = range(0, options.rounds, AT_ONCE)
        parts = [
            (kind, url, options.seed + first, min(AT_ONCE, options.rounds - first))
            for first in firsts
            for kind, url in _databases(options)
        ]
        list(pool.map(run, parts))
        return [Row(**json.loads(line)) for line in results.read_text().splitlines()]


# --- the report -----------------------------------------------------------------------------------------------------


def report(rows: list[Row]) -> str:
    """What came of the rounds, in Markdown."""
    return "\n".join([table(rows), *([matrix(rows)] if any(row.without_a_claim for row in rows) else [])])


def matrix(rows: list[Row]) -> str:
    """The rounds with each fault of nodes."""
    lines = [
        "| fault | rounds | faults | operations | in doubt | jobs | violations | s without a claim, p50 | max | errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in nodes.FAULTS:
        if some := [row for row in rows if fault in row.faults]:
            without = [seconds for row in some for seconds in row.without_a_claim]
            sums = [sum(getattr(row, name) for row in some) for name in ("operations", "unknown", "jobs")]
            numbers = [f"{number:,}" for number in (len(some), len(without), *sums)]
            wrong, errors = Counter(name for row in some for name in row.violations), Counter[str]()
            for row in some:
                errors.update(row.errors)
            cells = [fault, *numbers, _counted(wrong), f"{median(without):.1f}", f"{max(without):.1f}", _counted(errors)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _counted(numbers: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.most_common()) or "none"


def table(rows: list[Row]) -> str:
    """The rounds of each database, in Markdown."""
    kinds = sorted({row.kind for row in rows}, key=ALL.index)
    lines = [
        "| database | rounds | operations | in doubt | jobs | faults | violations |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        some = [row for row in rows if row.kind == kind]
        numbers = [sum(getattr(row, name) for row in some) for name in ("operations", "unknown", "jobs")]
        faults: Counter[str] = sum((Counter(row.faults) for row in some), Counter())
        wrong = Counter(name for row in some for name in row.violations)
        found = ", ".join(f"{name} in {number}" for name, number in wrong.items()) or "none"
        cells = [kind, f"{len(some):,}", *(f"{number:,}" for number in numbers), f"{faults.total():,}: {_counted(faults)}", found]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
