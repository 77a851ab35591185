"""What a claim is made of: its call, the answers of its rounds, and what becomes of one whose answer was lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from queue_db.core import ONCE, Core
from queue_db.errors import StorageError
from queue_db.model import ClaimedRow, ClaimResult, JobLinks, links_of
from queue_db.store import Transaction, settle
from queue_db.store.batches import Departure
from queue_db.store.on_leave import finish

log = logging.getLogger("queue_db.verbs.claim_round")

#: Jobs won by one round, and the token of its claim.
ClaimedBatch = tuple[Sequence[ClaimedRow], str]

#: Seconds after a claim whose answer was lost at which its jobs are looked for: the server may still be executing it, or begin to.
#: On connections of the library a statement waits at most 10 s for a lock.
LOOKS = (0.0, 1.0, 5.0, 30.0)


class RoundReply(NamedTuple):
    """What the database answered to one round: a transaction that reads candidates and takes them."""

    token: str
    claim: ClaimResult
    #: Its transaction, which was committed.
    tx: Transaction
    seconds: float


class Way(Enum):
    """How the next round of a call claims."""

    FAST = "fast"  #: by one short statement that may be inconclusive, since the last claim won all that it wanted
    FULL = "full"  #: from the low-water marks on
    RESCAN = "rescan"  #: from the beginning of the queue, as do all further rounds of the call


@dataclass(slots=True)
class ClaimCall:
    """One call of claim: its arguments, and the results of its rounds so far."""

    limit: int
    #: How many more jobs are wanted.
    open: int
    lease: int
    delete: bool
    if_idle: Sequence[str]
    worker: str
    way: Way
    won: list[ClaimedBatch] = field(default_factory=list)
    missed: int = 0
    #: Rounds that lost every candidate.
    lost: int = 0
    #: The last round, if it won nothing and left open whether there were jobs.
    doubtful: ClaimResult | None = None
    #: The answer to a round whose jobs are not in ``won`` yet.
    answer: RoundReply | None = None
    #: The transactions of its rounds that something follows, but for one that is a completion's.
    committed: list[Transaction] = field(default_factory=list)


@dataclass(slots=True)
class Unanswered:
    """A claim whose answer was lost, or may have been."""

    token: str
    #: The jobs that were received; its others are leased, but in no hands.
    received: set[int] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)
    #: How often its jobs were looked for.
    looks: int = 0


def give_back(core: Core, queue: str, unanswered: list[Unanswered]) -> None:
    """Release the jobs of earlier claims whose answers were lost, as far as the server has executed them."""
    for _ in range(len(unanswered)):
        try:
            lost = unanswered.pop(0)
        except IndexError:  # another thread has taken the last one
            return
        try:
            if time.monotonic() >= lost.since + LOOKS[lost.looks]:
                found = core.run(ONCE, settle.give_back_claim, queue=queue, token=lost.token, but=lost.received)
                lost.looks += 1
                if found:
                    log.info("%d jobs of %r are back in the queue: the answer to their claim was lost", found, queue)
        except StorageError:
            unanswered.append(lost)  # the next claim tries again; or the leases end
            break
        except BaseException:
            unanswered.append(lost)
            raise
        if lost.looks < len(LOOKS):
            unanswered.append(lost)


def delete_claimed(tx: Transaction, queue: str, rows: Sequence[ClaimedRow]) -> None:
    """Delete claimed jobs in the transaction of the claim."""

    def leave() -> dict[int, Departure]:
        return dict.fromkeys(settle.delete(tx, [(row.id, row.version) for row in rows]), Departure.COMPLETED)

    links: dict[int, JobLinks] = {row.id: found for row in rows if (found := links_of(queue, row)) is not None}
    if links:
        finish(tx, links, leave)
    else:
        leave()
