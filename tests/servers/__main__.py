"""Start private servers, for experiments.

python -m tests.servers start postgresql [mysql] [mariadb] [galera] [group-replication] [group-replication-single] [postgresql-ha]
    Print a URL of a fresh database on each, and keep them until Ctrl-C or SIGTERM. Of a cluster: on each node, and by its balancer;
    of group-replication every node takes changes, of group-replication-single the first.
python -m tests.servers compare sqlite [postgresql] [mysql] [mariadb] [galera] [group-replication] [-- OPTION …]
    Run ``queue-db compare`` with these options on each server that can be started here; sqlite is a file in a temporary folder.
python -m tests.servers oldest [postgresql] [mariadb] -- COMMAND …
    Run pytest, as the command says, on the oldest release of each kind that can be installed here.
python -m tests.servers share postgresql [mysql] [mariadb] -- COMMAND …
    Run the command with one server of each kind, which all test processes of it share.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from types import FrameType

from tests.servers import NotPrivate, Server, ServerFailed, ServerMissing, lookup, provide, releases
from tests.servers.cluster import Cluster, together
from tests.servers.clusters import CLUSTERS
from tests.servers.lookup import PROGRAMS
from tests.servers.postgresql_ha import PostgreSQLCluster

STARTED = {**CLUSTERS, "postgresql-ha": PostgreSQLCluster}


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    command, rest = arguments[:1], arguments[1:]
    kinds, _, options = _cut(rest, "--")
    known = PROGRAMS.keys() | {"compare": {"sqlite", *CLUSTERS}, "start": set(STARTED)}.get("".join(command), set())
    runs = command in (["oldest"], ["share"])
    if not (runs or command in (["start"], ["compare"])) or not kinds or not set(kinds) <= known or (runs and not options):
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    try:
        if command == ["compare"]:
            return _compare(kinds, options)
        if command == ["share"]:
            return _share(kinds, options)
        return _on_the_oldest(kinds, options) if command == ["oldest"] else _start(kinds)
    except KeyboardInterrupt:
        return 0


def _cut(words: list[str], at: str) -> tuple[list[str], str, list[str]]:
    place = words.index(at) if at in words else len(words)
    return words[:place], at, words[place + 1 :]


def _start(kinds: list[str]) -> int:
    try:
        for kind in kinds:
            if kind in STARTED:
                cluster = STARTED[kind]()
                servers, urls = cluster.nodes, cluster.create_database()
                if isinstance(cluster, PostgreSQLCluster):
                    print(f"{cluster.balanced(urls[0])}   # HAProxy before the nodes below", flush=True)
            else:
                servers = [provide(kind)]
                urls = [servers[0].create_database()]
            for server, url in zip(servers, urls, strict=True):
                print(f"{url}   # {server.describe()}", flush=True)
    except (ServerMissing, ServerFailed, NotPrivate) as error:
        print(error, file=sys.stderr)
        return 1
    print("Ctrl-C ends them.", file=sys.stderr, flush=True)
    threading.Event().wait()
    return 0


def _compare(kinds: list[str], options: list[str]) -> int:
    servers: list[Server | Cluster] = []
    with tempfile.TemporaryDirectory() as folder:
        urls: list[str] = []
        for kind in kinds:
            if kind == "sqlite":
                urls.append(f"sqlite:///{folder}/queue.db")
                continue
            try:
                servers.append(CLUSTERS[kind]() if kind in CLUSTERS else provide(kind))
            except (ServerMissing, ServerFailed) as error:
                # A server that cannot be started here is reported and left out.
                print(f"{kind}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            made = servers[-1].create_database()
            urls.append(made if isinstance(made, str) else together(made))
        command = [sys.executable, "-m", "queue_db", "compare", *options]
        # The variable takes several URLs, and keeps the passwords out of the process list.
        return subprocess.run(command, env=os.environ | {"QUEUE_DB_URL": " ".join(urls)}, check=False).returncode


def _on_the_oldest(kinds: list[str], command: list[str]) -> int:
    found = {}
    for kind in kinds:
        release = releases.known(kind)[0]
        variable = lookup.variable(kind, "RELEASE")
        os.environ[variable] = release
        try:
            provide(kind).remove()
        except ServerMissing as error:
            print(f"Not tested on {kind} {release}: {error}", file=sys.stderr)
            continue
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 1
        found[kind] = release
    if not found:
        return 0
    print(f"The oldest releases: {', '.join(f'{kind} {release}' for kind, release in found.items())}", flush=True)
    return subprocess.run([*command, "-k", " or ".join(found)], check=False).returncode


def _share(kinds: list[str], command: list[str]) -> int:
    try:
        shared = {lookup.variable(kind, "URL"): provide(kind, durable=False).url() for kind in kinds}
    except (ServerMissing, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return subprocess.run(command, env=os.environ | shared, check=False).returncode


def _leave(signum: int, frame: FrameType | None) -> None:
    sys.exit(0)  # a normal exit, so that the servers are removed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
