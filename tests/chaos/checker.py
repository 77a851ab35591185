"""What the log of a round and the final state of its database must have in common, whatever has happened.

An operation in doubt may have happened or not, but consistently: a check names a violation only if neither fits. Two moments of
different processes are compared as follows: what returned before another was invoked came before it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.log import Operation

#: Verbs after which a job is done.
TERMINAL = frozenset({"complete"})
#: Lines that prove a violation, at most.
SHOWN = 12


@dataclass
class Violation:
    """A promise that was broken, and the lines of the log that prove it."""

    check: str
    message: str
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.check}: {self.message}", *(f"    {line[:600]}" for line in self.lines[:SHOWN])])


@dataclass
class Final:
    """The database when all was drained."""

    #: Jobs that are left: queue and mark.
    live: list[tuple[str, str]] = field(default_factory=list)
    #: Marks of dead jobs.
    dead: list[str] = field(default_factory=list)
    #: Rows of the ledger in their order: what and mark.
    ledger: list[tuple[str, str]] = field(default_factory=list)
    #: The messages of each feed: number and mark.
    feeds: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    #: What did not come to an end, as the round has seen it: clients that hung, crashed; jobs that nobody could claim.
    stuck: list[str] = field(default_factory=list)


@dataclass
class Enqueued:
    """A job that a producer has, or may have, enqueued."""

    mark: str
    kind: str
    group: str | None
    key: str | None
    #: Its position in its operation.
    at: int
    by: Operation
    #: As it was returned.
    id: int | None = None
    #: It was skipped: another one had its key.
    skipped: bool = False


@dataclass
class Lease:
    """A claim, as its holder knows it."""

    id: int
    version: int
    mark: str
    group: str | None
    #: By the database's clock, microseconds; None: not known. A worker's heartbeat may have extended the lease.
    begins: int | None
    ends: int | None
    by: Operation


@dataclass
class Settlement:
    """What a client has done, or tried, with a lease."""

    id: int
    #: Of the lease; None: whatever lease a worker had then.
    version: int | None
    mark: str
    verb: str
    by: Operation
    #: None: in doubt.
    applied: bool | None
    died: bool = False

    @property
    def possible(self) -> bool:
        return self.applied is not False

    @property
    def ends_job(self) -> bool:
        return self.verb in TERMINAL or self.died


class Checker:
    """The checks over one round."""

    def __init__(self, operations: list[Operation], final: Final) -> None:
        self.operations = operations
        self.final = final
        self.violations: list[Violation] = []
        self.enqueued: dict[str, Enqueued] = {one.mark: one for one in _enqueued(operations)}
        self.leases: dict[int, list[Lease]] = defaultdict(list)
        for lease in _leases(operations):
            self.leases[lease.id].append(lease)
        self.settlements: dict[int, list[Settlement]] = defaultdict(list)
        for settlement in _settlements(operations):
            self.settlements[settlement.id].append(settlement)
        self.ids: dict[str, set[int]] = defaultdict(set)
        for leases in self.leases.values():
            for lease in leases:
                self.ids[lease.mark].add(lease.id)
        self.dead = Counter(final.dead)
        #: Marks of messages, which may become jobs.
        self.messages = {mark for one in operations if one.name == "publish" for mark in one.arguments["marks"]}
        self.effects = {
            what: Counter(mark for kind, mark in final.ledger if kind == what)
            for what in ("enqueued", "inside", "outside", "steps")
        }

    def check(self) -> list[Violation]:
        """Run all checks."""
        self.nothing_strange()
        self.all_is_done()
        self.nothing_lost()
        self.nothing_unexpected()
        self.transactions_whole()
        self.nothing_doubled()
        self.effects_once()
        self.fences_hold()
        self.leases_last()
        self.groups_in_order()
        self.groups_without_overlap()
        self.keys_unique()
        return self.violations

    def violated(self, check: str, message: str, *operations: Operation) -> None:
        lines = [line for operation in operations for line in operation.lines]
        self.violations.append(Violation(check, message, lines))

    # --- errors and ends ----------------------------------------------------------------------------------------------

    def nothing_strange(self) -> None:
        """Each error is one of the library's, or of the application's own statement."""
        for operation in self.operations:
            if any('"strange"' in line for line in operation.lines):
                self.violated("strange error", operation.error, operation)

    def all_is_done(self) -> None:
        """When all faults are over, clients go on, and what is left is done."""
        for what in self.final.stuck:
            self.violations.append(Violation("stuck", what))
        for queue, mark in self.final.live:
            self.violated("left", f"job {mark} is left in queue {queue}", *self.history(mark))

    # --- jobs -------------------------------------------------------------------------------------------------------

    def history(self, mark: str) -> list[Operation]:
        """The operations that concern a job, in their order."""
        found = [self.enqueued[mark].by] if mark in self.enqueued else []
        for job_id in self.ids[mark]:
            found += [one.by for one in self.leases[job_id]] + [one.by for one in self.settlements[job_id]]
        return sorted(found, key=lambda one: one.invoked)

    def _happened(self, mark: str) -> bool:
        """Whether somebody has seen the job."""
        return bool(self.ids[mark] or self.dead[mark])

    def _ends(self, mark: str) -> list[Settlement]:
        """What may have ended a job."""
        return [one for job_id in self.ids[mark] for one in self.settlements[job_id] if one.ends_job and one.possible]

    def nothing_lost(self) -> None:
        """Each job that was acknowledged was done, or is dead; of a transaction in doubt all were, or none."""
        for job in self.enqueued.values():
            if job.by.ok and not job.skipped:
                done = self._ends(job.mark) or self.dead[job.mark] or any(mark == job.mark for _, mark in self.final.live)
                if not done:
                    self.violated("lost", f"job {job.mark} was enqueued and never done", *self.history(job.mark))
                if job.kind == "doomed" and self.dead[job.mark] != 1:
                    self.violated("lost", f"job {job.mark} is not dead", *self.history(job.mark))
            if job.kind != "doomed" and self.dead[job.mark]:
                self.violated("dead", f"job {job.mark} is dead before its last attempt", *self.history(job.mark))
        for operation in self.operations:
            if operation.name == "enqueue" and operation.status == "unknown":
                marks = [job["mark"] for job in operation.arguments["jobs"]]
                seen = [mark for mark in marks if self._happened(mark)]
                if seen and len(seen) != len(marks):
                    self.violated("half", f"{seen} of {marks} were enqueued", operation, *self.history(seen[0]))
                if "within" in operation.arguments and bool(seen) != bool(self.effects["enqueued"][marks[0]]):
                    self.violated("half", f"of the transaction of {marks[0]} one part was committed", operation)

    def nothing_unexpected(self) -> None:
        """What was refused or rolled back never happens, nor what nobody has enqueued."""
        for lease in (lease for leases in self.leases.values() for lease in leases if lease.mark not in self.messages):
            job = self.enqueued.get(lease.mark)
            if job is None:
                self.violated("unexpected", f"nobody has enqueued job {lease.mark}", lease.by)
            elif job.by.failed or job.skipped:
                self.violated("unexpected", f"job {lease.mark} was refused, and is there", job.by, lease.by)
            elif job.id is not None and job.id != lease.id:
                self.violated("wrong id", f"enqueue returned {job.id} for job {lease.mark}", job.by, lease.by)
        for mark, number in self.effects["enqueued"].items():
            job = self.enqueued[mark]
            if job.by.failed or number > 1:
                self.violated("unexpected", f"the transaction of {mark} was rolled back, and its row is there", job.by)

    def transactions_whole(self) -> None:
        """The row of the application is there with the job."""
        for job in self.enqueued.values():
            if job.by.ok and "within" in job.by.arguments and not self.effects["enqueued"][job.mark]:
                self.violated("half", f"job {job.mark} was committed without the row of its transaction", job.by)

    def nothing_doubled(self) -> None:
        """A job is one row, ends once, and is not claimed after its end."""
        for mark, ids in self.ids.items():
            if len(ids) > 1 and mark not in self.messages:
                self.violated("doubled", f"job {mark} is there as {sorted(ids)}", *self.history(mark))
        for job_id, settlements in self.settlements.items():
            ends = [one for one in settlements if one.ends_job and one.applied]
            if len(ends) > 1:
                self.violated(
                    "doubled", f"job {job_id} has ended {len(ends)} times", *(one.by for one in ends), *self.history(ends[0].mark)
                )
            for lease in self.leases[job_id]:
                before = [one for one in ends if one.by.returned < lease.by.invoked]
                if before and lease.ends is not None:
                    self.violated("doubled", f"job {job_id} was claimed after its end", before[0].by, lease.by)
            by_lease = Counter(one.version for one in settlements if one.applied and one.version is not None)
            for version, number in by_lease.items():
                if number > 1:
                    both = [one.by for one in settlements if one.applied and one.version == version]
                    self.violated("doubled", f"lease {job_id}:{version} was settled {number} times", *both)

    def effects_once(self) -> None:
        """An effect in the transaction of a completion or a step is there exactly once; one before it, at least once."""
        for job in self.enqueued.values():
            if job.kind not in {"inside", "outside", "steps"}:
                continue
            number, history = self.effects[job.kind][job.mark], self.history(job.mark)
            done = job.by.ok and not job.skipped
            if not number and (done or any(end.applied for end in self._ends(job.mark))):
                self.violated("effect lost", f"job {job.mark} has had no effect", *history)
            if job.kind != "outside" and number > 1:
                self.violated("effect doubled", f"job {job.mark} has had its effect {number} times", *history)
            if number and (job.by.failed or job.skipped):
                self.violated("unexpected", f"job {job.mark} was refused, and has had its effect", *history)

    # --- leases -----------------------------------------------------------------------------------------------------

    def fences_hold(self) -> None:
        """A lease is one claim's, and takes effect only until the next claim."""
        for job_id, leases in self.leases.items():
            versions = Counter(lease.version for lease in leases if lease.ends is not None)
            for version, number in versions.items():
                if number > 1:
                    self.violated(
                        "fence",
                        f"lease {job_id}:{version} was won {number} times",
                        *(one.by for one in leases if one.version == version),
                    )
            for one in self.settlements[job_id]:
                if not one.applied or one.version is None:
                    continue
                for lease in leases:
                    if lease.version > one.version and lease.by.returned < one.by.invoked:
                        self.violated(
                            "fence", f"lease {job_id}:{one.version} was settled after {lease.version} was won", lease.by, one.by
                        )

    def leases_last(self) -> None:
        """Nobody wins a job before the lease that it has is over, by the database's clock."""
        for job_id, leases in self.leases.items():
            known = {lease.version: lease for lease in leases if lease.ends is not None}
            for lease in known.values():
                before = known.get(lease.version - 1)
                if before is None or before.by is lease.by or not lease.begins or not before.ends:
                    continue
                if lease.begins < before.ends and not self._released(before, lease.by.returned):
                    early = (before.ends - lease.begins) / 1_000_000
                    self.violated("lease", f"job {job_id} was won {early:.3f} s before its lease was over", before.by, lease.by)

    def _released(self, lease: Lease, by: float) -> bool:
        """Whether something may have ended a lease until then."""
        return any(one.possible and one.by.invoked < by for one in self.settlements[lease.id])

    # --- groups -----------------------------------------------------------------------------------------------------

    def groups_in_order(self) -> None:
        """A job of a group is not claimed before those that were enqueued before it have ended."""
        for jobs in self._by_group().values():
            ends = {one.mark: min((end.by.invoked for end in self._ends(one.mark)), default=math.inf) for one in jobs}
            for later in jobs:
                won = [lease for job_id in self.ids[later.mark] for lease in self.leases[job_id]]
                first = min(won, key=lambda lease: lease.by.returned, default=None)
                for earlier in jobs if first is not None else ():
                    assert first is not None
                    if _precedes(earlier, later) and ends[earlier.mark] > first.by.returned:
                        message = f"{later.mark} of {later.group} was won before {earlier.mark} had ended"
                        self.violated("group order", message, earlier.by, later.by, first.by, *self.history(earlier.mark))

    def groups_without_overlap(self) -> None:
        """Two jobs of a group are not leased at the same time."""
        groups: dict[str, list[Lease]] = defaultdict(list)
        for leases in self.leases.values():
            for lease in leases:
                if lease.group is not None and lease.begins is not None:
                    groups[lease.group].append(lease)
        for group, leases in groups.items():
            for one in leases:
                for other in leases:
                    if one.id == other.id or one.begins is None or one.ends is None or other.begins is None:
                        continue
                    if other.by.returned < one.by.invoked:
                        continue  # it came before, by the clock of another node
                    if one.begins < other.begins < one.ends and not self._released(one, other.by.returned):
                        self.violated(
                            "group overlap",
                            f"{one.mark} and {other.mark} of {group} were leased at the same time",
                            one.by,
                            other.by,
                        )

    def _by_group(self) -> dict[str, list[Enqueued]]:
        """The jobs of each group that are sure to exist."""
        found: dict[str, list[Enqueued]] = defaultdict(list)
        for job in self.enqueued.values():
            if job.group is not None and job.by.ok and not job.skipped:
                found[job.group].append(job)
        return found

    # --- keys -------------------------------------------------------------------------------------------------------

    def keys_unique(self) -> None:
        """At most one live job has a key, and none is refused while no other can have it."""
        keys: dict[str, list[Enqueued]] = defaultdict(list)
        for job in self.enqueued.values():
            if job.key is not None:
                keys[job.key].append(job)
        for key, jobs in keys.items():
            refused = [job for job in jobs if job.skipped or (job.by.failed and job.by.error.startswith("DuplicateJobError"))]
            # It has the key surely from … to …
            surely = {
                job.mark: (job.by.returned, min((end.by.invoked for end in self._ends(job.mark)), default=math.inf)) for job in jobs
            }
            added = [job for job in jobs if job.by.ok and not job.skipped]
            for one in added:
                for other in added:
                    begins, ends = surely[one.mark]
                    if one is not other and begins < other.by.invoked and other.by.returned < ends:
                        self.violated("unique key", f"{one.mark} and {other.mark} have {key} at the same time", one.by, other.by)
            for job in refused:
                if not any(self._may_have_key(other, job.by) for other in jobs if other not in refused):
                    self.violated("unique key", f"{job.mark} was refused although nobody had {key}", job.by)

    def _may_have_key(self, job: Enqueued, during: Operation) -> bool:
        """Whether a job may have been there during an operation."""
        if job.by.failed or job.by.invoked > during.returned:
            return False
        ends = [end for end in self._ends(job.mark) if end.applied]
        return not ends or max(end.by.returned for end in ends) > during.invoked


# --- what operations mean ---------------------------------------------------------------------------------------------


def _enqueued(operations: Iterable[Operation]) -> Iterator[Enqueued]:
    for operation in operations:
        if not operation.name.startswith("enqueue"):
            continue
        jobs = operation.arguments["jobs"]
        ids = operation.result if operation.ok else [None] * len(jobs)
        for at, (job, job_id) in enumerate(zip(jobs, ids, strict=True)):
            skipped = operation.ok and operation.name == "enqueue" and job_id is None
            yield Enqueued(job["mark"], job["kind"], job.get("group"), job.get("key"), at, operation, job_id, skipped)


def _leases(operations: Iterable[Operation]) -> Iterator[Lease]:
    for operation in operations:
        if operation.ok and operation.name in {"claim", "complete_and_claim", "begin"}:
            for job_id, version, mark, _, group, ends in operation.result[1:]:
                begins = None if ends is None else ends - round(operation.arguments["lease"] * 1_000_000)
                yield Lease(job_id, version, mark, group, begins, ends, operation)
        elif operation.ok and operation.name == "extend" and operation.result[0]:
            (job_id, _, mark), (_, version, ends) = operation.arguments["of"], operation.result
            yield Lease(job_id, version, mark, None, None, ends, operation)


def _settlements(operations: Iterable[Operation]) -> Iterator[Settlement]:
    for operation in operations:
        if operation.name not in {"settle", "complete_and_claim"}:
            continue
        settled, verb = operation.arguments["settled"], operation.arguments["verb"]
        verdicts: list[Any] = [None] * len(settled)
        died = [False] * len(settled)
        if operation.ok:
            verdicts = operation.result[0]
            if operation.name == "settle":
                died = operation.result[1]
        elif operation.failed:
            verdicts = [False] * len(settled)
        for (job_id, version, mark), applied, dead in zip(settled, verdicts, died, strict=True):
            yield Settlement(job_id, version, mark, verb, operation, applied, bool(applied and dead))


def _precedes(one: Enqueued, other: Enqueued) -> bool:
    """Whether a job was enqueued before another."""
    return one.by.returned < other.by.invoked or (one.by is other.by and one.at < other.at)
