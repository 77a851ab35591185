"""Several addresses in a URL: how they are written, kept, shown and refused. Nothing is opened."""

from __future__ import annotations

import pytest
from sqlalchemy import URL, create_engine, make_url

from queue_db import ConfigurationError, url_of
from queue_db.compare.machine import server_clock
from queue_db.database.addresses import Address, several
from queue_db.database.masking import masked
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.service.pages.words import whereabouts


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("postgresql://a:1,b:2/db", [("a", "1"), ("b", "2")]),
        ("postgres://u:p@a,b:2/db?application_name=x", [("a", "5432"), ("b", "2")]),
        ("mariadb://a,b:3307,c/db", [("a", "3306"), ("b", "3307"), ("c", "3306")]),
        ("mysql://u:p,q@a,b", [("a", "3306"), ("b", "3306")]),
        ("mysql://u:p/q,r@a,b/db", [("a", "3306"), ("b", "3306")]),
        ("postgresql://[::1]:7,[2001:db8::1]/db", [("::1", "7"), ("2001:db8::1", "5432")]),
        ("postgresql://u@/db?host=a:1&host=b:2", [("a", "1"), ("b", "2")]),
        ("postgresql://u@/db?host=a,b&port=7", [("a", "7"), ("b", "7")]),
        ("postgresql:///db?host=/run/one,/run/two", [("/run/one", "5432"), ("/run/two", "5432")]),
        ("jdbc:postgresql://a:1,b/db", [("a", "1"), ("b", "5432")]),
        ("mysql://u:p@h/a,b", []),
        ("mysql://u:p@h/db?nodes=all", []),
        ("postgresql://u:p,q@h/db?target_session_attrs=read-write", [("h", "5432")]),
        ("mysql://u@h:1/db?target_session_attrs=standby", [("h", "1")]),
        ("postgresql://u@h/db?port=1&target_session_attrs=primary", [("h", "1")]),
        ("postgresql://u@/db?host=h:1&target_session_attrs=primary", [("h", "1")]),
        ("sqlite:///a,b.db", []),
    ],
)
def test_how_addresses_are_written(url: str, addresses: list[tuple[str, str]]) -> None:
    parsed = parse_url(url)
    assert several(parsed) == [Address(*one) for one in addresses]
    # What is shown is a URL of the same database: people copy it from an error.
    assert parse_url(masked(parsed).replace("***", str(parsed.password).replace("/", "%2F"))) == parsed
    assert several(parse_url(make_url(parsed.render_as_string(hide_password=False)))) == several(parsed)
    assert "nodes" not in parsed.query


def test_a_url_is_made_of_the_parts_that_another_program_has() -> None:
    parts = {"host": "h", "port": 7, "user": "u", "password": "p@/", "database": "d"}
    made = url_of("mysql+pymysql", **parts)  # type: ignore[arg-type]
    assert made.render_as_string(hide_password=False) == "mysql+pymysql://u:p%40%2F@h:7/d"
    assert "p@" not in str(made)
    assert str(url_of("postgres", host="h", database="d")) == "postgresql://h/d"
    assert parse_url(url_of("mariadb", host="a,b", database="d")).port is None
    # A file has a path, in the one field or the other.
    assert str(url_of("sqlite", **parts)) == "sqlite:///d"  # type: ignore[arg-type]
    assert str(url_of("sqlite+aiosqlite", host="/a/b.db")) == "sqlite+aiosqlite:////a/b.db"
    with pytest.raises(ConfigurationError, match="unknown database scheme 'oracle'; use one of: .*mariadb, mysql"):
        url_of("oracle", host="h")
    with pytest.raises(ConfigurationError, match="needs the path of its file"):
        url_of("sqlite", host="", user="u")


def test_a_port_beside_the_hosts_of_an_object_is_the_port_of_each_without_one() -> None:
    url = URL.create("postgresql", host="a,b:1,[::1]", port=6432, database="db")
    assert several(parse_url(url)) == [Address("a", "6432"), Address("b", "1"), Address("::1", "6432")]


def test_the_processor_time_of_servers_elsewhere_is_not_read_here() -> None:
    elsewhere = create_engine(parse_url("postgresql://elsewhere.invalid:1,127.0.0.1:1/db"))
    assert server_clock(elsewhere, dialect_for("postgresql")) is None


def test_a_url_is_shown_as_people_write_it() -> None:
    parsed = parse_url("postgresql://me:secret@a:1,[::1]:2/db?target_session_attrs=any&sslpassword=x")
    assert masked(parsed) == "postgresql+psycopg2://me:***@a:1,[::1]:2/db?sslpassword=%2A%2A%2A&target_session_attrs=any"
    assert whereabouts(masked(parsed)) == "a:1,[::1]:2/db"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://a:x,b/db", "an address in the database URL cannot be read"),
        ("postgresql://a:1,b:99999/db", "must be 1 to 65,535"),
        ("postgresql://a,,b/db", "cannot be read"),
        ("mysql://::1,::2/db", r"\[host\]:port for IPv6"),
        ("mysql://a,b/db?nodes=some", "nodes=some in the database URL: must be one of first, all"),
        (
            "mysql://a,b/db?target_session_attrs=fast",
            "target_session_attrs=fast in the database URL: must be one of any, read-write",
        ),
        ("mysql://a/db?target_session_attrs=fast", "target_session_attrs=fast in the database URL: must be one of any"),
        ("postgresql://u@/db?host=a,b,c&port=1,2", "as many ports as addresses"),
        ("postgresql://u@h/db?port=x&target_session_attrs=any", "must have one port"),
        ("sqlite://a,b/db", "its URL takes no addresses"),
        ("jdbc:mysql:loadbalance://a,b/db", "write it without jdbc:"),
        ("jdbc:postgresql://a/db?user=u", "write it without jdbc:"),
        ("jdbc:sqlserver://a;password=p", "write it without jdbc:"),
    ],
)
def test_what_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_url(url)
    assert masked(url)  # it can be shown: it raises no error
