"""A Python for Spark whose processes have imported all when they start: they are forked from one that has.

    with python_in(folder) as python:  # PYSPARK_PYTHON

Spark starts a Python for each kind of plan and commit, and for each query that reads a stream. Each would import all for itself,
for two seconds: most of the time of these tests. And Spark waits ten seconds for that of a query, which no setting changes: on a
loaded machine they are over before the imports are ("Python worker failed to connect back").

The cluster, the Connect server and the programs that are killed run an ordinary Python.
"""

import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: What Spark runs as this Python. It asks for the fork, passes on the signal that ends it, and ends with it.
PYTHON = """#!/bin/sh
case "$1 $2" in "-m pyspark."*) exec "{python}" -IS "{folder}/ask.py" "$@"; esac
exec "{python}" "$@"
"""
ASK = """
import marshal, os, signal, socket, sys

order = marshal.dumps((sys.argv[1:], dict(os.environb), os.getcwd()))
os.chdir({folder!r})  # a socket's address is short
server = socket.socket(socket.AF_UNIX)
server.connect("forks")
socket.send_fds(server, [b"."], [0, 1, 2])
server.sendall(order)
process = int(server.recv(20))
signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
for number in range(3):
    os.close(number)
server.recv(1)
"""

#: In a process for Spark: how many objects its collector passes over at the start.
FROZEN = "QUEUE_DB_TEST_FROZEN"

#: Modules that start threads when they are imported, which a fork loses; with these settings they start none.
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
MODULES = (
    "pandas",
    "psycopg2",
    "pyarrow",
    "pymysql",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "queue_db.spark",
)


@contextmanager
def python_in(folder: Path) -> Iterator[Path]:
    """Run the process that forks, and yield the path of a program that is this Python but for what Spark runs."""
    path = folder / "python"
    path.write_text(PYTHON.format(python=sys.executable, folder=folder))
    path.chmod(0o755)
    (folder / "ask.py").write_text(ASK.format(folder=str(folder)))
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(folder)  # a socket's address is short
        listening.bind("forks")
        os.chdir(here)
        listening.listen(100)
        command = [sys.executable, "-m", "tests.spark.preloaded", str(listening.fileno())]
        environment = os.environ | NO_THREADS
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=[listening.fileno()]):
            yield path  # and it ends with its input


def serve(listening: socket.socket) -> None:
    """Fork for each that asks, until the input ends; return in the fork, when it is what was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(listening, select.POLLIN)
    while all(number != 0 for number, _ in poll.poll()):
        asked, _ = listening.accept()
        with asked:
            if os.fork() == 0:
                listening.close()
                return become(asked)
    return None


def become(asked: socket.socket) -> None:
    """Be the process that was asked for: with its words, files, environment and folder."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, *_ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as order:
        (_, module, *words), environment, folder = marshal.load(order)  # noqa: S302 - of this user's
    asked.sendall(str(os.getpid()).encode())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environb.clear()
    os.environb.update(environment)
    os.environ[FROZEN] = str(gc.get_freeze_count())
    os.chdir(folder)
    sys.argv[1:] = words
    sys.path[0] = folder  # as with -m
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(list(threads.iterdir())) > 1:
        sys.exit("A module that is imported here has started a thread.")
    gc.freeze()  # a collection in a fork would copy the pages of all that is imported
    with suppress(BrokenPipeError):
        serve(socket.socket(fileno=int(sys.argv[1])))
