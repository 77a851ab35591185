"""Options of Spark's own JDBC source; tests/spark/test_jdbc.py uses them, with real drivers and real servers."""

import pytest
from sqlalchemy import make_url

from queue_db.errors import ArgumentError, ConfigurationError, UnsupportedError
from queue_db.spark.jdbc import jdbc_options

MARIADB = "org.mariadb.jdbc.Driver"
MYSQL = "com.mysql.cj.jdbc.Driver"


def test_what_postgresql_is_told():
    jdbc = jdbc_options("postgresql://me:secret@db.example.org:6432/work")
    assert jdbc.url == "jdbc:postgresql://db.example.org:6432/work"
    assert jdbc.driver == "org.postgresql.Driver"
    assert jdbc.properties == {
        "user": "me",
        "password": "secret",
        "driver": "org.postgresql.Driver",
        "batchsize": "10000",
        "fetchsize": "10000",
        "reWriteBatchedInserts": "true",
        "logServerErrorDetail": "false",
        "connectTimeout": "10",
        "tcpKeepAlive": "true",
    }


@pytest.mark.parametrize("scheme", ["mysql", "mysql+pymysql", "mariadb"])
def test_what_mysql_and_mariadb_are_told(scheme):
    jdbc = jdbc_options(f"{scheme}://me:secret@db.example.org:3307/work")
    # Under its own scheme Spark would quote names as texts; and the driver takes this one only from the address.
    assert jdbc.url == "jdbc:mysql://db.example.org:3307/work?permitMysqlScheme=true"
    assert jdbc.driver == MARIADB
    assert jdbc.properties == {
        "user": "me",
        "password": "secret",
        "driver": MARIADB,
        "batchsize": "10000",
        "fetchsize": "10000",
        "rewriteBatchedStatements": "true",
        "connectTimeout": "10000",
        "tcpKeepAlive": "true",
        "allowLocalInfile": "false",
        "allowPublicKeyRetrieval": "true",
        "passwordCharacterEncoding": "UTF-8",
    }


def test_mysqls_own_driver():
    jdbc = jdbc_options("mysql://me:secret@h/work", driver=MYSQL)
    assert jdbc.url == "jdbc:mysql://h:3306/work"
    assert jdbc.driver == jdbc.properties["driver"] == MYSQL
    assert jdbc.properties["rewriteBatchedStatements"] == "true"
    # A cursor, or all rows would be read at once; and with it no more than 65,535 values in one INSERT of at most 16 columns.
    assert (jdbc.properties["useCursorFetch"], jdbc.properties["fetchsize"]) == ("true", "10000")
    assert int(jdbc.properties["batchsize"]) * 16 < 65535


@pytest.mark.parametrize(
    ("url", "driver", "address"),
    [
        ("postgresql://h/d", None, "jdbc:postgresql://h:5432/d"),
        ("postgresql://h", None, "jdbc:postgresql://h:5432/"),
        ("postgresql://[2001:db8::1]/d", None, "jdbc:postgresql://[2001:db8::1]:5432/d"),
        ("postgresql://[::1]:6432/d", None, "jdbc:postgresql://[::1]:6432/d"),
        # PostgreSQL's and MySQL's drivers decode the name, MariaDB's does not.
        ("postgresql://h/a%20b@:%2F%25&%3F%23+ü", None, "jdbc:postgresql://h:5432/a%20b%40%3A%2F%25%26%3F%23%2B%C3%BC"),
        ("mysql://h/a%20b@:%2F%25&%3F%23+ü", MYSQL, "jdbc:mysql://h:3306/a%20b%40%3A%2F%25%26%3F%23%2B%C3%BC"),
        ("mysql://h/a%20b@:%2F%25&%23+ü", None, "jdbc:mysql://h:3306/a b@:/%&#+ü?permitMysqlScheme=true"),
        # Without a port the driver would take 0 here.
        ("mariadb://[::1]/d", None, "jdbc:mysql://[::1]:3306/d?permitMysqlScheme=true"),
    ],
)
def test_one_address(url, driver, address):
    assert jdbc_options(url, driver=driver).url == jdbc_options(make_url(url), driver=driver).url == address


@pytest.mark.parametrize(
    ("url", "driver", "address", "properties"),
    [
        (
            "postgresql://a:1,[::1]/d",
            None,
            "jdbc:postgresql://a:1,[::1]:5432/d",
            {"targetServerType": "primary", "loadBalanceHosts": "false"},
        ),
        (
            "postgresql://a,b/d?target_session_attrs=prefer-standby&nodes=all",
            None,
            "jdbc:postgresql://a:5432,b:5432/d",
            {"targetServerType": "preferSecondary", "loadBalanceHosts": "true"},
        ),
        ("mariadb://a,b:7/d", None, "jdbc:mysql:sequential://a:3306,b:7/d?permitMysqlScheme=true", {}),
        ("mariadb://a,b/d?nodes=all", None, "jdbc:mysql:loadbalance://a:3306,b:3306/d?permitMysqlScheme=true", {}),
        ("mysql://a,b/d", MYSQL, "jdbc:mysql://a:3306,b:3306/d", {"failOverReadOnly": "false"}),
        ("mysql://a,b/d?nodes=all", MYSQL, "jdbc:mysql:loadbalance://a:3306,b:3306/d", {"failOverReadOnly": "false"}),
    ],
)
def test_several_addresses(url, driver, address, properties):
    jdbc = jdbc_options(url, driver=driver)
    assert jdbc.url == address
    one = jdbc_options(f"{url.partition(':')[0]}://h/d", driver=driver).properties
    assert jdbc.properties == one | properties


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
def test_user_and_password_stand_in_the_properties_as_they_are(scheme):
    jdbc = jdbc_options(f"{scheme}://m%40e%3A%2F:p%40%3A%2F%25%26%3F%20%C3%BC@h/d")
    assert (jdbc.properties["user"], jdbc.properties["password"]) == ("m@e:/", "p@:/%&? ü")
    assert "@" not in jdbc.url
    assert not {"user", "password"} & jdbc_options(f"{scheme}://h/d").properties.keys()


def test_passwords_are_not_shown():
    jdbc = jdbc_options("postgresql://me:hush-1@h/d?sslkey=/k&sslpassword=hush-2&sslmode=verify-full")
    jdbc.properties["keyStorePassword"] = "hush-3"
    for shown in (repr(jdbc), str(jdbc), f"{jdbc}", repr([jdbc])):
        assert "hush" not in shown
        assert shown.count("***") == 3
        assert "me" in shown
    assert jdbc.properties["password"] == "hush-1"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("sslmode=disable", {"sslmode": "disable"}),
        ("sslmode=verify-full&sslrootcert=/ca.pem", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}),
        # libpq verifies here, and the driver would not.
        ("sslmode=require&sslrootcert=/ca.pem", {"sslmode": "verify-ca", "sslrootcert": "/ca.pem"}),
        ("sslmode=require&channel_binding=require", {"sslmode": "require", "channelBinding": "require"}),
        ("sslrootcert=system", {"sslmode": "verify-full", "sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}),
        ("sslcert=/c.pem&sslkey=/k.pk8", {"sslcert": "/c.pem", "sslkey": "/k.pk8"}),
        (
            "connect_timeout=3&application_name=mine&options=-c%20lock_timeout%3D5000&keepalives=1",
            {"connectTimeout": "3", "ApplicationName": "mine", "options": "-c lock_timeout=5000"},
        ),
    ],
)
def test_options_of_psycopg2(query, expected):
    plain = jdbc_options("postgresql://me@h/d").properties
    assert jdbc_options(f"postgresql://me@h/d?{query}").properties == plain | expected


REQUIRED = {"sslMode": "trust", "useSsl": "true", "trustServerCertificate": "true"}
VERIFY_CA = {"sslMode": "verify-ca", "useSsl": "true", "disableSslHostnameVerification": "true"}
VERIFY_FULL = {"sslMode": "verify-full", "useSsl": "true"}


@pytest.mark.parametrize(
    ("query", "expected", "level"),
    [
        ("ssl_disabled=true", {"sslMode": "disable"}, "DISABLED"),
        ("ssl_disabled=true&ssl_verify_identity=true", {"sslMode": "disable"}, "DISABLED"),
        ("ssl_disabled=false&ssl_check_hostname=false", REQUIRED, "REQUIRED"),
        ("ssl_verify_cert=false", REQUIRED, "REQUIRED"),
        ("ssl_verify_cert=true", VERIFY_FULL, "VERIFY_IDENTITY"),
        ("ssl_verify_cert=true&ssl_verify_identity=false", VERIFY_CA, "VERIFY_CA"),
        ("ssl_verify_identity=true&ssl_check_hostname=false", VERIFY_FULL, "VERIFY_IDENTITY"),
        ("ssl_ca=/ca.pem", VERIFY_FULL | {"serverSslCert": "/ca.pem"}, None),
        ("ssl_ca=/ca.pem&ssl_check_hostname=false", VERIFY_CA | {"serverSslCert": "/ca.pem"}, None),
    ],
)
def test_tls_of_pymysql(query, expected, level):
    names = REQUIRED.keys() | VERIFY_CA.keys() | {"serverSslCert"}
    url = f"mysql://me@h/d?{query}"
    properties = jdbc_options(url).properties
    assert {name: value for name, value in properties.items() if name in names} == expected
    # The server's key is not requested where a certificate identifies the server.
    assert ("allowPublicKeyRetrieval" in properties) == (expected["sslMode"] == "disable")
    if level is None:
        with pytest.raises(ArgumentError, match="key store"):
            jdbc_options(url, driver=MYSQL)
    else:
        own = jdbc_options(url, driver=MYSQL).properties
        assert own["sslMode"] == level
        assert ("allowPublicKeyRetrieval" in own) == (level == "DISABLED")


def test_timeouts_of_pymysql_are_milliseconds_there():
    properties = jdbc_options("mysql://me@h/d?connect_timeout=3&read_timeout=60&write_timeout=60&charset=utf8mb4").properties
    assert (properties["connectTimeout"], properties["socketTimeout"]) == ("3000", "60000")
    assert not {"charset", "write_timeout", "connect_timeout"} & properties.keys()
    with pytest.raises(ArgumentError, match="'soon' in the database URL: must be a whole number of seconds"):
        jdbc_options("mysql://me@h/d?connect_timeout=soon")


def test_sqlite_has_other_ways():
    with pytest.raises(UnsupportedError, match=r"does not go to SQLite: .*queue_db\.spark\.enqueue") as refused:
        jdbc_options("sqlite:///queue.db")
    assert (refused.value.capability, refused.value.dialect) == ("JDBC", "sqlite")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oracle://me@h/d", "unknown database scheme 'oracle'; use one of: "),
        ("work", "not a database URL"),
        ("postgresql://me:p@ss@h/d", "write it as %40"),
    ],
)
def test_text_that_is_not_a_url_is_refused(url, message):
    with pytest.raises(ConfigurationError, match=message):
        jdbc_options(url)


@pytest.mark.parametrize(
    ("url", "driver", "message"),
    [
        ("postgresql://me:hush@/d", None, "names no host"),
        ("mysql://me:hush@/d?unix_socket=/s", None, "unix_socket"),
        ("postgresql://me:hush@h/d?host=/run", None, "'host' in the database URL has no name in JDBC"),
        ("postgresql://me:hush@h/d?sslcrl=hush", None, "'sslcrl' in the database URL has no name in JDBC .* properties"),
        ("mysql://me:hush@h/d?ssl_key=hush", None, "'ssl_key'"),
        ("postgresql://me:hush@h/d?sslmode=require&sslmode=disable", None, "'sslmode' in the database URL stands there twice"),
        ("postgresql://me:hush@h/d", MARIADB, r"not known for this database; use one of: org\.postgresql\.Driver"),
        ("mysql://me:hush@h/d", "org.mariadb.Driver", f"use one of: {MARIADB}, {MYSQL}"),
        ("mysql://me:hush@h/what%3F", None, r"question mark: 'what\?'"),
    ],
)
def test_refusals_name_the_fix_and_no_secret(url, driver, message):
    with pytest.raises(ArgumentError, match=message) as refused:
        jdbc_options(url, driver=driver)
    assert "hush" not in str(refused.value)
