"""${message}"""

from alembic import context, op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None
additive = False  # True: code of the revision before works with this one too (docs/upgrading.md has the rule)
loses = ""  # what downgrade() drops, for people: "the table {jobs}_things, with what it holds; the column thing of {jobs}"


def upgrade() -> None:
    tables = context.config.attributes["tables"]
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    tables = context.config.attributes["tables"]
    ${downgrades if downgrades else "pass"}
