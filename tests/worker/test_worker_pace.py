"""A claim waits for the slots of short handlers only; and handlers that wait for something run beside each other."""

import threading

import pytest

from queue_db.worker import order
from queue_db.worker.executor import Threads
from queue_db.worker.order import FetchPacing
from tests.patience import PATIENCE, wait_for

HOUR = 3600.0


class Hand:
    """Jobs in hand, as a claimer and its handlers change them."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(order, "LONGEST", HOUR)
        self.number = 0
        self.pace = FetchPacing(lambda: self.number)

    def claim(self, number):
        before, self.number = self.number, self.number + number
        self.pace.claimed(HOUR, before, number)

    def end(self, seconds):
        self.number -= 1
        self.pace.ended(seconds)


def waiting(hand):
    thread = threading.Thread(target=hand.pace.wait, daemon=True)
    thread.start()
    wait_for(lambda: hand.pace._wake_at >= 0)
    return thread


def test_a_claim_waits_for_all_short_handlers_of_the_last_one(monkeypatch):
    hand = Hand(monkeypatch)
    hand.claim(1)  # runs all the time
    for _ in range(50):
        hand.claim(1)
        hand.end(0.001)
    hand.claim(3)
    thread = waiting(hand)
    for _ in range(2):
        hand.end(0.001)
        assert thread.is_alive()
    hand.end(0.001)
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("seconds", [HOUR, None], ids=["long", "not-called"])
def test_no_claim_waits_for_long_handlers(monkeypatch, seconds):
    hand = Hand(monkeypatch)
    for _ in range(50):
        hand.claim(1)
        hand.end(seconds)
    hand.claim(2)
    hand.pace.wait()  # returns
    assert hand.number == 2


def test_no_claim_waits_once_handlers_become_long(monkeypatch):
    hand = Hand(monkeypatch)
    for seconds in [0.001] * 50 + [HOUR] * 8:
        hand.claim(1)
        hand.end(seconds)
    hand.claim(2)
    hand.pace.wait()
    assert hand.number == 2


def test_functions_that_wait_run_beside_each_other(name):
    """Each thread wakes the next: with one wake-up less, the last one would not begin."""
    number = 5
    together = threading.Barrier(number + 1)
    threads = Threads(number, lambda *_: together.wait(PATIENCE), name, urgency=lambda job: (0, 0))
    for _ in range(3):
        threads.begin([(job, None) for job in range(number)])
        together.wait(PATIENCE)
    threads.close()


def test_jobs_that_wait_are_taken_back_in_their_order(name):
    began, go = threading.Event(), threading.Event()

    def work(job, handling):
        began.set()
        assert go.wait(PATIENCE)

    threads = Threads(1, work, name, urgency=lambda job: (job // 10, 0))
    threads.begin([(0, None)])
    assert began.wait(PATIENCE)
    threads.begin([(20, None), (11, None), (10, None), (21, None)])
    assert threads.unstarted() == [11, 10, 20, 21]
    assert threads.unstarted() == []
    go.set()
    threads.close()
