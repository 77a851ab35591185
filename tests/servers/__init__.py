"""Private database servers for the suite; they end with the process that started them.

    server = provide("postgresql")       # or "mysql", "mariadb"; a new server for every call
    url = server.create_database()       # an SQLAlchemy URL; the password in it is random
    server.kill(); server.start()        # a crash, and a recovery on the same port with the same data
    server.remove()                      # or at the end of the process

`lookup` documents where a server comes from and how to use your own. `proxy` breaks connections on purpose.
"""

from sqlalchemy import make_url

from tests.servers.errors import NotPrivate, ServerFailed, ServerMissing
from tests.servers.lookup import provide
from tests.servers.server import Server

__all__ = ["NotPrivate", "Server", "ServerFailed", "ServerMissing", "over_tls", "provide"]


def over_tls(url: str) -> str:
    """The same URL with TLS, which MySQL requires for a password that it has not cached yet."""
    return make_url(url).difference_update_query(["ssl_disabled"]).render_as_string(hide_password=False)
