"""Workers as processes that are killed, restarted and stopped while they work, and the record of what they did.

``python -m tests.worker.storms kills --url URL --jobs 10000 --processes 20 --times 30`` is the long form of what the suite does
for a few seconds; so are ``rolling``, ``restarts --kind postgresql`` (of a server of its own) and ``endurance``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from queue_db import QueueDB, StorageError
from queue_db.worker import Worker
from tests.patience import PATIENCE
from tests.servers import provide

# Each line is one write at the end of the file, so lines of several processes do not mix.
HANDLERS = """
import os, time
from queue_db import QueueDB
from queue_db.worker import Worker

record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), os.environ["QUEUE"], concurrency=int(os.environ["CONCURRENCY"]),
                lease=float(os.environ["LEASE"]), prefetch=int(os.environ["PREFETCH"]))

@worker.handles(None)
def work(job):
    os.write(record, f"begin {job.id} {job.attempts} {os.getpid()}\\n".encode())
    time.sleep(float(os.environ["SECONDS"]))
    while not os.path.exists("go"):
        time.sleep(0.02)
    os.write(record, f"end {job.id} {job.attempts} {os.getpid()}\\n".encode())
"""


@dataclass
class Storm:
    """A folder with the handlers, the record, and how processes are started."""

    folder: Path
    url: str
    queue: str
    concurrency: int = 4
    prefetch: int = 0
    lease: float = 60.0
    seconds: float = 0.02
    held: bool = False  #: handlers do not return before :meth:`let_go`

    def __post_init__(self) -> None:
        (self.folder / "handlers.py").write_text(HANDLERS)
        if not self.held:
            self.let_go()
        self.record = self.folder / "record"
        self.record.touch()

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        environment = {
            "QUEUE_DB_URL": self.url,
            "QUEUE": self.queue,
            "RECORD": str(self.record),
            "CONCURRENCY": str(self.concurrency),
            "PREFETCH": str(self.prefetch),
            "LEASE": str(self.lease),
            "SECONDS": str(self.seconds),
            "PATH": os.defpath,
            "PYTHONPATH": str(Path.cwd()),
        }
        command = [sys.executable, "-m", "queue_db", "work", "handlers:worker", *options]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=log)

    def lines(self, what: str) -> list[tuple[int, int, int]]:
        """Id, attempt and process of each begin or end."""
        words = [line.split() for line in self.record.read_text().splitlines()]
        return [(int(word[1]), int(word[2]), int(word[3])) for word in words if word[0] == what]

    def begun_by(self) -> set[int]:
        """The processes that have begun a job."""
        return {process for _, _, process in self.lines("begin")}

    def wait(self, what: object, until: object) -> None:
        """Wait for ``until()``; ``what`` is the message if it never holds."""
        limit = time.monotonic() + PATIENCE
        while not until():  # type: ignore[operator]
            if time.monotonic() > limit:
                raise AssertionError(f"{what} did not come\n" + (self.folder / "log").read_text()[-3000:])
            time.sleep(0.02)


@dataclass
class Account:
    """What came of a storm."""

    jobs: int
    kills: int
    in_hand: int  #: jobs begun by a process that was killed before it had reported them, each time
    lost: int
    repeated: int  #: executions more than one of each job
    left: int

    def __str__(self) -> str:
        seen = f"{self.in_hand} in hand then, {self.lost} lost, {self.repeated} repeated, {self.left} left"
        return f"{self.jobs} jobs, {self.kills} kills, {seen}"


def account(storm: Storm, ids: list[int], killed: set[int], db: QueueDB) -> Account:
    ends = Counter(job for job, _, _ in storm.lines("end"))
    begins: dict[int, list[int]] = {}
    for job, _, process in storm.lines("begin"):
        begins.setdefault(job, []).append(process)
    # A job is begun once more because the process that began it was killed: each of them but the last one.
    before = [process for processes in begins.values() for process in processes[:-1]]
    stats = db.queue(storm.queue).stats()
    return Account(
        jobs=len(ids),
        kills=len(killed),
        in_hand=sum(process in killed for process in before),
        lost=sum(1 for job in ids if not ends[job]),
        repeated=len(before),
        left=stats.available + stats.scheduled + stats.running + stats.dead,
    )


def kills(storm: Storm, db: QueueDB, processes: int, times: int, jobs: int, rng: random.Random) -> Account:
    """Kill one of the processes ``times`` times, each time while ``jobs`` new jobs are worked on; then let all be done."""
    parent = storm.start("--processes", str(processes))
    killed: set[int] = set()
    ids: list[int] = []
    try:
        for _ in range(times):
            fresh = _enqueued(db, storm.queue, jobs)
            ids += fresh
            storm.wait("work on the new jobs", lambda new=frozenset(fresh): _at_work(storm, new) - killed)
            victim = rng.choice(sorted(_at_work(storm, frozenset(fresh)) - killed))
            killed.add(victim)
            os.kill(victim, signal.SIGKILL)
        storm.wait("the end of all jobs", lambda: not _left(db, storm.queue))
    finally:
        parent.send_signal(signal.SIGTERM)
        status = parent.wait(PATIENCE)
    assert status == 0
    return account(storm, ids, killed, db)


def rolling(storm: Storm, db: QueueDB, processes: int, times: int, jobs: int) -> Account:
    """Stop one of the processes with SIGTERM ``times`` times, each time amid ``jobs`` new jobs, and start another one."""
    workers = [storm.start() for _ in range(processes)]
    ids: list[int] = []
    try:
        for _ in range(times):
            ids += _enqueued(db, storm.queue, jobs)
            oldest = workers.pop(0)
            # Not before it listens to signals.
            storm.wait(f"work by {oldest.pid}", lambda pid=oldest.pid: pid in storm.begun_by() or _there(db, pid))
            oldest.send_signal(signal.SIGTERM)
            assert oldest.wait(PATIENCE) == 0
            workers.append(storm.start())
        storm.wait("the end of all jobs", lambda: not _left(db, storm.queue))
        storm.wait("the last workers", lambda: all(_there(db, worker.pid) for worker in workers))
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        statuses = [worker.wait(PATIENCE) for worker in workers]
    assert not any(statuses)
    return account(storm, ids, set(), db)


def _enqueued(db: QueueDB, queue: str, jobs: int) -> list[int]:
    return [job_id for job_id in db.queue(queue).enqueue_many([("n", None)] * jobs) if job_id is not None]


def _at_work(storm: Storm, ids: frozenset[int]) -> set[int]:
    """The living processes that have begun one of these jobs."""
    return {process for job, _, process in storm.lines("begin") if job in ids and _alive(process)}


@dataclass
class Restarts:
    """What came of a server that was killed again and again."""

    restarts: int
    jobs: int
    lost: int
    repeated: int
    away: float  #: seconds for which there was no server
    tries: int  #: errors of the database meanwhile
    busy: float  #: CPU seconds of the worker meanwhile

    def __str__(self) -> str:
        seen = f"{self.lost} lost, {self.repeated} repeated"
        meanwhile = f"{self.tries / self.away:.1f} tries/s and {100 * self.busy / self.away:.1f} % of a core"
        return f"{self.restarts} restarts, {self.jobs} jobs, {seen}; in {self.away:.0f} s without a server {meanwhile}"


def restarts(kind: str, times: int, away: float) -> Restarts:
    """Kill the server of a worker with a producer ``times`` times, and leave it dead for ``away`` seconds."""
    server = provide(kind)
    begun: Counter[int] = Counter()
    ids: list[int] = []
    measured = Restarts(times, 0, 0, 0, 0.0, 0, 0.0)
    try:
        with QueueDB(server.create_database()) as db:
            db.migrate()
            queue = db.queue("storm")
            worker = Worker(db, "storm", concurrency=8, lease=5.0)
            worker.handles(None)(lambda job: begun.update([job.id]))
            ended = threading.Event()

            def produce() -> None:
                while not ended.wait(0.02):
                    try:
                        ids.extend(queue.enqueue_many([("n", None)] * 10))  # type: ignore[arg-type]
                    except StorageError:
                        continue  # it is unknown whether these were enqueued

            producer = threading.Thread(target=produce)
            with worker:
                producer.start()
                for _ in range(times):
                    before = len(begun)
                    _until(lambda before=before: len(begun) > before + 200)
                    server.kill()
                    errors, busy, since = db.counters.other_errors, time.process_time(), time.monotonic()
                    time.sleep(away)
                    measured.tries += db.counters.other_errors - errors
                    measured.busy += time.process_time() - busy
                    measured.away += time.monotonic() - since
                    server.start()
                ended.set()
                producer.join()
                _until(lambda: not _left(db, "storm"))
    finally:
        server.remove()
    measured.jobs, measured.lost = len(ids), sum(1 for job_id in ids if not begun[job_id])
    measured.repeated = sum(count - 1 for count in begun.values())
    return measured


def endurance(db: QueueDB, queue: str, seconds: float, rate: int) -> str:
    """So many jobs a second through a worker; the memory of this process in ten parts of the time, MB."""
    worker = Worker(db, queue, concurrency=10)
    worker.handles(None)(lambda job: time.sleep(0.001) if job.payload % 100 else _fail())
    sizes: list[float] = []
    done = 0
    with worker:
        end = time.monotonic() + seconds
        for part in range(10):
            samples = []
            while time.monotonic() < end - seconds * (9 - part) / 10:
                db.queue(queue).enqueue_many([("n", number, {"max_attempts": 1}) for number in range(rate)])
                done += rate
                samples.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)
                time.sleep(1.0)
            sizes.append(sum(samples) / len(samples))
            print(f"{sizes[-1]:.1f} MB", flush=True)
    return f"{done} jobs in {seconds:.0f} s: {', '.join(f'{size:.1f}' for size in sizes)} MB; {worker.summary}"


def _fail() -> None:
    raise ValueError("now and then")


def _until(what: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.02)


def _left(db: QueueDB, queue: str) -> int:
    stats = db.queue(queue).stats()
    return stats.available + stats.scheduled + stats.running


def _there(db: QueueDB, process: int) -> bool:
    """Whether a worker has written its row, as it does when it runs."""
    return any(worker.pid == process for worker in db.workers())


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill or restart workers while they work, and count.")
    parser.add_argument("storm", choices=["kills", "rolling", "restarts", "endurance"])
    parser.add_argument("--url", help="a database for tests")
    parser.add_argument("--kind", default="postgresql", help="which server to kill")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--prefetch", type=int, default=0)
    parser.add_argument("--times", type=int, default=30, help="kills or restarts")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long: endurance")
    parser.add_argument("--every", type=float, default=1.0, help="seconds without a server: restarts")
    parser.add_argument("--work", type=float, default=0.1, help="seconds that a job takes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.storm == "restarts":
        print(restarts(options.kind, times=options.times, away=options.every))
        return
    if options.url is None:
        parser.error("which database? --url")
    if options.storm == "endurance":
        with QueueDB(options.url) as db:
            db.migrate()
            print(endurance(db, f"endurance-{os.getpid()}", options.seconds, rate=300))
        return
    with tempfile.TemporaryDirectory() as folder, QueueDB(options.url) as db:
        db.migrate()
        queue = f"storm-{os.getpid()}"
        storm = Storm(Path(folder), options.url, queue, options.concurrency, options.prefetch, seconds=options.work)
        each = max(1, options.jobs // options.times)
        if options.storm == "kills":
            print(kills(storm, db, options.processes, options.times, each, random.Random(options.seed)))
        else:
            print(rolling(storm, db, options.processes, options.times, each))


if __name__ == "__main__":
    main()
