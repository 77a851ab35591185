"""What JDBC drivers for MySQL and MariaDB are told: address, class and properties, from a database URL."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import URL

from queue_db.database.addresses import several
from queue_db.errors import ArgumentError
from queue_db.spark.dialects import jdbc


def settings(url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
    """The JDBC address, the driver's class and its properties.

    :param driver: the class of one of the drivers that are known here; None: MariaDB's.
    :raises ArgumentError: it is not known, or the driver has no name for an option in ``url``.
    """
    driver = jdbc.driver_for(driver, list(_CONNECTORS))
    connector = _CONNECTORS[driver]
    given = jdbc.properties_of(url, _JDBC_NAMES)
    properties = {**connector.properties, **{name: _milliseconds(name, value) for name, value in given.items()}}
    safety = _safety(url.query)
    if safety is None or safety == "disabled":
        # As PyMySQL does without TLS: a password that the server has not seen lately goes encrypted with the server's key.
        properties["allowPublicKeyRetrieval"] = "true"
    if safety is not None:
        properties |= connector.safety[safety]
    if "ssl_ca" in url.query and safety in ("verify_ca", "verify_identity"):
        if connector.authority is None:
            raise ArgumentError(
                f"{driver} reads no ssl_ca: import that file into a key store with keytool, write ssl_verify_identity=true in "
                "the database URL instead, and put trustCertificateKeyStoreUrl and its Type and Password into properties"
            )
        properties[connector.authority] = str(url.query["ssl_ca"])
    database = url.database or ""
    if connector.takes_as_is:
        if "?" in database:
            raise ArgumentError(f"{driver} takes no database whose name has a question mark: {database!r}")
        database += "?permitMysqlScheme=true"
    else:
        database = quote(database, safe="")
    mode = ""
    if several(url):
        mode = connector.in_turn if url.query.get("nodes") != "all" else ":loadbalance"
        properties |= connector.several
    return jdbc.address(f"jdbc:mysql{mode}", url, 3306, database), driver, properties


class _Connector(NamedTuple):
    """The settings of a JDBC driver."""

    properties: Mapping[str, str]
    #: What :func:`_safety` finds in the URL → properties that say so.
    safety: Mapping[str, Mapping[str, str]]
    #: The property with the file of the authority to trust, if the driver reads one in PEM.
    authority: str | None = None
    #: Whether it takes the database's name as it stands in the address, and the address only if that says so.
    takes_as_is: bool = False
    #: What its scheme has if the first of several addresses that works is to be used, and properties for several.
    in_turn: str = ""
    several: Mapping[str, str] = MappingProxyType({})


# A batch as one INSERT: measured with MariaDB's version 2.7, 60,000 jobs in 1.0 s and not in 3.4 s. Its version 3 has a way of its
# own instead, by itself, which only MariaDB's servers know.
_CONNECTORS: dict[str, _Connector] = {
    "org.mariadb.jdbc.Driver": _Connector(
        {
            "rewriteBatchedStatements": "true",
            "connectTimeout": "10000",
            "tcpKeepAlive": "true",
            "allowLocalInfile": "false",  # a server might ask for any file
            "passwordCharacterEncoding": "UTF-8",  # version 2 takes the machine's
        },
        # sslMode from version 3, the others before; each ignores what it does not know.
        {
            "disabled": {"sslMode": "disable"},
            "required": {"sslMode": "trust", "useSsl": "true", "trustServerCertificate": "true"},
            "verify_ca": {"sslMode": "verify-ca", "useSsl": "true", "disableSslHostnameVerification": "true"},
            "verify_identity": {"sslMode": "verify-full", "useSsl": "true"},
        },
        authority="serverSslCert",
        takes_as_is=True,
        in_turn=":sequential",
    ),
    "com.mysql.cj.jdbc.Driver": _Connector(
        {
            "rewriteBatchedStatements": "true",
            "connectTimeout": "10000",
            "tcpKeepAlive": "true",
            # Without it the driver ignores fetchsize and reads all rows before the first. It makes the driver prepare its INSERTs
            # too, and one of those has no more than 65,535 values.
            "useCursorFetch": "true",
            "batchsize": "1000",
        },
        {
            "disabled": {"sslMode": "DISABLED"},
            "required": {"sslMode": "REQUIRED"},
            "verify_ca": {"sslMode": "VERIFY_CA"},
            "verify_identity": {"sslMode": "VERIFY_IDENTITY"},
        },
        several={"failOverReadOnly": "false"},
    ),
}

# What PyMySQL's options are called in JDBC; those of TLS are read by _safety. The drivers speak UTF-8 of four bytes.
_JDBC_NAMES: dict[str, str | None] = {
    "connect_timeout": "connectTimeout",
    "read_timeout": "socketTimeout",
    "autocommit": None,
    "charset": None,
    "local_infile": None,
    "program_name": None,
    "ssl_ca": None,
    "ssl_check_hostname": None,
    "ssl_disabled": None,
    "ssl_verify_cert": None,
    "ssl_verify_identity": None,
    "use_unicode": None,
    "write_timeout": None,
}

_NO = ("", "0", "false", "no", "none")


def _milliseconds(name: str, seconds: str) -> str:
    try:
        return str(int(seconds) * 1000)
    except ValueError:
        raise ArgumentError(f"{name} comes from {seconds!r} in the database URL: must be a whole number of seconds") from None


def _safety(options: Mapping[str, Any]) -> str | None:
    """How safe the URL wants the connection to be, by PyMySQL's names; None: it does not say."""
    given = {name: str(value).lower() not in _NO for name, value in options.items() if name.startswith("ssl_")}
    if given.pop("ssl_disabled", False):
        return "disabled"
    if given.get("ssl_verify_identity"):
        return "verify_identity"
    # With an authority, check the certificate and the server's name, unless the URL says otherwise.
    if given.get("ssl_verify_cert", "ssl_ca" in given):
        return "verify_ca" if False in (given.get("ssl_check_hostname"), given.get("ssl_verify_identity")) else "verify_identity"
    return "required" if given else None
