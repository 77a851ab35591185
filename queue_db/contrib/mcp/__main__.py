"""``python -m queue_db.contrib.mcp``: the server, on standard input and output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from mcp.server import MCPServer

from queue_db import __version__
from queue_db.contrib.mcp.answers import WARNING
from queue_db.contrib.mcp.changing import Changing
from queue_db.contrib.mcp.looking import Looking
from queue_db.contrib.mcp.service import Service
from queue_db.errors import ConfigurationError

_HELP = """\
An MCP server on standard input and output: tools with which an agent looks at the queues of a service.

environment:
  QUEUE_DB_SERVICE_URL    the service, such as http://127.0.0.1:8321 (the default); over a network https
  QUEUE_DB_TOKEN          a token that may only look:
                            queue-db tokens create agent --scope read
  QUEUE_DB_OPERATE_TOKEN  optional, another token:
                            queue-db tokens create agent-operator --scope read --scope manage --queue 'mail*'
                          With it there are also tools that redrive, cancel, pause and resume, each after a preview.

Tokens are never arguments, since other users of the machine see those. The database is not reached: the service
enforces scopes and queues, masks values, and writes each change with the name of its token into the action log.
"""

_INSTRUCTIONS = f"""\
A job queue in a SQL database. Begin with check_health; then get_queue, list_failures, get_job or why_does_it_wait. {WARNING}
A change needs its preview first. Show the preview to the person who asked, and make the change only if they agree.
"""


def server(environment: Mapping[str, str], *, payloads: bool) -> MCPServer:
    """The server with its tools.

    :raises ConfigurationError: a variable is missing or wrong.
    """
    url = environment.get("QUEUE_DB_SERVICE_URL") or "http://127.0.0.1:8321"
    token, operate = environment.get("QUEUE_DB_TOKEN"), environment.get("QUEUE_DB_OPERATE_TOKEN")
    if not token:
        raise ConfigurationError("QUEUE_DB_TOKEN is not set: queue-db tokens create agent --scope read prints one")
    if operate and operate.strip() == token.strip():
        raise ConfigurationError("QUEUE_DB_OPERATE_TOKEN is the same as QUEUE_DB_TOKEN: make a second one, or leave it out")
    services = [Service(url, one) for one in (token, operate) if one]

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for service in services:
                await stack.enter_async_context(service)
            yield

    made = MCPServer(
        "queue_db", version=__version__, instructions=_INSTRUCTIONS, lifespan=lifespan, subscriptions=False, log_level="WARNING"
    )
    Looking(services[0], payloads=payloads).add_to(made)
    for service in services[1:]:
        Changing(service).add_to(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until its input ends; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m queue_db.contrib.mcp", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--payloads", action="store_true", help="get_job also shows payloads, headers and results")
    options = parser.parse_args(arguments)
    try:
        made = server(os.environ, payloads=options.payloads)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 2
    made.run("stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
