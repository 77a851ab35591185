"""Finds out whether a change was committed whose COMMIT got no reply: by what became of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from queue_db.errors import ConfigurationError, PermanentStorageError, StorageError, TransientStorageError
from queue_db.leased_job import LeasedJob
from queue_db.store import Transaction, settle
from queue_db.store.settle import Change, Sight
from queue_db.verbs.running import LOOK

if TYPE_CHECKING:
    from queue_db.verbs.fenced_change import FencedChange, Outcome, Pairs

# The most unanswered COMMITs that one change tolerates. The next one raises its error.
_DOUBTS = 5


def proved(change: FencedChange, pairs: Pairs, outcome: Outcome) -> set[int]:
    """Find out which jobs were changed, and return their ids.

    After an unanswered COMMIT, check whether the server has committed. If it has not, run the change again.

    :raises StorageError: it stays unknown whether the change was committed: no proof was found, the server cannot be asked, or
        too many COMMITs in a row were not answered.
    """
    try:
        return _looked_up(change, pairs, outcome)
    except PermanentStorageError as error:
        error.outcome_unknown = True  # another server may refuse what the one with the transaction in doubt has taken
        raise
    except (TransientStorageError, ConfigurationError) as error:  # the server is away, or this database was closed meanwhile
        # The transaction in doubt may have been committed, or the server may still commit it.
        unknown = isinstance(error, StorageError) and error.outcome_unknown
        problem = error if unknown or outcome.doubt is None else outcome.doubt
    raise problem


def _looked_up(change: FencedChange, pairs: Pairs, outcome: Outcome) -> set[int]:
    done: set[int] = set()
    doubts = 0
    doubted: Outcome | None = None
    doubtful: Pairs = ()
    while outcome.doubt is not None:
        if doubts == _DOUBTS:
            raise outcome.doubt
        doubts += 1
        doubted, matched = outcome, outcome.matched
        doubtful = [pair for pair in pairs if pair[0] not in done and (matched is None or pair[0] in matched)]
        done |= _shown(change, doubtful, doubted)
        rest = [pair for pair in pairs if pair[0] not in done]
        if not rest:
            return done
        with change.core.database.counting:
            change.core.database.counters.retried += 1
        outcome = change.alone(rest)
    if outcome.tx is not None and (outcome.tx.woken or outcome.tx.following):
        change.committed += (outcome.tx,)
    again = outcome.matched or set()
    if doubted is not None and doubtful and not any(job_id in again for job_id, _ in doubtful):
        # The last run changed none of the doubtful jobs. Perhaps the server committed the doubted transaction late: then the
        # last run waited for the locks of that transaction and found other versions. So look once more.
        done |= _shown(change, [pair for pair in doubtful if pair[0] not in done], doubted)
    return done | again


def _shown(change: FencedChange, pairs: Pairs, outcome: Outcome) -> set[int]:
    """Look for proof that the transaction in doubt was committed; return the ids of the jobs that it is proved to have changed.

    If there are such jobs, the transaction is added to ``committed``.

    The transaction changed either all jobs that it matched or none, so one changed job proves the change of all. A deleted row
    is a proof only while the lease holds: after its end another worker may have claimed and completed the job.

    :raises StorageError: neither the change nor its absence can be proved. The error is ``outcome.doubt``.
    """
    jobs = change.newest()
    sights, now = change.core.run(LOOK, partial(_look, change), pairs, jobs)
    shown = _judged(sights, {job_id for job_id in sights if _holds(jobs[job_id], now)}, outcome)
    if shown and outcome.tx is not None:
        change.committed += (outcome.tx,)
    return shown


def _look(change: FencedChange, tx: Transaction, pairs: Pairs, jobs: Mapping[int, LeasedJob]) -> tuple[dict[int, Sight], int]:
    verb = change.verb
    by_change: dict[Change, list[tuple[int, int, str]]] = {}
    for job_id, version in pairs:
        made = verb.death if verb.death is not None and change.dies(job_id) else verb.change
        by_change.setdefault(made, []).append((job_id, version, jobs[job_id].token))
    sights: dict[int, Sight] = {}
    for made, leases in by_change.items():
        sights |= settle.look(tx, leases, made)
    if any(sight is not Sight.UNCHANGED for sight in sights.values()):
        tx.dialect.server.nodes.outlive(tx.connection)
    # The clock is read after the rows: a lease that holds now also held when its row was read.
    return sights, tx.read_clock()


def _judged(sights: Mapping[int, Sight], holding: set[int], outcome: Outcome) -> set[int]:
    """Conclude from the sights of the leases which jobs are proved to be changed; return their ids.

    :param holding: ids of the jobs whose leases hold.
    :raises StorageError: neither the change nor its absence can be proved. The error is ``outcome.doubt``.
    """
    doubt, matched = outcome.doubt, outcome.matched is not None
    if Sight.UNCHANGED in sights.values():
        return set()
    changed = {job_id for job_id, sight in sights.items() if sight is Sight.CHANGED}
    if matched and changed:
        return set(sights)
    if matched and Sight.OTHER in sights.values():
        return set()
    vanished = {job_id for job_id, sight in sights.items() if sight is Sight.VANISHED}
    held = vanished & holding
    if matched and held:
        return set(sights)
    if held < vanished and doubt is not None:
        raise doubt
    return changed | held


def _holds(job: LeasedJob, now: int) -> bool:
    """Whether the lease holds at ``now``, by the database's clock."""
    return job.lease_ends > now
