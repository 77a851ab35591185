"""Kill Spark programs that use a queue at every step, and count their jobs: python -m tests.spark.kills --help."""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.servers import ServerFailed, ServerMissing
from tests.spark.cluster import set_java_home
from tests.spark.kills import faults
from tests.spark.kills.faults import FAULTS, PROGRAMS
from tests.spark.kills.rounds import Outcome, play
from tests.spark.kills.world import World

DATABASES = ("postgresql", "mysql", "mariadb", "sqlite")

HELP = f"""\
Kill Spark programs that use a queue at every step of their protocols, and count their jobs.

A round is a program, a database and one to three faults. The program runs on a standalone cluster of two workers whose Python does
not have the package (SQLite: local[2]); what dies is started again and gets the same order until it is carried out. Then every job
must be in the result once.

programs (--only)
{chr(10).join(f"  {name:13} {what}" for name, what in PROGRAMS.items())}
faults (--faults)
{chr(10).join(f"  {name:13} {what}" for name, what in FAULTS.items())}

Rounds are dealt from the matrix by the seed: each cell comes once before one comes again. The same --seed, --only, --kinds and
--faults deal the same rounds; --first 12 --rounds 1 plays the one with the number 12 alone. Where a fault is to happen "after step
40", it is the 40th step of any kind that any process comes to.

In the table: kills are faults that really happened, of those that were planned (a program may be done before); lost and repeated
are jobs in the results; again are jobs on which a drain worked more than once, as it may, up to what was held at its kills.

The exit status is 1 if a job was lost or repeated, if a program failed where nothing had been done to it that excuses it, or if not
all rounds were played.
"""


def main(words: Sequence[str]) -> int:
    """Play rounds and print what came of them."""
    options = _parse(words)
    signal.signal(signal.SIGTERM, _leave)
    set_java_home()
    rounds = faults.deck(options.seed, options.only, options.kinds, options.faults)
    lists = {"only": options.only, "kinds": options.kinds, "faults": options.faults}
    same = " ".join(f"--{name} {','.join(values)}" for name, values in lists.items())
    print(f"--seed {options.seed} {same} --first {options.first} --rounds {options.rounds}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="queue-db-kills-", ignore_cleanup_errors=True) as folder, World(Path(folder)) as world:
        try:
            for one in itertools.islice(rounds, options.first, options.first + options.rounds):
                outcomes.append(play(world, one))
                print(f"{time.strftime('%H:%M:%S')} {outcomes[-1]}", flush=True)
        except (ServerMissing, ServerFailed) as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt as signal_:
            print(f"interrupted {signal_}".rstrip(), file=sys.stderr)  # the rounds so far are reported
        print(f"\n{table(outcomes)}")
        print(f"{world.drivers} drivers were started, in {world.starting / max(1, world.drivers):.1f} s each")
    return 0 if len(outcomes) == options.rounds and all(outcome.good for outcome in outcomes) else 1


def table(outcomes: Sequence[Outcome]) -> str:
    """What came of all, by program and database, and by fault."""
    lines = [f"{'':26}{'rounds':>7}{'kills':>12}{'jobs':>9}{'lost':>6}{'repeated':>9}{'again':>7}{'bad':>5}"]
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(f"{outcome.round.program:13} {outcome.round.database}", []).append(outcome)
    lines += [_row(name, groups[name]) for name in sorted(groups)]
    groups.clear()
    for outcome in outcomes:
        for kind in {fault.kind for fault in outcome.round.faults}:
            groups.setdefault(kind, []).append(outcome)
    lines += ["", *(_row(name, groups[name]) for name in FAULTS if name in groups), "", _row("all", outcomes)]
    return "\n".join(lines)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    counts = [outcome.count for outcome in outcomes if outcome.count is not None]
    kills = f"{sum(len(outcome.happened) for outcome in outcomes)} of {sum(len(outcome.round.faults) for outcome in outcomes)}"
    jobs, lost = sum(count.jobs for count in counts), sum(count.lost for count in counts)
    repeated, again = sum(count.repeated for count in counts), sum(outcome.worked_again for outcome in outcomes)
    bad = sum(not outcome.good for outcome in outcomes)
    return f"{name:26}{len(outcomes):7}{kills:>12}{jobs:9}{lost:6}{repeated:9}{again:7}{bad:5}"


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.kills", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what deals them (drawn, and printed)")
    parser.add_argument("--first", type=int, default=0, help="leave out those before this number (0)")
    parser.add_argument("--only", type=_some(PROGRAMS), default=list(PROGRAMS), help="programs, with commas between (all)")
    three = [kind for kind in DATABASES if kind != "mysql"]
    parser.add_argument("--kinds", type=_some(DATABASES), default=three, help=f"databases ({','.join(three)}; also mysql)")
    parser.add_argument("--faults", type=_some(FAULTS), default=list(FAULTS), help="faults (all)")
    options = parser.parse_args(words)
    if options.kinds == ["sqlite"] and not set(options.faults) & set(faults.LOCAL):
        parser.error(f"on sqlite there are only: {', '.join(faults.LOCAL)}")
    return options


def _some(known: Sequence[str] | dict[str, str]):
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return parse


def _leave(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(f"by signal {signum}")  # what was started is ended on the way out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
