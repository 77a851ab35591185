"""The paths whose statements are kept as files: each scenario runs one function of the store, as the verbs run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from queue_db.administration.store import Due, change_waiting
from queue_db.dialects.server import Server
from queue_db.errors import TransientStorageError
from queue_db.fairness.policy import Fair, Turns
from queue_db.fairness.rules import Limit, Rules
from queue_db.fairness.tables import fairness_tables
from queue_db.feeds.store import claims, messages, ranking, span_claims, spans
from queue_db.feeds.store.message_jobs import MessageJob
from queue_db.feeds.store.messages import NewMessage
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.store.span_claims import SpanRequest
from queue_db.graphs.store import leaving as nodes
from queue_db.groups.store import batches, groups
from queue_db.model import Capability, ClaimRequest, ClaimResult, Completion, Group, NewJob, ProgressReport
from queue_db.monitoring.store import metrics
from queue_db.removal import Delete, DeleteMark, LockThenDelete
from queue_db.slices import Left
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction, by_key, history, lease, on_leave, settle
from queue_db.store.enqueue import OnDuplicate, insert_jobs, load_jobs
from queue_db.store.lease import CandidateWindow, Lock, Order
from queue_db.store.on_leave import Departure
from queue_db.store.schema import BLOCKED
from queue_db.strategies.locking import Pessimistic
from queue_db.verbs.progress import write_progress

Run = Callable[[Transaction], object]

#: The answer of a node that waits for one parent.
_WAITING_NODE: Mapping[str, Any] = {"child": 1, "parent": 1, "pending": 0, "if_failed": "cancel", "graph_id": 1, "queue": "default"}


@dataclass(frozen=True)
class Scenario:
    """One function of a path, and what the database answers."""

    name: str
    when: str
    run: Run
    #: Whether the verb begins a transaction before. Else the function does so where it must.
    begins: bool = False
    #: How many rows the statements have: by default, and by number (from 0) or first word.
    rows: int = 1
    counts: Mapping[int | str, int] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    #: First words of the statements → how the file of each is called after the scenario's name. Default: by verb and table.
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: What the database must be able to do.
    needs: frozenset[Capability] = frozenset()


def _want(limit: int = 1, *, priorities: Sequence[int] = (0,), **more: Any) -> ClaimRequest:
    ranges = tuple((priority, 1_000_000) for priority in priorities)
    return ClaimRequest("default", limit, 60_000_000, "worker-1", "token", ranges, **more)


def _claim(limit: int = 1, window: CandidateWindow | None = None, **more: Any) -> Run:
    return lambda tx: lease.claim(tx, _want(limit, **more), window or CandidateWindow(read=limit))


def _pop(limit: int, window: CandidateWindow | None) -> Run:
    def run(tx: Transaction) -> ClaimResult:
        request = _want(limit, fast_path=True, delete_on_claim=tx.dialect.deletes_on_claim)
        if not request.delete_on_claim:
            tx.begin()
        claim = lease.claim(tx, request, window or CandidateWindow(read=limit))
        if not claim.deleted:
            settle.delete(tx, [(row.id, row.version) for row in claim.rows])
        return claim

    return run


def _complete_and_claim(pairs: Sequence[tuple[int, int]], window: CandidateWindow | None = None) -> Run:
    def run(tx: Transaction) -> ClaimResult:
        limit, in_statement = len(pairs), tx.dialect.deletes_on_claim
        if not in_statement:
            tx.begin()
            settle.delete(tx, pairs)
        request = _want(limit, fast_path=True, completes=Completion(pairs) if in_statement else None)
        return lease.claim(tx, request, window or CandidateWindow(read=limit))

    return run


def _fair(limit: int, rules: Rules | None = None, *, many: bool = False, ahead: bool = False, **more: Any) -> Run:
    def run(tx: Transaction) -> ClaimResult:
        turns = Turns()
        if ahead:
            turns.ahead.rows.append((1, 1, 0, "group 0"))
            turns.ahead.until = float("inf")
        turns.many = many
        request = _want(limit, **more)
        return Fair(rules or Rules(), turns).claim(
            tx, request, lambda tx, request: lease.claim(tx, request, CandidateWindow(read=limit))
        )

    return run


def _slice(limit: int) -> CandidateWindow:
    return CandidateWindow(Order.SLICE, read=5 * limit, start=4 * limit, width=10)


_TAKE = {
    "SELECT UPDATE": ("_candidates", "_take"),
    "SELECT UPDATE SELECT": ("_candidates", "_take", "_read_back"),
    "INSERT SELECT": ("", "_unseen_priorities"),
}
_POP = {
    "WITH DELETE": ("_claim", "_delete"),
    "INSERT DELETE": ("_claim", "_delete"),
    "SELECT UPDATE DELETE": ("_candidates", "_take", "_delete"),
    "SELECT UPDATE SELECT DELETE": ("_candidates", "_take", "_lock", "_delete"),
}
_COMPLETE_AND_CLAIM = {"DELETE INSERT": ("_delete", "_claim")}
_CHANGE = {
    "SELECT UPDATE": ("_lock", "_change"),
    "UPDATE SELECT": ("_change", "_read_back"),
    "SELECT UPDATE SELECT": ("_lock", "_change", "_read_back"),
}
_DELETE = {"SELECT DELETE": ("_lock", "_delete"), "SELECT SELECT DELETE": ("_lock", "_lock_again", "_delete")}
# One candidate is lost to another worker: where rows are not returned, those won are read back.
_FAST: dict[str, Any] = {"roles": _TAKE}
_FULL: dict[str, Any] = {"roles": _TAKE, "rows": 2, "counts": {1: 1}}

_PAIRS = [(1, 3), (2, 3)]
_IDS = [1, 2]


def _claims() -> list[Scenario]:
    skip = CandidateWindow(lock=lease.Lock.SKIP, read=1)
    skip_many = CandidateWindow(lock=Lock.SKIP, read=10)
    return [
        Scenario("claim_optimistic", "optimistic or adaptive, at the head", _claim(10), **_FULL),
        Scenario("claim_optimistic_slice", "optimistic or adaptive, at a place in the window", _claim(10, _slice(10)), **_FULL),
        Scenario("claim_skip_locked", "skip_locked or adaptive", _claim(10, skip_many), **_FULL),
        Scenario(
            "claim_pessimistic",
            "pessimistic",
            lambda tx: Pessimistic().claim(tx, _want(10)),
            **_FULL,
        ),
        Scenario(
            "claim_pessimistic_one",
            "pessimistic, one job",
            lambda tx: Pessimistic().claim(tx, _want()),
            roles=_TAKE,
        ),
        Scenario(
            "claim_pessimistic_lost",
            "pessimistic, when nothing was won: whether the wait was lost or the queue is empty",
            lambda tx: lease.anything_due(tx, _want()),
        ),
        Scenario(
            "claim_two_priorities",
            "optimistic or adaptive, with two priorities in the queue",
            _claim(10, priorities=(0, 5)),
            **_FULL,
        ),
        Scenario(
            "claim_any_priority",
            "optimistic or adaptive, with more priorities in the queue than a process keeps marks of",
            _claim(10, priorities=()),
            **_FULL,
        ),
        Scenario("claim_of_kind", "jobs of one kind only", _claim(10, kind="mail"), **_FULL),
        Scenario(
            "claim_if_idle",
            "Queue.claim_if_idle: nothing while a job is due in another queue",
            _claim(10, if_idle=(("urgent", ((0, 1_000_000),)),)),
            **_FULL,
        ),
        Scenario(
            "claim_fast_path",
            "optimistic or adaptive, one job at the head, when the last claim won all it wanted",
            _claim(fast_path=True),
            **_FAST,
        ),
        Scenario(
            "claim_fast_path_many",
            "the same for several jobs",
            _claim(10, fast_path=True),
            rows=10,
            counts={1: 9, 2: 9},
            roles=_TAKE,
        ),
        Scenario("claim_fast_path_slice", "the same at a place in the window", _claim(1, _slice(1), fast_path=True), **_FAST),
        Scenario(
            "claim_fast_path_slice_many",
            "several jobs at a place in the window",
            _claim(10, _slice(10), fast_path=True),
            rows=10,
            counts={1: 9, 2: 9},
            roles=_TAKE,
        ),
        Scenario("claim_fast_path_skip_locked", "skip_locked or adaptive, one job", _claim(1, skip, fast_path=True), **_FAST),
        Scenario(
            "claim_fast_path_skip_locked_many",
            "skip_locked or adaptive, several jobs",
            _claim(10, skip_many, fast_path=True),
            rows=10,
            counts={1: 10},
            roles=_TAKE,
        ),
        Scenario(
            "claim_fast_path_if_idle",
            "Queue.claim_if_idle, one job, when the last claim won all it wanted",
            _claim(1, fast_path=True, if_idle=(("urgent", ((0, 1_000_000),)),)),
            **_FAST,
        ),
        Scenario(
            "claim_fast_path_if_idle_many",
            "Queue.claim_if_idle, several jobs, when the last claim won all it wanted",
            _claim(10, fast_path=True, if_idle=(("urgent", ((0, 1_000_000),)),)),
            rows=10,
            counts={1: 9, 2: 9},
            roles=_TAKE,
        ),
        Scenario(
            "claim_skip_locked_if_idle",
            "Queue.claim_if_idle with SKIP LOCKED",
            _claim(10, skip_many, if_idle=(("urgent", ((0, 1_000_000),)),)),
            **_FULL,
        ),
        Scenario(
            "claim_fast_path_skip_locked_if_idle",
            "the same for one job, when the last claim won all it wanted",
            _claim(1, skip, fast_path=True, if_idle=(("urgent", ((0, 1_000_000),)),)),
            **_FAST,
        ),
        Scenario(
            "claim_fast_path_skip_locked_if_idle_many",
            "the same for several jobs, when the last claim won all it wanted",
            _claim(10, skip_many, fast_path=True, if_idle=(("urgent", ((0, 1_000_000),)),)),
            rows=10,
            counts={1: 10},
            roles=_TAKE,
        ),
        Scenario(
            "claim_skip_locked_two_priorities",
            "skip_locked or adaptive, with two priorities in the queue",
            _claim(10, skip_many, priorities=(0, 5)),
            **_FULL,
        ),
    ]


def _fair_claims() -> list[Scenario]:
    each = Limit(5, 10, 1_000_000)
    groups: dict[str, Any] = {
        "answers": {"group_key": lambda row: f"group {row}", "name": lambda row: f"group {row}", "due": 1, "spent_until": 0}
    }
    return [
        Scenario("claim_fair", "a fair queue, one job", _fair(1), **groups),
        Scenario(
            "claim_fair_many",
            "a fair queue, several jobs, when each of the last claim was of another group",
            _fair(10, many=True),
            rows=10,
            **groups,
        ),
        Scenario("claim_fair_few", "a fair queue, several jobs of any groups", _fair(10), rows=10, **groups),
        Scenario("claim_fair_ahead", "a fair queue, a job that was read ahead", _fair(1, ahead=True), **groups),
        Scenario("claim_fair_lone", "the same, with jobs of one group", _fair(10), **groups),
        Scenario("claim_fair_weighted", "a fair queue with weights", _fair(10, Rules({"group 0": 3})), rows=10, **groups),
        Scenario("claim_fair_limited", "a fair queue with limits of groups", _fair(10, Rules(each=each)), rows=10, **groups),
        Scenario(
            "claim_fair_limited_lone",
            "the same, with one group and limits of it and of a prefix",
            _fair(1, Rules(each=each, prefixes={"group 0": Limit(concurrency=3)})),
            **groups,
        ),
        Scenario(
            "claim_fair_limited_by_time",
            "a fair queue with limits of groups, one claim in 64: the jobs that have been due longest",
            _fair(10, Rules(each=each), first=False),
            rows=10,
            **groups,
        ),
        Scenario(
            "claim_fair_limited_new",
            "the first claim that meets a limit makes its row",
            lambda tx: by_key.insert_new(
                tx,
                fairness_tables(tx.tables).spent,
                {"queue": "default", "scope": "group", "name": "group 0", "spent_until": 0},
            ),
            begins=True,
        ),
    ]


def _pops() -> list[Scenario]:
    skip, skip_many = CandidateWindow(lock=Lock.SKIP, read=1), CandidateWindow(lock=Lock.SKIP, read=10)
    found = []
    for name, when, limit, window in (
        ("", "one job", 1, None),
        ("_many", "several jobs", 10, None),
        ("_slice", "one job at a place in the window", 1, _slice(1)),
        ("_slice_many", "several jobs at a place in the window", 10, _slice(10)),
        ("_skip_locked", "one job, skip_locked", 1, skip),
        ("_skip_locked_many", "several jobs, skip_locked", 10, skip_many),
    ):
        found.append(
            Scenario(
                f"pop_fast_path{name}",
                f"Queue.pop, {when}, when the last claim won all it wanted",
                _pop(limit, window),
                rows=limit,
                roles=_POP,
            )
        )
    return found


def _complete_and_claims() -> list[Scenario]:
    found = []
    for name, when, pairs, window in (
        ("", "one job", _PAIRS[:1], None),
        ("_many", "several jobs", _PAIRS, None),
        ("_slice", "one job at a place in the window", _PAIRS[:1], _slice(1)),
        ("_slice_many", "several jobs at a place in the window", _PAIRS, _slice(2)),
        ("_skip_locked", "one job, skip_locked", _PAIRS[:1], CandidateWindow(lock=Lock.SKIP, read=1)),
        ("_skip_locked_many", "several jobs, skip_locked", _PAIRS, CandidateWindow(lock=Lock.SKIP, read=2)),
    ):
        found.append(
            Scenario(
                f"complete_and_claim{name}",
                f"Queue.complete_and_claim, {when}, when the last claim won all it wanted",
                _complete_and_claim(pairs, window),
                rows=len(pairs),
                roles=_COMPLETE_AND_CLAIM,
                needs=frozenset({Capability.UPDATE_RETURNING}),
            )
        )
    return found


def _remove(removal: Any, pairs: Sequence[tuple[int, int]]) -> Run:
    return lambda tx: removal.remove(tx, pairs)


def _free(pairs: Sequence[tuple[int, int]] = _PAIRS, **more: Any) -> Run:
    return lambda tx: settle.requeue(tx, pairs, **more)


def _bury(pairs: Sequence[tuple[int, int]], errors: Mapping[int, str], **more: Any) -> Run:
    return lambda tx: settle.bury(tx, pairs, errors, **more)


def _reschedule(*, due: Due | None = None, priority: int | None = None, group: Group | None = None) -> Run:
    return lambda tx: change_waiting(tx, 1, 3, due=due, priority=priority, group=group)


def _settles() -> list[Scenario]:
    error = {
        "queue": "mail",
        "kind": "welcome",
        "version": 3,
        "attempt": 1,
        "worker": "worker-1",
        "error_class": "ValueError",
        "message": "no",
        "trace": None,
    }
    done = {
        "queue": "default",
        "kind": "mail",
        "payload": "null",
        "attempts": 1,
        "worker": "worker-1",
        "result": "1",
        "created_at": 1,
    }
    same = {"delays": dict.fromkeys(_IDS, 0)}
    group = Group("default", "a")
    grouped = {"group_key": "customer", "queue": "default", "callback_id": 7}

    def finish(tx: Transaction) -> object:
        return on_leave.delete(tx, _PAIRS, lambda _: Departure.COMPLETED)

    return [
        Scenario("complete", 'LeasedJob.complete, removal="delete"', _remove(Delete(), _PAIRS[:1])),
        Scenario(
            "complete_many",
            'Queue.complete_many, removal="delete"',
            _remove(Delete(), _PAIRS),
            rows=2,
            roles=_DELETE,
        ),
        Scenario(
            "complete_lock_then_delete",
            'LeasedJob.complete, removal="lock_then_delete"',
            _remove(LockThenDelete(), _PAIRS[:1]),
            roles=_DELETE,
        ),
        Scenario(
            "complete_lock_then_delete_many",
            'Queue.complete_many, removal="lock_then_delete"',
            _remove(LockThenDelete(), _PAIRS),
            rows=2,
            roles=_DELETE,
        ),
        Scenario(
            "complete_delete_mark", 'LeasedJob.complete, removal="delete_mark"', _remove(DeleteMark(), _PAIRS[:1]), roles=_CHANGE
        ),
        Scenario(
            "complete_delete_mark_many",
            'Queue.complete_many, removal="delete_mark"',
            _remove(DeleteMark(), _PAIRS),
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "complete_retained",
            "the results of completed jobs are kept",
            lambda tx: history.record_finished(tx, [{"id": job, "lasts": 1, **done} for job in _IDS]),
            begins=True,
        ),
        Scenario(
            "complete_grouped",
            "a job of a group and of a batch leaves: the next of its group is admitted, the batch counts down",
            finish,
            begins=True,
            answers={**grouped, "pending": 0, "place": 0, "per_group": 1},
            counts={"DELETE": 1},
        ),
        Scenario(
            "complete_node",
            "a node of a graph is completed: a node that waits for it starts",
            lambda tx: nodes.left(tx, {1: Left(Departure.COMPLETED)}),
            begins=True,
            answers=_WAITING_NODE,
        ),
        Scenario(
            "complete_nodes",
            "nodes of a graph are completed, one with a result: a node that waits for both starts",
            lambda tx: nodes.left(tx, {1: Left(Departure.COMPLETED, "1"), 2: Left(Departure.COMPLETED)}),
            begins=True,
            answers=_WAITING_NODE,
        ),
        Scenario(
            "bury_node",
            "a node of a graph is dead: a node that runs anyway starts",
            lambda tx: nodes.left(tx, {1: Left(Departure.DEAD)}),
            begins=True,
            answers=_WAITING_NODE | {"if_failed": "run"},
        ),
        Scenario(
            "admit",
            "the next job of a group is admitted after one has left",
            lambda tx: groups.admit(tx, {group: 1}, {"default": 1}),
            begins=True,
            answers={"available_at": BLOCKED, "place": 0},
        ),
        Scenario(
            "admit_many",
            "the next jobs of several groups",
            lambda tx: groups.admit(tx, {group: 1, Group("default", "b"): 1}, {"default": 1}),
            begins=True,
            rows=2,
            answers={"available_at": BLOCKED, "place": [0, 1]},
        ),
        Scenario(
            "fail",
            "LeasedJob.fail, another attempt follows",
            lambda tx: settle.requeue(tx, _PAIRS[:1], delays={1: 1}, errors={1: "no"}, attempted=True),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "fail_many",
            "Queue.fail_many, another attempt follows, each with its own delay and error",
            _free(delays={1: 1, 2: 2}, errors={1: "no", 2: "never"}, attempted=True),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "fail_many_one_error",
            "Queue.fail_many, another attempt follows, each with its own delay, one error for all",
            _free(delays={1: 1, 2: 2}, errors=dict.fromkeys(_IDS, "no"), attempted=True),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "fail_many_one_delay",
            "Queue.fail_many, another attempt follows, one delay and one error for all",
            _free(**same, errors=dict.fromkeys(_IDS, "no"), attempted=True),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "fail_record",
            "the failed attempts are recorded; those of a job beyond the tenth are deleted",
            lambda tx: history.record_errors(tx, [{"job_id": 1, **error, "attempt": 11}]),
            begins=True,
        ),
        Scenario(
            "snooze",
            "LeasedJob.snooze and LeasedJob.release",
            _free(_PAIRS[:1], **same, attempted=False),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "snooze_many",
            "Queue.snooze_many and Queue.release_many",
            _free(**same, attempted=False),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "interrupt",
            "the stop of a worker interrupts one attempt, which does not count",
            _free(_PAIRS[:1], **same, headers={1: "{}"}, attempted=False),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "interrupt_many",
            "the stop of a worker interrupts several attempts, which do not count",
            _free(**same, headers={1: "{}", 2: "[]"}, attempted=False),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "retry_unknown_kind",
            "Queue.retry_unknown_kinds, one job: no handler for the kind",
            _free(_PAIRS[:1], **same, errors={1: "no"}, unknown_since={1: 1}, attempted=False),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "retry_unknown_kinds",
            "Queue.retry_unknown_kinds, several jobs: no handler for the kind",
            _free(delays={1: 1, 2: 2}, errors=dict.fromkeys(_IDS, "no"), unknown_since=dict.fromkeys(_IDS, 1), attempted=False),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "retry_unknown_kinds_since",
            "Queue.retry_unknown_kinds: when it was deferred for the first time",
            lambda tx: settle.unknown_since(tx, _PAIRS),
            begins=True,
        ),
        Scenario(
            "bury",
            "Queue.bury_many, and Queue.fail_many after the last attempt, one reason",
            _bury(_PAIRS, dict.fromkeys(_IDS, "no")),
            begins=True,
            rows=2,
        ),
        Scenario(
            "bury_many",
            "Queue.bury_many, and Queue.fail_many after the last attempt, each with its own reason",
            _bury(_PAIRS, {1: "no", 2: "never"}),
            begins=True,
            rows=2,
        ),
        Scenario(
            "bury_exhausted",
            "a claim has found jobs whose attempts are used up",
            _bury(_PAIRS, dict.fromkeys(_IDS, "no"), attempted=False),
            begins=True,
            rows=2,
        ),
        Scenario(
            "extend",
            "LeasedJob.extend",
            lambda tx: settle.extend(tx, _PAIRS[:1], 1),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "extend_many",
            "Queue.extend_many",
            lambda tx: settle.extend(tx, _PAIRS, 1),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "extend_unlocked_one",
            "a worker's heartbeat, one job",
            lambda tx: settle.extend_unlocked(tx, _PAIRS[:1], 1),
            begins=True,
        ),
        Scenario(
            "extend_unlocked",
            "a worker's heartbeat: rows that others have locked are stepped over",
            lambda tx: settle.extend_unlocked(tx, [*_PAIRS, (3, 3)], 1),
            begins=True,
            rows=2,
        ),
        Scenario(
            "adjust_attempts",
            "Queue.adjust_attempts, one job",
            lambda tx: settle.adjust_attempts(tx, _PAIRS[:1], 1),
            begins=True,
            roles=_CHANGE,
        ),
        Scenario(
            "adjust_attempts_many",
            "Queue.adjust_attempts",
            lambda tx: settle.adjust_attempts(tx, _PAIRS, 1),
            begins=True,
            rows=2,
            roles=_CHANGE,
        ),
        Scenario(
            "progress",
            "LeasedJob.progress",
            lambda tx: write_progress(tx, {_PAIRS[0]: _said()}),
            begins=True,
        ),
        Scenario(
            "progress_many",
            "LeasedJob.progress, written by the worker for many jobs at once",
            lambda tx: write_progress(tx, {pair: _said(pair[0]) for pair in _PAIRS}),
            begins=True,
        ),
        Scenario(
            "reschedule",
            "Queue.reschedule: another due time",
            _reschedule(due=Due(5, 6)),
            begins=True,
        ),
        Scenario(
            "reschedule_priority",
            "Queue.reschedule: another priority",
            _reschedule(priority=7),
            begins=True,
        ),
        Scenario(
            "reschedule_blocked",
            "Queue.reschedule: another priority for a job that is blocked in its group",
            _reschedule(priority=7, group=Group("default", "g")),
            begins=True,
        ),
        Scenario(
            "handle",
            "Queue.lease_from_token, Queue.leases_from_tokens",
            lambda tx: settle.leased(tx, "default", [1, 2]),
        ),
        Scenario(
            "handle_known_queue",
            "the count of lost leases in a queue whose name may be mistaken: whether it has numbers",
            lambda tx: metrics.has_numbers(tx, "default"),
        ),
        Scenario(
            "confirm",
            "the reply to a COMMIT was lost: whether the change shows",
            lambda tx: settle.look(tx, [(1, 3, "token"), (2, 3, "token")], settle.Change.GONE),
            begins=True,
        ),
        Scenario(
            "extended",
            "a verb missed a lease on which another verb of the same object runs: whether that has extended it",
            lambda tx: settle.extended(tx, {1: (3, "token"), 2: (3, "token")}),
        ),
        Scenario(
            "extended_in_transaction",
            "the same in a caller's transaction",
            lambda tx: settle.extended(tx, {1: (3, "token"), 2: (3, "token")}, current=True),
            begins=True,
        ),
        Scenario(
            "confirm_dead",
            "the reply to the COMMIT of a burial was lost: whether it shows",
            lambda tx: settle.look(tx, [(1, 3, "token")], settle.Change.DEAD),
            begins=True,
        ),
        Scenario(
            "confirm_failed",
            "the reply to the COMMIT of a failed attempt was lost: whether it shows",
            lambda tx: settle.look(tx, [(1, 3, "token")], settle.Change.FAILED),
            begins=True,
        ),
        Scenario(
            "claim_unanswered",
            "the reply to a claim was lost: what it won goes back",
            lambda tx: settle.give_back_claim(tx, "default", "token", set()),
            begins=True,
            rows=2,
        ),
        Scenario(
            "claim_workers",
            "clients with different worker names have claimed together: each job shows that of its client",
            lambda tx: settle.set_workers(tx, "token", {1: "worker-1", 2: "worker-2"}),
        ),
    ]


def _said(number: int = 1) -> ProgressReport:
    return ProgressReport(0.1 * number, f"part {number}")


def _job(number: int = 0, **more: Any) -> NewJob:
    plain = NewJob("default", "mail", f"payload {number}", None, 0, 5)
    return plain._replace(**more)


def _insert(jobs: Sequence[NewJob], on_duplicate: OnDuplicate = OnDuplicate.RAISE, *, notifies: bool = False) -> Run:
    def run(tx: Transaction) -> None:
        alive = type(tx.dialect.server).known_alive is not Server.known_alive
        notified = mock.patch.object(tx.store.notifications, "due", return_value=notifies)
        with mock.patch.object(tx.dialect.server, "known_alive", return_value=alive), notified:
            insert_jobs(tx, jobs, on_duplicate, "default")

    return run


def _load(jobs: int) -> Run:
    return lambda tx: load_jobs(tx, [[_job(number) for number in range(jobs)]], jobs, OnDuplicate.RAISE)


def _insert_in_vain(jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> Run:
    def run(tx: Transaction) -> None:
        with suppress(TransientStorageError):
            insert_jobs(tx, jobs, on_duplicate)

    return run


def _enqueues() -> list[Scenario]:
    keyed = [_job(0, unique_key="key 0"), _job(1, unique_key="key 1")]
    return [
        Scenario("clock", "the database's time is read", lambda tx: tx.read_clock(), begins=True),
        Scenario(
            "notify",
            "jobs that may be claimed now were added: listening workers wake up when the transaction commits",
            lambda tx: tx.dialect.notify(tx, "queue_db_jobs", "default"),
            begins=True,
        ),
        Scenario("enqueue", "Queue.enqueue; without a transaction, if the connection is in use", _insert([_job()])),
        Scenario("enqueue_notify", "Queue.enqueue, the first one for some milliseconds", _insert([_job()], notifies=True)),
        Scenario("enqueue_many", "Queue.enqueue_many", _insert([_job(0), _job(1)]), begins=True, rows=2),
        Scenario(
            "enqueue_shared",
            "Queue.enqueue by several threads",
            _insert([_job(0), _job(1)], notifies=True),
            begins=True,
            rows=2,
        ),
        Scenario(
            "enqueue_many_delayed",
            "Queue.enqueue_many, jobs with delays and other options; on PostgreSQL what is the same in all of them is no array",
            _insert([_job(0, after=1, max_attempts=1), _job(1, after=2, max_attempts=2)]),
            begins=True,
            rows=2,
        ),
        Scenario(
            "enqueue_many_loaded",
            "Queue.enqueue_many, 100 plain jobs or more",
            _load(100),
            begins=True,
            rows=100,
            answers={"first": 1, "last": 100, "scattered": None},
        ),
        Scenario("enqueue_unique", "Queue.enqueue with a unique_key", _insert(keyed[:1], OnDuplicate.SKIP), begins=True, rows=1),
        Scenario(
            "enqueue_many_unique", "Queue.enqueue_many with unique keys", _insert(keyed, OnDuplicate.SKIP), begins=True, rows=2
        ),
        Scenario(
            "enqueue_replace",
            'Queue.enqueue, on_duplicate="replace", a live job has the key',
            _insert(keyed[:1], OnDuplicate.REPLACE),
            begins=True,
            answers={"unique_key": "key 0"},
            counts={"INSERT": 0},
        ),
        Scenario(
            "enqueue_debounce",
            'Queue.enqueue, on_duplicate="debounce", a live job has the key',
            _insert(keyed[:1], OnDuplicate.DEBOUNCE),
            begins=True,
            answers={"unique_key": "key 0"},
            counts={"INSERT": 0},
        ),
        Scenario(
            "enqueue_debounce_held",
            'Queue.enqueue, on_duplicate="debounce", a worker holds the live job that has the key',
            _insert_in_vain(keyed[:1], OnDuplicate.DEBOUNCE),
            begins=True,
            answers={"unique_key": "key 0"},
            counts={"INSERT": 0, "UPDATE": 0},
        ),
        Scenario(
            "enqueue_unique_for",
            "Queue.enqueue with unique_for",
            _insert([_job(0, unique_key="another", unique_for=1)], OnDuplicate.SKIP),
            begins=True,
            counts={0: 1, 1: 0},
        ),
        Scenario(
            "enqueue_unique_for_again",
            "Queue.enqueue with unique_for, an earlier use of the key has expired",
            _insert([_job(0, unique_key="key 0", unique_for=1)], OnDuplicate.SKIP),
            begins=True,
            counts={0: 1, 1: 0},
        ),
        Scenario(
            "enqueue_grouped",
            "Queue.enqueue with a group",
            _insert([_job(0, group_key="customer")]),
            begins=True,
            answers={"per_group": 1, "place": 0, "available_at": 1},
        ),
        Scenario(
            "enqueue_many_grouped",
            "Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept",
            _insert([_job(number, group_key=f"customer {number}", after=number) for number in (1, 2)]),
            begins=True,
            rows=2,
            answers={"per_group": 1, "place": [0, 1], "available_at": 1},
        ),
        Scenario(
            "enqueue_many_blocked",
            "Queue.enqueue_many, a job of a group that has to wait and one without a group",
            _insert([_job(0, group_key="customer"), _job(1)]),
            begins=True,
            answers={"per_group": 1, "place": 0, "available_at": 1},
            counts={"INSERT": 2},
        ),
        Scenario(
            "enqueue_batch",
            "Queue.enqueue_batch: the callback",
            lambda tx: batches.expect(tx, batches.make(tx, _job()), 2),
            begins=True,
            counts={2: 0},
        ),
    ]


_SESSION = streams.Session(1, "default", "default", 1)


def _streams() -> list[Scenario]:
    start, end = streams.Offset(0, "token"), streams.Offset(1, "token")
    token = {"claim": "token", "acked_claim": "token", "headers": None}
    untied = {2: 0, 3: 0, 4: 0, 5: 0}
    at_one = token | {"allocated": 1, "deliveries": 1, "keyed": 0, "batch": 1, "delivered_epoch": 0}

    def allocate(tx: Transaction) -> object:
        return streams.allocate(tx, _SESSION, start, limit=100, ceiling=None, partitions=2)

    return [
        Scenario(
            "stream_open",
            "a reader opens the stream",
            lambda tx: streams.open_stream(tx, "default", "default", "reader", 1),
            begins=True,
        ),
        Scenario(
            "stream_open_new",
            "a reader makes the stream",
            lambda tx: streams.open_stream(tx, "default", "default", "reader", 1),
            begins=True,
            counts={0: 0},
        ),
        Scenario(
            "stream_claim",
            "the next batch of a stream, no job with a key, a group or a callback in the queue",
            allocate,
            begins=True,
            answers=token | {"paused": 0, "rate": None},
            counts={1: 0, **untied},
        ),
        Scenario(
            "stream_claim_keyed",
            "the next batch of a stream, with jobs that have a key, a group or a callback; another stream reads the queue too",
            allocate,
            begins=True,
            answers=token,
            counts={1: 0},
        ),
        Scenario(
            "stream_claim_keyed_alone",
            "the same, no other stream reads the queue",
            allocate,
            begins=True,
            answers=token,
            counts={1: 0, 3: 0},
        ),
        Scenario(
            "stream_claim_shared",
            "the next batch of a stream, another stream reads the queue too",
            allocate,
            begins=True,
            answers=token,
            counts={1: 0, 2: 0, 3: 0, 4: 0},
        ),
        Scenario(
            "stream_claim_keyed_many",
            "the same for several jobs",
            allocate,
            begins=True,
            rows=2,
            answers=token,
            counts={1: 0},
        ),
        Scenario(
            "stream_partition",
            "the partitions of a batch are handed out",
            lambda tx: streams.partition(tx, _SESSION, start, end),
            begins=True,
            answers=at_one,
        ),
        Scenario(
            "stream_read",
            "a task reads its partition",
            lambda tx: streams.read_part(tx, 1, streams.Part(1, 1, 100, 100), after=0, limit=1000),
            begins=True,
        ),
        Scenario(
            "stream_complete",
            "a batch is written elsewhere",
            lambda tx: streams.complete(tx, _SESSION, end),
            begins=True,
            answers=at_one,
        ),
        Scenario(
            "stream_complete_keyed",
            "a batch with jobs that have a key is written elsewhere",
            lambda tx: streams.complete(tx, _SESSION, end),
            begins=True,
            answers=at_one | {"keyed": 1},
        ),
        Scenario(
            "stream_mark_dead",
            "a task gives up a job of its partition",
            lambda tx: streams.mark_dead(tx, 1, {(1, 3): "no"}),
            begins=True,
        ),
        Scenario(
            "stream_mark_dead_many",
            "a task gives up jobs of its partition, each with its own reason",
            lambda tx: streams.mark_dead(tx, 1, {(1, 3): "no", (2, 3): "neither"}),
            begins=True,
        ),
        Scenario(
            "stream_keep_alive",
            "a reader is there, though nothing is due",
            lambda tx: streams.keep_alive(tx, _SESSION),
            begins=True,
        ),
        Scenario(
            "stream_expired",
            "the maintenance looks for streams without a reader",
            streams.expired,
            begins=True,
        ),
        Scenario(
            "stream_release_many",
            "the held jobs go back to the queue, several of them with a key",
            lambda tx: streams.release(tx, "default"),
            begins=True,
            rows=2,
        ),
        Scenario(
            "stream_release",
            "the held jobs go back to the queue",
            lambda tx: streams.release(tx, "default"),
            begins=True,
        ),
    ]


def _feeds() -> list[Scenario]:
    feed = FeedRow(1, "orders", "ranked", 1, 1, 1, "token", None, None, 0, 0)
    mail = FeedRow(2, "mail", "ranked", 1, 1, 1, "token", None, None, 0, 0, 0)
    no_claims: Mapping[str, Any] = {"max_attempts": None}
    free: Mapping[str, Any] = {"until": 0, "now": 1, "expires_at": None}
    held: Mapping[str, Any] = {"token": "t", "until": 2, "now": 1}
    terms = claims.Terms("t", 10, 1, 0)
    new = [NewMessage("paid", "null", None, None, None)]
    two: Mapping[str, Any] = {"next_seq": 10, "first_seq": 1, "keep_rows": 3, "keep_unread": 2, "max_attempts": None}
    return [
        Scenario(
            "publish_counter",
            'Feed.publish, ordering="counter"',
            lambda tx: messages.append(tx, 1, new),
            begins=True,
            answers=no_claims,
        ),
        Scenario(
            "publish_counter_keep_rows",
            'Feed.publish, ordering="counter", more messages than keep_rows, and a cursor',
            lambda tx: messages.append(tx, 1, new),
            begins=True,
            answers=two,
        ),
        Scenario("publish_ranked", 'Feed.publish, ordering="ranked"', lambda tx: ranking.append(tx, feed, new), begins=True),
        Scenario(
            "rank",
            "a publisher, a reader or a worker numbers the messages of an inbox",
            lambda tx: ranking.rank(tx, 1),
            answers=no_claims,
        ),
        Scenario(
            "rank_with_claims", "the same, of a feed with claims", lambda tx: ranking.rank(tx, 1), answers={"max_attempts": 0}
        ),
        Scenario(
            "claim_messages",
            "Feed.claim",
            lambda tx: claims.claim(tx, mail, terms, lambda row, attempts: MessageJob(row.seq, _job(1))),
            begins=True,
            answers=free,
        ),
        Scenario("delete_claimed", "MessageClaim.delete", lambda tx: claims.delete(tx, mail, [1], "t"), begins=True, answers=held),
        Scenario("extend_claim", "MessageClaim.extend", lambda tx: claims.extend(tx, mail, "t", 1, 0), begins=True, answers=held),
        Scenario("release_claim", "MessageClaim.release", lambda tx: claims.release(tx, mail, "t"), begins=True, answers=held),
        Scenario("pop_messages", "Feed.pop", lambda tx: claims.pop(tx, mail, 10), begins=True, answers=free),
        Scenario("read_feed", "Feed.read", lambda tx: messages.read_messages(tx, feed, 0, 100), rows=2),
    ]


def _spans() -> list[Scenario]:
    lease, feed = 60_000_000, FeedRow(7, "orders", "ranked", 1, 1, 1, "token", None, None, 0, 0)
    want = SpanRequest(100, lease, "worker-1", least=100)
    row = {"payload": "[1001, 1, 1, 0, 0, false, false, null, null, null, null, null, null]"}
    return [
        Scenario(
            "span_look",
            "Feed.shared: whether there is such a cursor",
            lambda tx: span_claims.look(tx, feed, "mailers"),
        ),
        Scenario(
            "span_claim",
            "SharedCursor.claim: the next messages",
            lambda tx: span_claims.claim(tx, feed, "mailers", want),
            answers={"next_seq": 1001, "first_seq": 1, "handed": 0, "expired": False, "waiting": False, "seq": None, **row},
            roles={"SELECT SELECT UPDATE INSERT": ("_look", "_lock", "_move", "_insert")},
        ),
        Scenario(
            "span_take_over",
            "SharedCursor.claim: the span whose lease has ended first",
            lambda tx: span_claims.take_over(tx, 7, "mailers", "worker-1", lease, 3),
            begins=True,
            answers={"attempts": 1},
            roles={"SELECT UPDATE": ("_lock", "_change")},
        ),
        Scenario(
            "span_complete",
            "Span.complete: all messages that are left",
            lambda tx: spans.complete(tx, 1, 3),
        ),
        Scenario(
            "span_complete_some",
            "Span.complete: one message of several",
            lambda tx: spans.settle(tx, 1, 3, [5]),
            begins=True,
            answers={"low": 1, "high": 100, "done": None},
            roles={"SELECT UPDATE": ("_lock", "_change")},
        ),
        Scenario(
            "span_extend",
            "Span.extend",
            lambda tx: spans.extend(tx, 1, 3, lease),
        ),
    ]


SCENARIOS: tuple[Scenario, ...] = (
    *_enqueues(),
    *_claims(),
    *_fair_claims(),
    *_settles(),
    *_pops(),
    *_complete_and_claims(),
    *_streams(),
    *_feeds(),
    *_spans(),
)
