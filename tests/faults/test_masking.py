"""One masker: a URL with a secret, in each form, in each place where people see URLs."""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from queue_db import ConfigurationError, QueueDB, QueueDBError
from queue_db.cli.app import app
from queue_db.database.database import Database
from queue_db.database.masking import MASK, mask, masked, secrets_in
from queue_db.spark.jdbc import jdbc_options
from queue_db.spark.masked_errors import described, masked_errors
from queue_db.spark.target import target_of
from queue_db.worker import Worker

SECRET = "hunter2"

#: Nobody listens on port 1.
AT = "127.0.0.1:1/d"

FORMS = {
    "in its place": f"postgresql://me:{SECRET}@{AT}",
    "without a user": f"postgresql://:{SECRET}@{AT}",
    "several addresses": f"postgresql://me:{SECRET}@127.0.0.1:1,[::1]:2/d",
    "several addresses and a , not escaped": f"mysql://me:x,y{SECRET}@127.0.0.1:1,127.0.0.1:2/d",
    "several addresses, @ and , not escaped": f"mysql://me:x@y,{SECRET}@{AT}",
    "several addresses, @, / and , not escaped": f"mysql://me:x,{SECRET}/y@z,w@{AT}",
    "several addresses, port in words": f"postgresql://me:{SECRET}@host:port,h/d",
    "several addresses, password=": f"postgresql://127.0.0.1:1,127.0.0.1:2/d?password={SECRET}&user=me",
    "JDBC's form": f"jdbc:postgresql://me:{SECRET}@{AT}",
    "JDBC's form with a mode": f"jdbc:mysql:sequential://a,b/d?user=me&password={SECRET}",
    "@ escaped": f"postgresql://me:{SECRET}%40x@{AT}",
    "@ not escaped": f"postgresql://me:{SECRET}@x@{AT}",
    "@ and / not escaped": f"postgresql://me:x@y/{SECRET}@{AT}",
    "@ and ? not escaped": f"postgresql://me:x@y?{SECRET}@{AT}",
    "@, / and ? not escaped": f"postgresql://me:x@y/z?{SECRET}=@{AT}",
    "@, / and = not escaped": f"postgresql://me:x@y/z?w={SECRET}@{AT}",
    "an @ first, then a /": f"postgresql://me:@/{SECRET}@{AT}",
    "@ and / not escaped in MySQL": f"mysql://me:x@y/{SECRET}@{AT}?charset=utf8mb4",
    "/ escaped": f"postgresql://me:{SECRET}%2Fx@{AT}",
    "/ not escaped": f"postgresql://me:{SECRET}/x@{AT}",
    "/ after a number": f"postgresql://me:12/{SECRET}@{AT}",
    "? after a number": f"postgresql://me:12?{SECRET}@{AT}",
    "password=": f"postgresql://{AT}?user=me&password={SECRET}",
    "password= and another option": f"postgresql://me@{AT}?password={SECRET}&application_name=mine",
    "PASSWORD=": f"postgresql://me@{AT}?PASSWORD={SECRET}",
    "password= escaped": f"postgresql://me@{AT}?password={SECRET}%20x%26y",
    "sslpassword=": f"postgresql://me@{AT}?sslpassword={SECRET}",
    "token=": f"postgresql://me@{AT}?token={SECRET}",
    "MySQL in its place": f"mysql://me:{SECRET}@{AT}",
    "MySQL passwd=": f"mysql://me@{AT}?passwd={SECRET}",
    "MySQL ssl_key_password=": f"mysql://me@{AT}?ssl_key_password={SECRET}",
    "MariaDB in its place": f"mariadb+pymysql://me:{SECRET}@{AT}",
    "SQLite with a host": f"sqlite://me:{SECRET}@host/d",
    "SQLite token=": f"sqlite:///d?token={SECRET}",
    "unknown scheme": f"nosuch://me:{SECRET}@{AT}",
    "port in words": f"postgresql://me:{SECRET}@host:port/d",
    "port too large": f"postgresql://me:{SECRET}@host:99999/d",
}


def full_text(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


def opening(url: str) -> str:
    with pytest.raises(QueueDBError) as refused:
        QueueDB(url)
    return full_text(refused.value)


def worker(url: str) -> str:
    with pytest.raises(QueueDBError) as refused:
        Worker(url, "q")  # type: ignore[arg-type]
    return full_text(refused.value)


def command_line(url: str) -> str:
    shown = [
        CliRunner().invoke(app, [*words, "--url", url])
        for words in (["queues", "show", "mail"], ["queues", "show", "mail", "--json"], ["compare", "--quick"])
    ]
    return "".join(result.output + result.stderr for result in shown)


def spark_target(url: str) -> str:
    try:
        return repr(target_of(url))
    except QueueDBError as error:
        return full_text(error)


def spark_error(url: str) -> str:
    try:
        target = target_of(url)
    except QueueDBError as error:
        return full_text(error)
    with pytest.raises(QueueDBError) as refused, masked_errors(target.url):
        raise RuntimeError(f"driver says: {target.url.render_as_string(hide_password=False)} and {url}")
    return full_text(refused.value) + described(RuntimeError(f"of {url}"), target.url)


def spark_jdbc(url: str) -> str:
    try:
        return repr(jdbc_options(url))
    except QueueDBError as error:
        return full_text(error)


def engine(url: str) -> str:
    with pytest.raises(QueueDBError) as refused:
        Database(url)
    return full_text(refused.value)


PLACES: dict[str, Callable[[str], str]] = {
    "masked": masked,
    "mask": lambda url: mask(f"it is {url}, or '{url}'", secrets_in(url)),
    "an error when it is opened": opening,
    "a database": engine,
    "a worker": worker,
    "the command line": command_line,
    "a target of Spark's": spark_target,
    "an error in Spark": spark_error,
    "options for JDBC": spark_jdbc,
}


@pytest.mark.filterwarnings("ignore:'passwd' is deprecated")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_shown_nowhere(form: str, place: str, caplog: pytest.LogCaptureFixture, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    assert SECRET not in PLACES[place](FORMS[form])
    assert SECRET not in caplog.text


def test_no_run_of_a_password_of_any_characters_is_shown() -> None:
    """Five characters of it at a time, with each character that has a meaning in URLs, escaped nowhere."""
    dice = random.Random(7)
    places = ("postgresql://user:{}@host:5432/db", "mysql+pymysql://u:{}@h/db?ssl_ca=/x", "mariadb://u:{}@/db")
    shown = []
    for _ in range(3000):
        password = "".join(dice.choice("abcdeXYZ019@@@///??::#&=%+;,!$'\"[]~-_.") for _ in range(dice.randint(5, 10)))
        runs = {password[start : start + 5] for start in range(len(password) - 4)}
        for place in places:
            url = place.format(password)
            texts = (masked(url), mask(f"cannot reach {url} now", secrets_in(url)), mask(f"cannot reach {url} now", []))
            shown += [(url, text) for text in texts if any(run in text for run in runs)]
    assert shown == []


@pytest.mark.parametrize("url", ["postgresql://u:p@ss/word@h:5432/d", "mysql://u:p@ss?w=1&x@h/d", "postgresql://u:@/word@h/d"])
def test_a_password_that_ends_too_early_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as %40"):
        QueueDB(url)


def test_what_is_no_secret_is_shown() -> None:
    url = "postgresql://me@host:5432/d?passfile=pgpass&service=mine&sslkey=key.pem&sslrootcert=ca.pem"
    assert masked(url) == url
    assert mask(f"at {url}", secrets_in(url)) == f"at {url}"
    assert secrets_in(url) == []
    assert masked("sqlite:///some@where/d.db") == "sqlite:///some%40where/d.db"
    assert masked(f"mysql://me:{SECRET}@host/d?charset=utf8mb4") == f"mysql://me:{MASK}@host/d?charset=utf8mb4"


def test_a_secret_that_nobody_said_is_masked_in_a_text_by_its_place() -> None:
    assert mask(f"at postgresql://host/d?user=me&password={SECRET}&x=1", []) == "at postgresql://host/d?user=me&password=***&x=1"
    assert mask(f"at jdbc:postgresql://host/d?sslpassword={SECRET}", []) == "at jdbc:postgresql://host/d?sslpassword=***"
    assert mask(f"jdbc:sqlserver://host;password={SECRET};x=1", []) == "jdbc:sqlserver://host;password=***;x=1"
