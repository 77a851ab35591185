"""What the log of a round and the feeds of its database must have in common: see `checker.py`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.checker import Final, Violation
from tests.chaos.feeds import ROUTED, TOPIC
from tests.chaos.log import Operation


class FeedChecker:
    """The checks of one round's feeds, topics and cursors."""

    def __init__(self, operations: list[Operation], final: Final) -> None:
        self.operations = operations
        self.final = final
        self.violations: list[Violation] = []
        self.publishes = [one for one in operations if one.name == "publish"]
        self.by_mark = {mark: one for one in self.publishes for mark in one.arguments["marks"]}
        #: Feed → mark → number.
        self.seqs = {feed: {mark: seq for seq, mark in found} for feed, found in final.feeds.items()}
        self.effects: dict[str, list[str]] = defaultdict(list)
        for what, mark in final.ledger:
            self.effects[what].append(mark)

    def check(self) -> list[Violation]:
        """Run all checks."""
        for feed in self.final.feeds:
            self.numbers(feed)
            self.order(feed)
            self.readers(feed)
            self.cursor(feed)
            self.spans(feed)
        for publish in self.publishes:
            self.published(publish)
        self.routed()
        return self.violations

    def violated(self, check: str, message: str, *operations: Operation | None) -> None:
        lines = [line for operation in operations if operation is not None for line in operation.lines]
        self.violations.append(Violation(check, message, lines))

    def numbers(self, feed: str) -> None:
        """Numbers have no gaps, no message is there twice, and somebody has published it."""
        found = self.final.feeds[feed]
        if [seq for seq, _ in found] != list(range(1, len(found) + 1)):
            self.violated("feed numbers", f"the numbers of {feed} are {[seq for seq, _ in found]}")
        for mark, number in Counter(mark for _, mark in found).items():
            publish = self.by_mark.get(mark)
            if number > 1:
                self.violated("feed doubled", f"message {mark} is in {feed} {number} times", publish)
            if publish is None or publish.failed or _feed_of(publish) != feed:
                self.violated("feed unexpected", f"message {mark} is in {feed}", publish)

    def published(self, publish: Operation) -> None:
        """What was acknowledged is there; of what is in doubt, all or nothing, with the row of its transaction."""
        marks, feed = publish.arguments["marks"], _feed_of(publish)
        there = [mark for mark in marks if mark in self.seqs[feed]]
        if publish.ok and len(there) != len(marks):
            self.violated("feed lost", f"{sorted(set(marks) - set(there))} are not in {feed}", publish)
        if there and len(there) != len(marks):
            self.violated("half", f"{there} of {marks} are in {feed}", publish)
        if "within" in publish.arguments and bool(there) != (marks[0] in self.effects["published"]):
            self.violated("half", f"of the transaction of {marks[0]} one part was committed", publish)
        seqs = [self.seqs[feed][mark] for mark in there]
        if seqs != sorted(seqs):
            self.violated("feed order", f"{marks} are in {feed} in another order: {seqs}", publish)

    def order(self, feed: str) -> None:
        """What was published before another publish began comes before it."""
        some = [one for one in self.publishes if one.ok and _feed_of(one) == feed and one.arguments["marks"][0] in self.seqs[feed]]
        highest: tuple[int, Operation | None] = (0, None)
        ended = sorted(some, key=lambda one: one.returned)
        for publish in sorted(some, key=lambda one: one.invoked):
            while ended and ended[0].returned < publish.invoked:
                before = ended.pop(0)
                highest = max(highest, (max(self._numbers(feed, before)), before), key=lambda pair: pair[0])
            if min(self._numbers(feed, publish)) < highest[0]:
                self.violated("feed order", f"of {feed}: what was published later comes first", highest[1], publish)

    def _numbers(self, feed: str, publish: Operation) -> list[int]:
        return [self.seqs[feed][mark] for mark in publish.arguments["marks"] if mark in self.seqs[feed]]

    def readers(self, feed: str) -> None:
        """Each page is what follows the position before it, all of it, in the one order."""
        found = self.final.feeds[feed]
        for page in self._ok("read", feed):
            after = page.arguments["after"]
            if page.result != [list(one) for one in found[after : after + len(page.result)]]:
                self.violated("reader", f"a page of {feed} after {after} is not what follows there", page)
        for page in self._ok("cursor read", feed):
            for seq, mark in page.result:
                if self.seqs[feed].get(mark) != seq:
                    self.violated("reader", f"message {mark} was read as {seq} of {feed}", page)

    def _ok(self, name: str, feed: str) -> Iterator[Operation]:
        return (one for one in self.operations if one.name == name and one.ok and one.arguments["feed"] == feed)

    def cursor(self, feed: str) -> None:
        """Each message has had its effect once, in their order."""
        effects, wanted = self.effects[f"cursor {feed}"], [mark for _, mark in self.final.feeds[feed]]
        if effects != wanted:
            lost, more = Counter(wanted) - Counter(effects), Counter(effects) - Counter(wanted)
            about = {*lost, *more}
            proof = [one for one in self.operations if one.name == "acknowledge" and one.arguments["mark"] in about]
            self.violated("cursor", f"of {feed}: lost {list(lost)}, doubled {list(more)}, or in another order", *proof)

    def spans(self, feed: str) -> None:
        """Each message has had its effect once: of a consumer of spans, or of the job that it became."""
        effects = Counter(self.effects[f"span {feed}"])
        jobs = Counter(mark for mark in self.effects["inside"] if mark in self.seqs[feed])
        routed = 1 if feed == ROUTED else 0  # each of these messages was also made a job by the other route
        for _, mark in self.final.feeds[feed]:
            if (number := effects[mark] + jobs[mark] - routed) != 1:
                proof = [one for one in self.operations if one.arguments.get("mark") == mark]
                self.violated("span", f"message {mark} of {feed} has had its effect {number} times", self.by_mark.get(mark), *proof)

    def routed(self) -> None:
        """Both routes of the topic act, or none."""
        jobs = Counter(self.effects["inside"])
        for publish in self.publishes:
            if publish.arguments["target"] != TOPIC:
                continue
            for mark in publish.arguments["marks"]:
                if bool(jobs[mark]) != (mark in self.seqs[ROUTED]):
                    self.violated("route", f"of message {mark} only one route has acted", publish)


def _feed_of(publish: Operation) -> str:
    target: str = publish.arguments["target"]
    return ROUTED if target == TOPIC else target
