"""The tables of the queue: their columns' lengths, types and special values, and the options of all tables."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import CHAR, BigInteger, Integer, String, Text
from sqlalchemy.dialects.mysql import LONGTEXT

#: The lengths, in characters, of the text columns that are compared or indexed.
QUEUE_LENGTH = 100
KIND_LENGTH = 100
KEY_LENGTH = 200
WORKER_LENGTH = 100
TOKEN_LENGTH = 36
CLASS_LENGTH = 200
NOTE_LENGTH = 200
FEED_LENGTH = 100
CURSOR_LENGTH = 100
TOPIC_LENGTH = 250  # a feed and a kind, with a dot between them
SHA_LENGTH = 64

DEFAULT_KIND = "default"
DEFAULT_MAX_ATTEMPTS = 25

#: The due time of a job that keeps its row while a slice holds the job. The time is in the year 9998, so it never comes but can be
#: displayed. No user delays a job to exactly this microsecond.
NEVER = 253_355_317_443_020_109

#: The ``available_at`` of a job that is blocked in its group. The real due time of the job is in ``due_at``.
BLOCKED = NEVER + 1

#: The ``per_group`` of a fair queue: no job waits for others of its group.
EVERY_MEMBER = 2**31 - 1

#: The queue of jobs that are marked as done. No other queue has this name, so no claim reads these jobs. The sweeper finds marked
#: jobs by this name.
MARKED = ""


IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")

# The options of all tables on MySQL and MariaDB. The binary collation keeps the queues "Mail" and "mail" apart, unlike MySQL's
# default. The character set is given because MariaDB 10.11 still creates latin1 tables.
MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}

#: Storage options for tables whose rows are updated two or three times and then deleted. The fill factor leaves room on each page
#: for new row versions. Vacuum starts after a fixed number of dead rows, since a share of a mostly empty table means nothing.
POSTGRESQL_CHURN: dict[str, Any] = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_insert_scale_factor": 0.2,
    "autovacuum_analyze_scale_factor": 0.1,
    "autovacuum_analyze_threshold": 5000,
    "autovacuum_vacuum_cost_delay": 0,
}

#: The type of ids. SQLite generates ids only for INTEGER columns.
BIG_ID = BigInteger().with_variant(Integer, "sqlite")
LONG_TEXT = Text().with_variant(LONGTEXT, "mysql", "mariadb")

#: The type of ``padding``. InnoDB fills CHAR with blanks to 80 bytes. A claim empties the column and adds as many bytes to the row:
#: ``due_at``, the token, a worker's name of 39 characters, and two lengths. On other databases an empty text takes a byte at most.
PADDING = String(80).with_variant(CHAR(80), "mysql", "mariadb")
