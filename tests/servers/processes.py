"""Processes, and the account that the servers run as."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

# Seconds in which killed processes must end.
_GONE = 10.0


def account() -> dict[str, Any]:
    """Return the arguments with which `subprocess` drops root: database servers refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def hand_over(folder: Path) -> None:
    """Change the owner of a folder and its contents to the account of the servers."""
    to = account()
    if to:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, to["user"], to["group"], follow_symlinks=False)


def usable(path: Path) -> bool:
    """Whether the account of the servers can use a file or folder."""
    path = path.resolve()
    if not account():
        return os.access(path, os.X_OK)
    return path.exists() and all(step.stat().st_mode & 0o005 == 0o005 for step in (path, *path.parents))


def start_time(pid: int) -> str:
    """Return when a process started, in ticks of the system, or "". With the pid it identifies one process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if after_name[0] == "Z" else after_name[19]
    except OSError:
        if Path("/proc/self").exists():
            return ""
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return "-".join(listed.stdout.split())


def kill_at_once(pid: int) -> None:
    """Kill a server and its children as a power failure would: none of them can react."""
    victims = stop_at_once(pid)
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    # A restarted server fails while one of these still has the shared memory.
    limit = time.monotonic() + _GONE
    while any(start_time(victim) == started != "" for victim, started in victims.items()) and time.monotonic() < limit:
        time.sleep(0.005)


def stop_at_once(pid: int) -> dict[int, str]:
    """Stop a server and all below it (SIGSTOP), from the top, so that none starts a child or sees one end.

    Return when each of them had started.
    """
    stopped: dict[int, str] = {}
    found = [pid]
    while found:
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
                stopped[one] = start_time(one)
        found = [child for child in _children(found) if child not in stopped]
    return stopped


def _children(parents: Collection[int]) -> list[int]:
    if Path("/proc/self").exists():
        pairs = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                pairs.append((entry.name, (entry / "stat").read_text().rpartition(")")[2].split()[1]))
            except OSError:
                continue  # it ended in the meantime
    else:
        listed = subprocess.run(["ps", "-ax", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [(words[0], words[1]) for words in map(str.split, listed.splitlines())]
    return [int(child) for child, parent in pairs if int(parent) in parents]
