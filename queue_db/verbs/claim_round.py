"""Parts of the claim loop: the kinds of rounds, the deletion of claimed jobs, and the release of jobs of unanswered claims."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from queue_db.core import ONCE, Core
from queue_db.errors import StorageError
from queue_db.model import ClaimedRow, JobLinks, links_of
from queue_db.slices import dependents
from queue_db.store import Transaction, settle
from queue_db.store.on_leave import Departure

log = logging.getLogger("queue_db.verbs.claim_round")

#: Jobs won by one round, and the token of its claim.
ClaimedBatch = tuple[Sequence[ClaimedRow], str]

#: Seconds after an unanswered claim at which the library looks for the jobs of the claim. It looks more than once, since the server
#: may execute the claim later: on the library's connections a statement waits up to 10 s for a lock.
LOOKS = (0.0, 1.0, 5.0, 30.0)


class Way(Enum):
    """How the next round of a call claims."""

    #: By a short statement that may not show which candidates were lost. Used if the last round won all the jobs that it wanted.
    FAST = "fast"
    #: By a statement that reads from the low-water marks and counts the lost candidates.
    FULL = "full"
    #: By a statement that reads from the beginning of the queue. All further rounds of the call do the same.
    RESCAN = "rescan"


# Names of the members, because Python takes long to look up a member in its class.
FAST, FULL, RESCAN = Way


@dataclass(slots=True)
class Unanswered:
    """A claim whose jobs may be leased although no caller has received them: the answer was lost, or the call was stopped."""

    token: str
    #: Ids of the jobs that the process received. The other jobs of the claim are leased, but no worker has them in hand.
    received: set[int] = field(default_factory=set)
    #: When this object was made, by the monotonic clock.
    since: float = field(default_factory=time.monotonic)
    #: How often the library has looked for the jobs of the claim.
    looks: int = 0


def give_back(core: Core, queue: str, unanswered: list[Unanswered]) -> None:
    """Look for the jobs of unanswered claims whose next look is due, and release the jobs that are found."""
    for _ in range(len(unanswered)):
        try:
            lost = unanswered.pop(0)
        except IndexError:  # another thread has taken the last claim
            return
        try:
            if time.monotonic() >= lost.since + LOOKS[lost.looks]:
                found = core.run(
                    ONCE.named("settle.give_back_claim"), settle.give_back_claim, queue=queue, token=lost.token, but=lost.received
                )
                lost.looks += 1
                if found:
                    log.info("%d jobs of %r are back in the queue: the answer to their claim was lost", found, queue)
        except StorageError:
            unanswered.append(lost)  # the next claim tries again, or the leases end
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
        dependents().leave(tx, links, leave)
    else:
        leave()
