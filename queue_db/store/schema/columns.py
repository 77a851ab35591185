"""Lengths, special values and types of columns, and the options of the tables."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import CHAR, BigInteger, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT

#: Longest texts, in characters, of the columns that are compared or indexed.
QUEUE_LENGTH = 100
KIND_LENGTH = 100
KEY_LENGTH = 200
WORKER_LENGTH = 100
TOKEN_LENGTH = 36
SCHEDULE_LENGTH = 100
RULE_LENGTH = 200
ZONE_LENGTH = 64
CLASS_LENGTH = 200
NOTE_LENGTH = 200
FEED_LENGTH = 100
CURSOR_LENGTH = 100
TOPIC_LENGTH = 250  # a feed and a kind, with a dot between them
SHA_LENGTH = 64

DEFAULT_KIND = "default"
DEFAULT_MAX_ATTEMPTS = 25

#: The due time of a job that keeps its row while a slice holds it. The year 9998 never comes, can be displayed, and no user delays
#: a job to just this microsecond.
NEVER = 253_355_317_443_020_109

#: The due time of a job blocked behind others of its group; ``due_at`` has its own.
BLOCKED = NEVER + 1

#: The queue of jobs that are marked as done. No queue has this name: no claim reads them, and the sweeper finds them together.
MARKED = ""

#: Number of rows of ``stripes``.
STRIPES = 64

IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")

# Binary collation: with MySQL's defaults "Mail" and "mail" are the same queue, and MariaDB 10.11 still creates latin1 tables.
MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}

#: A job's row is updated two or three times and then deleted: leave room on its page for the new versions, and vacuum after a fixed
#: number of dead rows, since a share of a mostly empty table means nothing.
POSTGRESQL_CHURN: dict[str, Any] = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_insert_scale_factor": 0.2,
    "autovacuum_analyze_scale_factor": 0.1,
    "autovacuum_analyze_threshold": 5000,
    "autovacuum_vacuum_cost_delay": 0,
}

#: Ids. SQLite counts only INTEGER columns up.
BIG_ID = BigInteger().with_variant(Integer, "sqlite")
LONG_TEXT = Text().with_variant(LONGTEXT, "mysql", "mariadb")

#: On InnoDB, which fills CHAR with blanks, as long as what a claim adds to a row: ``due_at``, the token, a worker's name of 39
#: characters, and two lengths. Elsewhere an empty text takes a byte at most.
PADDING = String(80).with_variant(CHAR(80), "mysql", "mariadb")
