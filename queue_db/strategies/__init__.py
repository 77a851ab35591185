"""How a claim wins jobs against concurrent claims. Start reading at :mod:`queue_db.strategies.base`."""

from queue_db.strategies.adaptive import Adaptive
from queue_db.strategies.base import Strategy, known_strategies, strategy_for
from queue_db.strategies.locking import Pessimistic, SkipLocked, warn_of_other_nodes
from queue_db.strategies.optimistic import Optimistic

__all__ = [
    "Adaptive",
    "Optimistic",
    "Pessimistic",
    "SkipLocked",
    "Strategy",
    "known_strategies",
    "strategy_for",
    "warn_of_other_nodes",
]
