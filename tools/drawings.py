#!/usr/bin/env python3
"""Write the drawings of docs/ from the texts in this file: ``python tools/drawings.py`` (tests/docs compares them).

Each drawing has a light background of its own, so that it can be read on light and on dark pages.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"

INK, FAINT, LINE, PAPER = "#1f2733", "#5d6878", "#4a5568", "#ffffff"
BLUE, GREEN, RED, YELLOW, GREY = "#dfeafb", "#e3f1e6", "#f8e0e0", "#fdf3d9", "#f1f3f7"


class Drawing:
    """An SVG that is put together from boxes, arrows and texts; coordinates are pixels from the upper left corner."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name = name
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            ' font-family="Helvetica, Arial, sans-serif" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(title)}</title>',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5"',
            ' markerWidth="8" markerHeight="8" orient="auto-start-reverse">',
            f'<path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        ]

    def text(
        self, x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", bold: bool = False, ink: str = INK
    ) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{ink}"{weight}>{escape(words)}</text>'
        )

    def code(self, x: float, y: float, words: str, *, anchor: str = "start") -> None:
        font = 'font-size="12" font-family="monospace"'
        self._parts.append(f'<text x="{x}" y="{y}" {font} text-anchor="{anchor}" fill="{INK}">{escape(words)}</text>')

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str = GREY, *, stroke: str = LINE, dashed: bool = False
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{fill}" stroke="{stroke}"{dash}/>'
        )

    def box(self, x: float, y: float, width: float, title: str, lines: list[str], fill: str = GREY) -> float:
        """A box with a bold title and lines of small text; return the y of its lower edge."""
        height = 34 + 17 * len(lines)
        self.rect(x, y, width, height, fill)
        self.text(x + 12, y + 21, title, bold=True)
        for number, line in enumerate(lines):
            self.text(x + 12, y + 40 + 17 * number, line, size=12, ink=FAINT)
        return y + height

    def arrow(self, *points: tuple[float, float], dashed: bool = False, both: bool = False) -> None:
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        start = ' marker-start="url(#tip)"' if both else ""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"{start}{dash}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._parts.append(f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{LINE}" stroke-dasharray="2 4"/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def feed() -> Drawing:
    """A feed: the inbox, the numbered messages, cursors, and what is trimmed."""
    drawing = Drawing("feeds.svg", "A feed: publishers, inbox, numbered messages, cursors and retention", 900, 400)
    cell, left, top = 62, 40, 170
    for number in range(3, 13):
        x = left + (number - 3) * cell
        trimmed = number < 6
        drawing.rect(x, top, cell - 6, 46, GREY if trimmed else GREEN, dashed=trimmed)
        drawing.text(x + (cell - 6) / 2, top + 28, str(number), anchor="middle", ink=FAINT if trimmed else INK)
    drawing.text(
        left, top - 12, "jobs_messages: numbers without gaps, in the order in which they became visible", size=12, ink=FAINT
    )
    drawing.text(left, top + 66, "trimmed by retention", size=12, ink=FAINT)
    inbox = left + 10 * cell + 40
    for place, name in enumerate(("a", "b", "c")):
        drawing.rect(inbox + place * 52, top, 46, 46, YELLOW)
        drawing.text(inbox + place * 52 + 23, top + 28, name, anchor="middle")
    drawing.text(inbox, top - 12, "jobs_inbox: no number yet", size=12, ink=FAINT)
    drawing.arrow((inbox - 4, top + 23), (left + 10 * cell - 4, top + 23))
    drawing.text(inbox, top + 66, "rank: in the order of ids", size=12, ink=FAINT)
    drawing.box(inbox - 50, 20, 230, "publishers", ["ranked: insert here, wait for nobody"], BLUE)
    drawing.arrow((inbox + 65, 72), (inbox + 65, top - 28))
    drawing.box(left + 4.6 * cell, 20, 250, "publishers", ["counter: take the next number, wait", "for each other's commit"], BLUE)
    drawing.arrow((left + 8.5 * cell, 88), (left + 9.45 * cell, top - 28))
    for position, title, line in ((6, "cursor audit", "6 messages behind"), (9, "cursor billing", "3 behind; ack moves it")):
        x = left + (position - 2) * cell - 3
        drawing.arrow((x, 300), (x, top + 48))
        drawing.box(x - 85, 300, 170, title, [line], RED if position == 6 else GREEN)
    x = left + 10 * cell - 3
    drawing.arrow((x, 300), (x, top + 48))
    drawing.box(x - 85, 300, 230, "read(position)", ["a position kept elsewhere, 0 behind"], BLUE)
    return drawing


def spans() -> Drawing:
    """A shared cursor: messages, open spans, what is done, and the position."""
    drawing = Drawing("spans.svg", "A shared cursor: its position, open spans and where the next span begins", 860, 320)
    cell, left, top = 50, 30, 50
    colors = {range(1, 4): GREY, range(4, 7): YELLOW, range(7, 10): GREEN, range(10, 13): BLUE, range(13, 17): PAPER}
    for numbers, fill in colors.items():
        for number in numbers:
            drawing.rect(left + (number - 1) * cell, top, cell - 6, 42, fill)
            drawing.text(left + (number - 1) * cell + (cell - 6) / 2, top + 26, str(number), anchor="middle")
    drawing.text(left, top - 14, "jobs_messages: no claim changes them", size=12, ink=FAINT)
    for begin, end, title, lines, fill in (
        (4, 6, "span 7:1", ["second claim,", "until 12:07"], YELLOW),
        (10, 12, "span 9:0", ["first claim,", "until 12:06"], BLUE),
    ):
        x, width = left + (begin - 1) * cell - 3, (end - begin + 1) * cell
        drawing.arrow((x + width / 2, top + 82), (x + width / 2, top + 46))
        drawing.box(x + 8, top + 82, width - 16, title, lines, fill)
    drawing.text(left + 6 * cell + 72, top + 66, "completed: no row", size=12, anchor="middle", ink=FAINT)
    drawing.text(left + 12 * cell + 2, top + 66, "not claimed yet", size=12, ink=FAINT)
    for number, title, lines in (
        (3, "position", ["before the lowest open span;", "retention keeps what is after it"]),
        (12, "handed", ["the next span", "begins here"]),
    ):
        x = left + number * cell - 3
        drawing.arrow((x, 250), (x, top + 44))
        drawing.box(x - (120 if number == 3 else 20), 250, 240 if number == 3 else 150, title, lines, RED)
    return drawing


def route() -> Drawing:
    """A publish: topic, patterns, routes with their definitions, and what these do."""
    drawing = Drawing("routes.svg", "A topic, patterns, routes, definitions and what they do", 940, 360)
    drawing.box(20, 60, 170, "publish", ["to topic sensor.7"], BLUE)
    drawing.text(228, 32, "jobs_subscriptions", size=12, ink=FAINT)
    drawing.text(452, 32, "jobs_routes", size=12, ink=FAINT)
    drawing.text(610, 32, "jobs_definitions", size=12, ink=FAINT)
    lines = [
        ("glob  sensor.*", "archive", "feed readings", "messages for any number of readers", GREEN),
        ("exact  sensor.7", "check", "enqueue alarms", "a job", GREEN),
        ("amqp  sensor.#", "to-all", "forward everything", "the topic everything is matched next", YELLOW),
        ("exact  everything", "audit", "feed audit", "reached by one forward", GREEN),
        ("glob  every*", "again", "forward sensor.7", "a loop: cut, logged and counted", RED),
    ]
    for number, (pattern, name, definition, effect, fill) in enumerate(lines):
        y = 44 + number * 60
        drawing.rect(228, y, 180, 36, GREY)
        drawing.code(240, y + 23, pattern)
        drawing.rect(450, y, 110, 36, BLUE)
        drawing.text(505, y + 23, name, anchor="middle", bold=True)
        drawing.rect(606, y, 160, 36, fill)
        drawing.code(618, y + 23, definition)
        drawing.text(606, y + 50, effect, size=12, ink=FAINT)
        drawing.arrow((408, y + 18), (448, y + 18))
        drawing.arrow((560, y + 18), (604, y + 18))
        if number < 3:
            drawing.arrow((190, 82), (226, y + 18))
    drawing.arrow((766, 182), (910, 182), (910, 350), (110, 350), (110, 242), (226, 242))
    drawing.arrow((110, 302), (226, 302))
    drawing.text(122, 236, "everything", size=12, ink=FAINT)
    drawing.text(20, 130, "one transaction, in which", size=12, ink=FAINT)
    drawing.text(20, 148, "all routes act or none", size=12, ink=FAINT)
    return drawing


# The claim, the lease and the fence: (who, statement, answer, fill of the answer, what it means) from top to bottom; a str is the
# state of the row from here on.
SEQUENCE: list[str | tuple[str, str, str, str, str]] = [
    "job 7, version 3, due",
    ("A", "read a window: job 7, version 3", "", "", ""),
    ("B", "read a window: job 7, version 3", "", "", ""),
    ("A", "UPDATE to version 4 WHERE version = 3", "1 row", GREEN, "claimed: lease (7, 4)"),
    "version 4, leased to A for 60 s",
    ("B", "UPDATE to version 4 WHERE version = 3", "0 rows", RED, "miss: takes other jobs"),
    ("A", "", "", "", "the process is suspended"),
    "60 s later: version 4, due again",
    ("B", "UPDATE to version 5 WHERE version = 4", "1 row", GREEN, "claimed: lease (7, 5)"),
    "version 5, leased to B for 60 s",
    ("A", "complete: DELETE WHERE version = 4", "0 rows", RED, "LOST: nothing changed"),
    ("B", "complete: DELETE WHERE version = 5", "1 row", GREEN, "APPLIED"),
    "gone",
]


def fence() -> Drawing:
    """Two workers and one job: one loses the race at the claim, one loses its lease."""
    left, middle, right = 110, 450, 790
    height = 100 + sum(46 if isinstance(step, str) else 58 for step in SEQUENCE)
    drawing = Drawing("fence.svg", "Claim, lease and fence: two workers and one job", 900, height)
    for x, name in ((left, "worker A"), (middle, "row 7 of the table jobs"), (right, "worker B")):
        drawing.line(x, 60, x, height - 20)
        drawing.rect(x - 95, 22, 190, 38, BLUE)
        drawing.text(x, 46, name, anchor="middle", bold=True)
    y = 84.0
    for step in SEQUENCE:
        if isinstance(step, str):
            drawing.rect(middle - 125, y, 250, 30, YELLOW)
            drawing.text(middle, y + 20, step, anchor="middle")
            y += 46
            continue
        who, statement, answer, fill, meaning = step
        x, sign = (left, 1) if who == "A" else (right, -1)
        if statement:
            drawing.code((x + middle) / 2, y + 13, statement, anchor="middle")
            drawing.arrow((x, y + 20), (middle, y + 20))
        if answer:
            drawing.arrow((middle, y + 40), (x, y + 40), dashed=True)
            drawing.text(middle - sign * 12, y + 36, answer, anchor="end" if sign > 0 else "start", size=12)
        if meaning:
            width = 18 + 6.8 * len(meaning)
            start = x + 12 if sign > 0 else x - 12 - width
            drawing.rect(start, y + 28, width, 24, fill or GREY)
            drawing.text(start + 8, y + 45, meaning, size=12)
        y += 58
    return drawing


# The threads of a worker: title, lines, fill.
THREADS = {
    "fetcher": (
        "fetcher",
        ["claims for all queues, as many jobs", "as there are free slots", "1 connection; on PostgreSQL", "1 more that listens"],
        BLUE,
    ),
    "functions": ("handler threads", ["call functions: concurrency threads"], GREEN),
    "loop": ("event loop", ["runs async def handlers"], GREEN),
    "processes": ("handler processes", ['for executor="process"'], GREEN),
    "completer": (
        "completer",
        ["reports results: collects for 2 ms,", "at most 1000 jobs a statement", "1 connection"],
        BLUE,
    ),
    "main": ("thread of run()", ["starts and stops the others,", "signals, timeouts, grace"], GREY),
    "heartbeat": (
        "heartbeat",
        [
            "extends the leases of all jobs in hand",
            "every third of a lease; checks every",
            "second that they are still ours",
            "1 connection",
        ],
        YELLOW,
    ),
    "maintenance": (
        "maintenance",
        [
            "writes progress and the worker's row in jobs_workers, enqueues the jobs of",
            "schedules, deletes expired rows, repairs groups, releases the jobs of dead",
            "processes, writes metrics; if a task waits, another thread does the others",
            "1 connection, briefly, and 1 for each task that waits, up to 4",
        ],
        YELLOW,
    ),
}


def threads() -> Drawing:
    """What runs in a worker's process, and what passes between its threads."""
    drawing = Drawing("worker-threads.svg", "The threads of a worker", 1000, 560)
    drawing.rect(20, 20, 960, 420, "#fafbfd", dashed=True)
    drawing.text(36, 44, "a process of the worker", ink=FAINT)

    def put(name: str, x: float, y: float, width: float) -> None:
        drawing.box(x, y, width, *THREADS[name])

    put("fetcher", 40, 90, 250)
    put("functions", 385, 60, 250)
    put("loop", 385, 128, 250)
    put("processes", 385, 196, 250)
    put("completer", 710, 90, 250)
    for y in (85, 153, 221):
        drawing.arrow((290, 140), (340, 140), (340, y), (383, y))
        drawing.arrow((635, y), (672, y), (672, 140), (708, 140))
    drawing.text(300, 133, "jobs", size=12)
    drawing.text(640, 78, "outcomes", size=12)
    put("heartbeat", 40, 310, 256)
    put("maintenance", 420, 310, 540)
    put("main", 40, 214, 250)
    drawing.rect(20, 490, 960, 48, GREY)
    drawing.text(500, 519, "the database", anchor="middle", bold=True)
    for x in (168, 690):
        drawing.arrow((x, 414), (x, 488), both=True)
    drawing.arrow((40, 140), (30, 140), (30, 488), both=True)
    drawing.arrow((960, 120), (970, 120), (970, 488), both=True)
    return drawing


#: The tables, by subject: suffix, what a row is, who writes it. tests/docs compares the names with the schema.
TABLES: dict[str, list[tuple[str, str, str]]] = {
    "Jobs": [
        ("", "a live job", "enqueue, claim, settle, extend, purge"),
        ("_dead", "a dead job", "fail, bury, claim; redrive, purge"),
        ("_finished", "a retained result", "complete with result_ttl=; prune"),
        ("_errors", "a failed attempt", "fail; prune"),
    ],
    "Groups, batches, keys": [
        ("_stripes", "a lock for 1/64 of the groups", "enqueue and settle in a group"),
        ("_group_limits", "weights, limits", "fair, limit_groups"),
        ("_group_spent", "a lock and a rate", "claims under limits"),
        ("_permits", "a job under a limit", "claims under limits"),
        ("_callbacks", "the job after a batch", "enqueue_batch; settle of its jobs"),
        ("_windows", "a key that stays taken", "enqueue with unique_for; prune"),
    ],
    "Graphs": [
        ("_graphs", "a graph", "db.graph; prune"),
        ("_nodes", "a job of a graph, and for how many it waits", "db.graph; settle of its parents"),
        ("_edges", "what waits for what", "db.graph; prune"),
        ("_results", "what the handler of a node returned", "complete; prune"),
    ],
    "Workers": [
        ("_queues", "pause and limits of a queue", "pause, resume, limit; workers"),
        ("_shares", "a worker's part of a limit", "workers"),
        ("_workers", "a running worker", "each worker, every 5 s"),
        ("_schedules", "a schedule and its next occurrence", "schedules.set, pause …; workers"),
        ("_steps", "a step, sleep or signal", "job.step, wait_for …; steps.send; prune"),
        ("_samples", "the newest counts of all queues", "one worker or service, every 10 s"),
    ],
    "Spark": [
        ("_staged", "a chunk of a bulk load", "tasks of a write"),
        ("_published", "a bulk load that is done", "the driver of a write"),
        ("_streams", "a stream and its epoch", "readers; streams.release"),
        ("_batches", "a batch of a stream", "the driver of a stream"),
        ("_held", "a job that a stream holds", "claim and commit of a batch"),
    ],
    "Feeds": [
        ("_feeds", "a feed, its next number and retention", "publish, rank; feeds.set, trim"),
        ("_inbox", "a message without a number", "publish; rank"),
        ("_messages", "a numbered message", "publish, rank; trim"),
        ("_cursors", "a reader's position", "cursor, ack, seek; claim of a span"),
        ("_spans", "a lease on some messages", "claim, complete, fail of a span"),
        ("_claims", "free, delayed or claimed", "publish, rank; claim, pop, delete"),
        ("_publishes", "an idempotency key", "publish; prune"),
    ],
    "Routes": [
        ("_definitions", "what a route does", "routes.define, set"),
        ("_routes", "a name for a definition", "routes.set, assign, pause, remove"),
        ("_subscriptions", "a pattern that leads to a route", "routes.subscribe, unsubscribe"),
        ("_counts", "a part of a counter", "publish to a topic"),
        ("_keyed_counts", "a part of a key's count", "publish to a topic"),
    ],
    "Service": [
        ("_metrics", "numbers of a queue over time", "each worker and service, every 10 s"),
        ("_actions", "a logged action", "the service and the command line"),
        ("_tokens", "an API token", "tokens.create, revoke; the service"),
        ("_sessions", "a person who is logged in", "the service"),
    ],
    "Migrations": [("_schema_version", "the revision", "migrate")],
}


def tables() -> Drawing:
    """The tables, and what writes them."""
    width, row, gap = 430, 60, 20
    drawing = Drawing("tables.svg", "The tables and what writes them", 920, 1510)
    columns = [["Jobs", "Groups, batches, keys", "Feeds", "Service"], ["Graphs", "Workers", "Spark", "Routes", "Migrations"]]
    fills = {
        "Jobs": GREEN,
        "Graphs": RED,
        "Workers": YELLOW,
        "Spark": BLUE,
        "Groups, batches, keys": RED,
        "Feeds": BLUE,
        "Routes": YELLOW,
        "Service": GREEN,
        "Migrations": GREY,
    }
    for number, subjects in enumerate(columns):
        x, y = 20 + number * (width + gap), 16.0
        for subject in subjects:
            drawing.text(x, y + 16, subject, bold=True, size=15)
            y += 26
            for suffix, meaning, writers in TABLES[subject]:
                drawing.rect(x, y, width, row - 8, fills[subject])
                drawing.code(x + 12, y + 20, f"jobs{suffix}")
                drawing.text(x + width - 12, y + 20, meaning, size=13, anchor="end")
                drawing.text(x + 12, y + 41, f"written by: {writers}", size=12, ink=FAINT)
                y += row
            y += 10
        if number:
            drawing.text(x, y + 14, "The view jobs_state shows every job of jobs, jobs_held", ink=FAINT)
            drawing.text(x, y + 34, "and jobs_dead, with its state. It is for people.", ink=FAINT)
    return drawing


def strategies() -> Drawing:
    """Four questions that lead to a strategy."""
    width, step, left, right = 380, 112, 40, 560
    drawing = Drawing("strategies.svg", "Four questions that lead to a strategy", 900, 4 * step + 110)
    questions = [
        ("Is the database SQLite?", "It has one writer at a time.", "adaptive", ["takes the head: nothing to race for"], GREEN),
        (
            "Must jobs start in the order of their due times?",
            "A window lets some overtake others.",
            "skip_locked",
            ["the head that nobody has locked"],
            BLUE,
        ),
        (
            "Did you measure on your server?",
            "queue-db compare, with your number of workers.",
            "what it recommends",
            ["figures of others say less"],
            YELLOW,
        ),
        (
            "Is it MySQL, with 100 jobs or more per claim?",
            "There windows were measured to be slower.",
            "skip_locked",
            ["1.2 times as many jobs per second"],
            BLUE,
        ),
    ]
    for number, (question, why, answer, lines, fill) in enumerate(questions):
        y = 30 + number * step
        lower = drawing.box(left, y, width, question, [why])
        drawing.box(right, y, 300, answer, lines, fill)
        drawing.arrow((left + width, y + 26), (right, y + 26))
        drawing.text((left + width + right) / 2, y + 18, "yes", anchor="middle", ink=FAINT)
        drawing.arrow((left + width / 2, lower), (left + width / 2, y + step))
        drawing.text(left + width / 2 + 10, (lower + y + step) / 2 + 5, "no", ink=FAINT)
    drawing.box(left, 30 + 4 * step, width, "adaptive", ["the default: keep it"], GREEN)
    return drawing


def drawings() -> dict[str, str]:
    """Return the SVG of each drawing by its file name."""
    return {drawing.name: drawing.svg() for drawing in (fence(), threads(), tables(), feed(), spans(), route(), strategies())}


def main() -> int:
    """Write them all."""
    for name, svg in drawings().items():
        (DOCS / name).write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
