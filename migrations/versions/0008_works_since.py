"""The oldest revision whose code works with these tables, stored beside the revision for older code to read."""

import sqlalchemy as sa
from alembic import context, op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
additive = False  # code that does not know of this column refuses every revision but its own
loses = "the column works_since of {jobs}_schema_version"


def upgrade() -> None:
    tables = context.config.attributes["tables"]
    if not context.is_offline_mode():
        # Where DDL is no transaction, an earlier run may have been cut off.
        there = {found["name"] for found in sa.inspect(op.get_bind()).get_columns(tables.version, schema=tables.schema)}
        if "works_since" in there:
            return
    op.add_column(tables.version, sa.Column("works_since", sa.String(32)), schema=tables.schema)


def downgrade() -> None:
    tables = context.config.attributes["tables"]
    op.drop_column(tables.version, "works_since", schema=tables.schema)
