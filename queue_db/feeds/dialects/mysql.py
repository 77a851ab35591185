"""MySQL and MariaDB for feeds: the ids come as JSON, so that a statement reads these rows alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from queue_db.dialects.transactions import Sender
from queue_db.feeds.dialects import numbering
from queue_db.feeds.dialects.base import FeedDialect
from queue_db.feeds.dialects.numbering import NumberedMove


class MySQLForFeeds(FeedDialect):
    """JSON_TABLE drives the primary key."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def move_ids(self, tx: Sender, move: NumberedMove, ids: Sequence[int], first: int) -> None:
        array = json.dumps(ids)
        tx.execute(numbering.copy_given(move), {"of_ids": array, "first": first})
        table = tx.connection.dialect.identifier_preparer.format_table(move.inbox)
        tx.execute(numbering.removal_given(table), {"of_ids": array})
