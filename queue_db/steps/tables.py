"""The table of steps."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from queue_db.store.schema import LONG_TEXT, MYSQL

#: Longest name of a step, in characters.
NAME_LENGTH = 100
_WHAT_LENGTH = 10


def described(name: str, metadata: MetaData) -> Table:
    """The table ``name_steps``. Its rows are written only while the row of their job is locked.

    ``since`` is the ``created_at`` of the job: a job that was replaced begins anew, and finds no steps of the job before.
    """
    return Table(
        f"{name}_steps",
        metadata,
        Column("job_id", BigInteger, primary_key=True, autoincrement=False),
        Column("what", String(_WHAT_LENGTH), primary_key=True),
        Column("name", String(NAME_LENGTH), primary_key=True),
        Column("since", BigInteger, nullable=False),
        Column("phase", Integer, nullable=False),
        Column("value", LONG_TEXT),
        Column("ends_at", BigInteger),
        Column("changed_at", BigInteger, nullable=False),
        **MYSQL,
    )
