"""Real database servers for the suite, private to it and gone after it.

    server = provide("postgresql")       # or "mysql", "mariadb"; a new server for every call
    url = server.create_database()       # an SQLAlchemy URL; the password in it is random
    server.kill(); server.start()        # a crash, and the recovery on the same port with the same data
    server.remove()                      # or leave it to the end of the process

Where a server comes from, and how to bring one's own, is told by `lookup`. `proxy` breaks connections on purpose.
"""

from sqlalchemy import make_url

from tests.servers.errors import NotPrivate, ServerFailed, ServerMissing
from tests.servers.lookup import provide
from tests.servers.server import Server

__all__ = ["NotPrivate", "Server", "ServerFailed", "ServerMissing", "over_tls", "provide"]


def over_tls(url: str) -> str:
    """The same with TLS, on which MySQL insists before it judges a password that it has not seen yet."""
    return make_url(url).difference_update_query(["ssl_disabled"]).render_as_string(hide_password=False)
