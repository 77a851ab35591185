"""The data folder and the command line of each kind of server."""

import hashlib
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.servers import certificate, folders, processes
from tests.servers.errors import ServerFailed

USER = "tester"


class Engine(ABC):
    """The programs of one kind of server."""

    kind: ClassVar[str]
    driver: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    #: Ends it at once, where its data are not needed any more.
    removal_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, source: str) -> None:
        self.source = source

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the variables of the environment that the server needs besides the usual ones."""
        return {}

    @abstractmethod
    def make_data(self, folder: Path, password: str) -> None:
        """Create folder/data; the user gets this password."""

    @abstractmethod
    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        """Return the command line of the server, listening on loopback only.

        ``durable``: a commit waits for the disk, so a killed server keeps what it has acknowledged.
        """


def hashed(password: str) -> str:
    """What PostgreSQL stores of a password, in its old form: the 4096 iterations of the new one take longer than all else of a
    connection, and initdb before 14 takes 99 characters.
    """
    return "md5" + hashlib.md5((password + USER).encode(), usedforsecurity=False).hexdigest()


class PostgreSQL(Engine):
    """PostgreSQL, from a folder with `initdb` and `postgres`."""

    kind = "postgresql"
    driver = "postgresql+psycopg2"
    stop_signal = signal.SIGINT  # "fast": does not wait for clients to disconnect
    removal_signal = signal.SIGQUIT  # "immediate": after SIGKILL a segment of shared memory stays, and the machine has 4096

    def __init__(self, source: str, programs: Path) -> None:
        super().__init__(source)
        self._programs = programs

    def make_data(self, folder: Path, password: str) -> None:
        secret = folder / "password"
        secret.write_text(hashed(password))
        _run(
            [
                str(self._programs / "initdb"),
                f"--pgdata={folder}/data",
                f"--username={USER}",
                f"--pwfile={secret}",
                "--auth=password",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ],
            folder,
            environment=self.environment(folder),
        )
        secret.unlink()

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "64MB",
            "dynamic_shared_memory_type": "mmap",  # files beside the data: a killed server leaves none in /dev/shm
        }
        if not durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        command = [str(self._programs / "postgres"), "-D", f"{folder}/data"]
        return command + [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


_DURABLE = ("--innodb-flush-log-at-trx-commit=1",)


class _MySQLFamily(Engine):
    """The common part of MySQL and MariaDB: one program, a template data folder, and a file of first statements."""

    #: The log is written once a second, and nothing waits for the disk.
    _not_durable: ClassVar[list[str]]

    def __init__(self, source: str, program: Path, command: list[str] | None = None, share: Path | None = None) -> None:
        super().__init__(source)
        self._program = program
        self._share = share
        self._base = [*(command or [str(program)]), "--no-defaults"]
        if share:
            self._base += [f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets"]

    def make_data(self, folder: Path, password: str) -> None:
        data = folder / "data"
        folders.from_template(self.kind, self._program, self._base, data, lambda: self._initialize(folder, data))
        # The template has no password. The server runs this file before it accepts the first client.
        (folder / "first.sql").write_text(
            f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';\n"
        )

    @abstractmethod
    def _initialize(self, folder: Path, data: Path) -> None:
        """Create the data folder that is kept as the template."""

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        first = folder / "first.sql"
        disk = _DURABLE if durable else self._not_durable
        return [
            *self._base,
            f"--datadir={folder}/data",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={folder}/s",
            # At its start a server deletes leftover tables in this folder: in a shared one, those of another server.
            f"--tmpdir={folder}",
            f"--pid-file={folder}/data/pid",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            *disk,
            *([f"--init-file={first}"] if first.exists() else []),
        ]


class MySQL(_MySQLFamily):
    """MySQL, from its `mysqld`."""

    kind = "mysql"
    driver = "mysql+pymysql"
    # Packages are built with a folder for server-side files that may not exist here; a small redo log copies faster.
    _not_durable: ClassVar[list[str]] = [
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=OFF",
        "--innodb-flush-method=nosync",
    ]
    _settings: ClassVar[list[str]] = ["--secure-file-priv=NULL", "--innodb-redo-log-capacity=64M"]

    def _initialize(self, folder: Path, data: Path) -> None:
        _run([*self._base, "--initialize-insecure", f"--datadir={data}", f"--tmpdir={folder}", *self._settings], folder)

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        return [*super().command(folder, port, durable=durable), *self._settings, "--mysqlx=OFF"]


class MariaDB(_MySQLFamily):
    """MariaDB, from its `mariadbd` and the folder with its system tables' SQL."""

    kind = "mariadb"
    driver = "mariadb+pymysql"

    _not_durable: ClassVar[list[str]] = [
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=OFF",
        "--debug-no-sync",
    ]

    def __init__(self, source: str, program: Path, share: Path, command: list[str] | None = None) -> None:
        super().__init__(source, program, command, share)
        self._tables = share

    def _initialize(self, folder: Path, data: Path) -> None:
        # As mariadb-install-db does; its shell script cannot start a program of an unpacked tree.
        data.mkdir()
        processes.hand_over(data)
        script = ["CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"]
        for part in ("system_tables", "performance_tables", "system_tables_data"):
            script += [path.read_text() for path in sorted(self._tables.glob(f"m*_{part}.sql"))]
        _run(
            [
                *self._base,
                "--bootstrap",
                f"--datadir={data}",
                f"--tmpdir={data}",
                "--innodb-log-file-size=32M",
                "--enforce-storage-engine=",
                "--log-warnings=0",
                "--max-allowed-packet=8M",
            ],
            folder,
            "".join(script),
        )

    def make_data(self, folder: Path, password: str) -> None:
        super().make_data(folder, password)
        self.certify(folder)

    def certify(self, folder: Path) -> None:
        """Write the certificate and its key into the folder of a server."""
        # Before 11.4 MariaDB has no TLS without a certificate. MySQL creates one by itself, and the tests of PostgreSQL need none.
        certificate.write(folder / "cert.pem", folder / "key.pem")
        for file in ("cert.pem", "key.pem"):
            processes.hand_over(folder / file)

    def command(self, folder: Path, port: int, *, durable: bool) -> list[str]:
        tls = [f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem"]
        return [*super().command(folder, port, durable=durable), "--innodb-log-file-size=32M", *tls]


def _run(command: list[str], folder: Path, text: str = "", environment: Mapping[str, str] | None = None) -> None:
    """Run a program as the account of the servers and wait for its end."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | (environment or {}),
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **processes.account(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerFailed(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise ServerFailed(f"{Path(command[0]).name} could not make a data folder:\n" + "\n".join(lines))
