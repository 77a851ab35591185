"""Folders of servers: a lasting cache, and short-lived folders that a later run removes if their owner was killed."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.servers import processes

PREFIX = "queue-db-servers"


def cache_folder() -> Path:
    """Return the folder that is kept between runs: unpacked packages and template data folders."""
    if named := os.environ.get("QUEUE_DB_CACHE"):
        return Path(named) / "servers"
    if os.geteuid() == 0:
        return Path("/var/cache/queue-db/servers")  # the account that runs the servers cannot read root's home
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queue-db" / "servers"


def new_run_folder(kind: str) -> Path:
    """Return a new empty folder for the data and the log of one server."""
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=_owner_folder(os.getpid())))
    folder.chmod(0o755)
    return folder


@cache  # by pid: a forked child has its own folder
def _owner_folder(pid: int) -> Path:
    """Return the folder of this process, named after it so that others see whether it still runs."""
    sweep()
    folder = _temporary() / f"{PREFIX}.{pid}.{processes.start_time(pid)}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    return folder


def remove_owner_folder() -> None:
    """Remove the folder of this process if no server uses it."""
    with contextlib.suppress(OSError):
        _owner_folder(os.getpid()).rmdir()
    _owner_folder.cache_clear()


def note_process(folder: Path, pid: int) -> None:
    """Record the process that uses a run folder, for a later sweep."""
    (folder / "process").write_text(f"{pid} {processes.start_time(pid)}")


def sweep() -> None:
    """End the servers and remove the folders of processes that no longer run."""
    # Which folder is used depends on the memory that is free: leftovers may be in another one.
    for owner_folder in (
        found for place in {_temporary(), Path("/tmp"), Path("/dev/shm")} for found in place.glob(f"{PREFIX}.*.*")
    ):
        _, pid, started = owner_folder.name.split(".", 2)
        try:
            ours = pid.isdigit() and owner_folder.lstat().st_uid == os.geteuid()
        except FileNotFoundError:
            continue  # its owner, or another sweep, has removed it meanwhile
        if not ours or processes.start_time(int(pid)) == started:
            continue
        for note in owner_folder.glob("*/process"):
            try:
                server, _, server_started = note.read_text().partition(" ")
            except FileNotFoundError:
                continue  # another sweep has ended the server and removed its folder meanwhile
            if server_started and processes.start_time(int(server)) == server_started:
                processes.kill_at_once(int(server))
        shutil.rmtree(owner_folder, ignore_errors=True)


def from_template(kind: str, program: Path, flags: list[str], data: Path, make: Callable[[], None]) -> None:
    """Fill a data folder with a copy of the template for this program and flags; `make` creates it the first time."""
    facts = program.stat()
    key = hashlib.sha256(repr((str(program), facts.st_mtime_ns, facts.st_size, flags)).encode()).hexdigest()[:16]
    template = cache_folder() / "templates" / f"{kind}-{key}"
    if template.is_dir():
        shutil.copytree(template, data, symlinks=True)
        processes.hand_over(data)
        return
    make()
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as unfinished:
        shutil.copytree(data, Path(unfinished) / "data", symlinks=True)
        with contextlib.suppress(OSError):  # another run was faster
            (Path(unfinished) / "data").rename(template)


def _temporary() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if processes.usable(folder) else Path("/tmp")
