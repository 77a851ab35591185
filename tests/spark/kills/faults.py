"""What can go wrong, where, and how it is drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FAILURE, EXECUTOR, DRIVER, DATABASE, CUT, SPECULATION = "failure", "executor", "driver", "database", "cut", "speculation"

#: What each does; on SQLite, which is a file, and in local mode some have no meaning.
FAULTS = {
    FAILURE: "a task raises or its process dies, and Spark tries again; or the driver's part raises, and the program is run again",
    EXECUTOR: "SIGKILL for the Java of an executor",
    DRIVER: "SIGKILL for the driver, its Java and its Python; then another one is given the same order",
    DATABASE: "SIGKILL for the database server, which is started again at once",
    CUT: "the connection is reset: now, or when the next statement has reached the server, in the place of its answer",
    SPECULATION: "a task stands still until Spark has run a copy of it on the other host, and goes on when all is published",
}
LOCAL = (FAILURE, DRIVER)
PROGRAMS = {
    "write": "batch write, exactly_once, under one txnAppId and txnVersion",
    "stream-write": "stream from a queue into another",
    "stream-feed": "stream from a feed into another",
    "stream-read": "stream from a queue into Spark's own Parquet sink",
    "drain": "queue_db.spark.drain_to",
}

Step = tuple[str, str]


def _steps(name: str, *moments: str) -> list[Step]:
    return [(name, moment) for moment in moments]


_ALL = ("before", "within", "inside", "after")
_STAGE, _PUBLISH = _steps("stage", "before", "inside", "after"), [*_steps("staging.publish", *_ALL), ("staging.sweep", "after")]

#: Program → the steps that its tasks go through.
TASKS: dict[str, list[Step]] = {
    "write": _STAGE,
    "stream-write": _STAGE,
    "stream-feed": [*_STAGE, *_steps("feeds.message_page", "before", "after")],
    "stream-read": _steps("streams.read_part", "before", "after"),
    "drain": [*_steps("claim", "before", "after"), *_steps("results", "before", "after"), *_steps("complete", "inside", "after")],
}

#: Program → the steps that its driver goes through. The last ones are files of Spark's: the first is there, the second is not.
PLANNER: dict[str, list[Step]] = {
    "write": _PUBLISH,
    "stream-write": [*_PUBLISH, *_steps("streams.allocate", "after"), ("offsets", "commits")],
    "stream-feed": [
        *_steps("feeds.publish", *_ALL),
        *_steps("open_cursor", "after"),
        *_steps("feeds.acknowledge", "before", "after"),
        ("offsets", "commits"),
    ],
    "stream-read": [
        *_steps("streams.open_stream", "after"),
        *_steps("streams.initial", "after"),
        *_steps("streams.allocate", *_ALL),
        *_steps("streams.partition", "inside", "after"),
        *_steps("streams.complete", *_ALL),
        ("offsets", "sink"),
        ("sink", "commits"),
    ],
    "drain": [],
}

#: Anywhere: at some arrival at any step, and a moment later.
ANYWHERE: Step = ("*", "*")

# How often some steps are come to, at most: once in a batch, once for a task or micro-batch, or many times.
_ARRIVALS = {"write": 40, "stream-write": 150, "stream-feed": 150, "stream-read": 120, "drain": 120}
_LONGEST_DELAY = 0.4


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once."""

    kind: str
    name: str
    when: str
    at: int = 1  #: at which arrival
    how: str = ""  #: of a failure: raise, exit; of a cut: now, answer
    delay: float = 0.0  #: seconds after that

    @property
    def by_files(self) -> bool:
        """Whether the step is one of Spark's, detected by its files."""
        return self.name in ("offsets", "sink")

    def may_end(self, program: str) -> bool:
        """Whether the program may end with an error, and must do its work when it is run again; Spark has to bear the others."""
        return self.kind in (DATABASE, CUT) or (self.kind == FAILURE and (self.name, self.when) not in TASKS[program])

    def __str__(self) -> str:
        how = f" ({self.how})" if self.how else ""
        if self.name == "*":
            return f"{self.kind}{how} {self.delay:.2f} s after step {self.at}"
        if self.by_files:
            return f"{self.kind}{how} {self.name} there, {self.when} not #{self.at}"
        return f"{self.kind}{how} {self.when} {self.name} #{self.at}"


@dataclass(frozen=True)
class Round:
    """One round, as it is played."""

    number: int
    program: str
    database: str
    faults: tuple[Fault, ...]
    keyed: bool = False  #: jobs of a stream have unique keys
    guarantee: str = "exactly_once"
    #: Modes of the first driver and of those that come after it; empty: what follows from the rest.
    modes: tuple[str, ...] = ()

    def mode(self, drivers: int) -> str:
        """The mode of the next driver, after ``drivers`` were started."""
        if self.modes:
            return self.modes[min(drivers, len(self.modes) - 1)]
        copies = any(fault.kind == SPECULATION for fault in self.faults)
        return "local" if self.database == "sqlite" else "speculation" if copies else "cluster"

    def __str__(self) -> str:
        return f"{self.program}{' with keys' if self.keyed else ''}, {self.database}: {'; '.join(map(str, self.faults))}"


def deck(
    seed: int, programs: Sequence[str] = tuple(PROGRAMS), databases: Sequence[str] = (), faults: Sequence[str] = tuple(FAULTS)
) -> Iterator[Round]:
    """Rounds without end. Every cell of the matrix comes once before one comes again, and every step of a driver's too."""
    number = 0
    shuffle = random.Random(f"deck {seed}")
    while True:
        cells = [
            (program, database, fault, steps)
            for program in programs
            for database in databases
            for fault in faults
            if database != "sqlite" or fault in LOCAL
            for steps in _hands(program, fault, shuffle)
        ]
        shuffle.shuffle(cells)
        for program, database, fault, steps in cells:
            # Of its own, so that a round can be drawn without those before it being played.
            draw = random.Random(f"round {seed} {number}")
            drawn = tuple(_drawn(program, database, fault, step, draw) for step in steps)
            yield Round(number, program, database, drawn, keyed=program in ("stream-write", "stream-read") and draw.random() < 0.3)
            number += 1


def _hands(program: str, fault: str, shuffle: random.Random) -> list[list[Step]]:
    """The steps of one round each."""
    tasks, planner = TASKS[program], PLANNER[program]
    every = tasks + planner
    if fault == SPECULATION:
        return [[shuffle.choice(tasks)]]
    if fault == EXECUTOR:
        return [[shuffle.choice(tasks), ANYWHERE]]
    if fault == FAILURE:
        return [[shuffle.choice([step for step in steps if not _is_file(step)])] for steps in (tasks, planner) if steps]
    if fault == DRIVER:
        steps = [*every, ANYWHERE, ANYWHERE]
        shuffle.shuffle(steps)
        # This one is come to once, by the first driver.
        steps.sort(key=lambda step: step[0] != "initial offset")
        return [steps[start : start + 3] for start in range(0, len(steps), 3)]
    named = [step for step in every if not _is_file(step)]
    return [[*shuffle.sample(named, 2), ANYWHERE]]


def _is_file(step: Step) -> bool:
    return step[0] in ("offsets", "sink")


def _drawn(program: str, database: str, fault: str, step: Step, draw: random.Random) -> Fault:
    name, when = step
    if step == ANYWHERE:
        at, delay = draw.randint(1, _ARRIVALS[program]), draw.uniform(0.0, _LONGEST_DELAY)
    else:
        often = program != "write" or name == "stage"
        at, delay = (
            1 if not often or name in ("streams.open_stream", "streams.initial", "open_cursor") else draw.randint(1, 3),
            0.0,
        )
        if when == "within":
            at = draw.randint(1, 6)
    how = ""
    if fault == FAILURE:
        how = draw.choice(["raise", "exit"]) if step in TASKS[program] else "raise"
    elif fault == CUT:
        how = draw.choice(["now", "answer"])
    return Fault(fault, name, when, at, how, delay)
