"""A node that is cut off from the other members of its cluster, while clients reach it.

No right over the system's network is needed: the sockets between the nodes are taken out of their processes, and get a filter that
drops all that arrives. Connections that are made meanwhile get it within ``TICK``.
"""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.servers import processes

#: Seconds.
TICK = 0.02
_PIDFD_GETFD = 438
_ATTACH, _DETACH = 26, 27
# One instruction: return 0, the number of bytes that pass.
_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
_PROGRAM = struct.pack("HxxxxxxQ", 1, ctypes.addressof(_NOTHING))
_libc = ctypes.CDLL(None, use_errno=True)

#: Address and port, as the system writes them.
Address = tuple[str, str]
#: Both ends of a connection; the second of a listener has port 0.
Ends = tuple[Address, Address]


@contextmanager
def cut_off(node: int, others: Collection[int], closed: Callable[[Address], bool]) -> Iterator[None]:
    """In the block the processes from ``node`` down and those from ``others`` down do not hear each other.

    :param closed: whether nobody reaches a listener of any of them.
    :raises OSError: the system does not let us.
    """
    over = threading.Event()
    with ExitStack() as filtered:
        dropped: set[tuple[int, str]] = set()

        def drop() -> None:
            own, theirs = _sockets([node]), _sockets(others)
            for sockets, opposite in ((own, theirs), (theirs, own)):
                for (here, there), (pid, descriptor, inode) in sockets.items():
                    between = (there, here) in opposite or (there[1] == "0000" and closed(here))
                    if between and (pid, inode) not in dropped:
                        with suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
                            _drop(filtered, pid, descriptor)
                        dropped.add((pid, inode))

        def go_on() -> None:
            while not over.wait(TICK):
                drop()

        drop()
        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _drop(filtered: ExitStack, pid: int, descriptor: int) -> None:
    process = os.pidfd_open(pid)
    try:
        found = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if found < 0:
        if ctypes.get_errno() in {3, 9}:
            return  # the process, or its descriptor, is gone
        raise OSError(ctypes.get_errno(), "a socket of another process cannot be had")
    end = filtered.enter_context(socket.socket(fileno=found))
    end.setsockopt(socket.SOL_SOCKET, _ATTACH, _PROGRAM)
    filtered.callback(end.setsockopt, socket.SOL_SOCKET, _DETACH, 0)


def _sockets(tops: Collection[int]) -> dict[Ends, tuple[int, int, str]]:
    """The connections and listeners of these processes and of those below them: process, descriptor and inode."""
    ends = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            (here, port), (there, other) = words[1].split(":"), words[2].split(":")
            ends[words[9]] = ((here[-8:], port), (there[-8:], other))
    found: dict[Ends, tuple[int, int, str]] = {}
    pids, new = set(tops), set(tops)
    while new := set(processes._children(new)) - pids:
        pids |= new
    for pid in pids:
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inode = str(entry.readlink())[len("socket:[") : -1]
                    if inode in ends:
                        found[ends[inode]] = (pid, int(entry.name), inode)
    return found
