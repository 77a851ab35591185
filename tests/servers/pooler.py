"""PgBouncer in transaction mode before a PostgreSQL server: installed, or unpacked from this machine's Debian packages."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

from tests.servers import folders, processes
from tests.servers.errors import ServerFailed
from tools import debian_packages

_START_LIMIT = 30.0


class PgBouncer:
    """A pooler that runs each transaction in any of a few sessions; it ends with the block.

    :param url: of the server behind it, with a password.
    :param settings: more lines of its configuration.
    """

    def __init__(self, url: str, *, sessions: int = 4, settings: str = "") -> None:
        parts = make_url(url)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._folder = folders.new_run_folder("pgbouncer")
        (self._folder / "users").write_text(f'"{parts.username}" "{parts.password}"\n')
        (self._folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={parts.host} port={parts.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = {sessions}\n"
            f"auth_type = scram-sha-256\nauth_file = {self._folder}/users\n{settings}\n"
        )
        processes.hand_over(self._folder)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_program(), str(self._folder / "pgbouncer.ini")],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **processes.account(),
            )
        folders.note_process(self._folder, self._process.pid)
        self._wait()

    def url(self, url: str) -> str:
        """Return the same URL through this pooler."""
        return make_url(url).set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    def close(self) -> None:
        """End the pooler."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _wait(self) -> None:
        until = time.monotonic() + _START_LIMIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError as error:
                if self._process.poll() is None and time.monotonic() < until:
                    time.sleep(0.03)
                    continue
                log = (self._folder / "log").read_text(errors="replace")
                self.close()
                raise ServerFailed(f"PgBouncer did not start; its log:\n{log}") from error
            return


def _program() -> list[str]:
    if installed := shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin"):
        return [installed]
    system, suite = debian_packages.distribution()
    tree = folders.cache_folder() / f"pgbouncer-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", ["pgbouncer"])
    return debian_packages.command(tree, "usr/sbin/pgbouncer")
