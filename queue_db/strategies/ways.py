"""Which of two ways to claim costs less for each job: the choice of :class:`~queue_db.strategies.adaptive.Adaptive`.

Most claims go the way in use; now and then one tries the other. Each trial is compared with the claims since the one before it, so
that load which comes and goes affects both. A claim can take ten times as long as the one before it only because the machine is
busy, so what counts is a mean of capped figures, and a change needs a difference that is clear of their scatter.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Way(StrEnum):
    """How a claim wins jobs."""

    WINDOW = "window"  #: by version, from a window of candidates
    SKIP_LOCKED = "skip_locked"  #: from the head, by locks

    @property
    def other(self) -> Way:
        """The other one."""
        return Way.SKIP_LOCKED if self is Way.WINDOW else Way.WINDOW


#: Trials that count, the latest ones; and fewest for a change of the way.
TRIALS, ENOUGH = 128, 16

#: Claims between two trials, on average: at least, and at most. In between, trials of a way that costs more lose one percent.
OFTEN, SELDOM = 24, 500
_LOSS = 0.01

#: Claims of the way in use that a trial is compared with: fewest, and most.
_FEWEST, _MOST = 6, 32

#: Trials that do not count: the server does not know their statements yet, nor the window its width.
UNTAUGHT = 4

#: A claim counts as at most this many times the median of those that it is compared with and that won jobs.
CAP = 5.0

#: The other way must cost less by this share, and by this many standard errors.
MARGIN, _ERRORS = 0.03, 2.5

#: After a change of the median cost by this factor the load is another one: of the trials only the latest count.
_OTHER_LOAD = 3.0


class Trial(NamedTuple):
    """A trial and the claims that it is compared with, in units of the median of those that won jobs."""

    cost: float
    usual: float


@dataclass
class Choice:
    """The way in use for claims of about one size, and what is known of both. Not safe to share between threads.

    :param way: the way to begin with.
    """

    way: Way
    rng: random.Random = field(repr=False)
    trials: deque[Trial] = field(default_factory=lambda: deque(maxlen=TRIALS))
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST), repr=False)
    _level: float | None = field(default=None, repr=False)
    _until_trial: int = field(default=OFTEN, repr=False)
    _untaught: int = field(default=UNTAUGHT, repr=False)

    def next(self) -> Way:
        """The way of the next claim."""
        self._until_trial -= 1
        if self._until_trial > 0:
            return self.way
        spacing = self._spacing()
        # Spread, or the workers of many processes that were started together would try at the same time.
        self._until_trial = self.rng.randint(spacing // 2, spacing + spacing // 2)
        return self.way.other

    def learn(self, way: Way, cost: float) -> None:
        """Take in what a claim of that way has cost for each job, in seconds; infinity if it won none. It decides after a trial."""
        if way is self.way:
            self._usual.append(cost)
        elif self._untaught:
            self._untaught -= 1
        elif len(self._usual) >= _FEWEST:
            self._compare(cost)
            if self._cheaper():
                self.way = self.way.other
                self.trials.clear()
                self._usual.clear()
                self._level = None
                self._until_trial = OFTEN

    @property
    def ratio(self) -> float | None:
        """The cost of the other way, divided by that of the way in use; None before the first trial."""
        if not self.trials:
            return None
        return sum(trial.cost for trial in self.trials) / sum(trial.usual for trial in self.trials)

    def _compare(self, cost: float) -> None:
        # A call that won nothing costs infinitely much: it counts as the cap, and says nothing of the level.
        won = sorted([one for one in self._usual if one < math.inf])
        level = won[len(won) // 2] if won else cost
        if not 0 < level < math.inf:
            return
        if self._level is not None and not 1 / _OTHER_LOAD < level / self._level < _OTHER_LOAD:
            while len(self.trials) > ENOUGH // 2:
                self.trials.popleft()
            self._level = None
        self._level = self._level or level
        usual = sum([min(one / level, CAP) for one in self._usual]) / len(self._usual)
        self.trials.append(Trial(min(cost / level, CAP), usual))
        self._usual.clear()

    def _cheaper(self) -> bool:
        """Whether the other way costs less beyond doubt."""
        if len(self.trials) < ENOUGH:
            return False
        saved = [trial.usual * (1 - MARGIN) - trial.cost for trial in self.trials]
        number = len(saved)
        mean = sum(saved) / number
        # The module statistics computes with fractions: a hundred times as long.
        variance = sum([(one - mean) ** 2 for one in saved]) / (number - 1)
        return mean > _ERRORS * math.sqrt(variance / number)

    def _spacing(self) -> int:
        ratio = self.ratio if len(self.trials) >= 4 else None
        return OFTEN if ratio is None else round(min(max(OFTEN, (ratio - 1) / _LOSS), SELDOM))
