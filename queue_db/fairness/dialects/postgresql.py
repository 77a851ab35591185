"""Claims by turns on PostgreSQL: it locks the candidates as it reads them, and steps over jobs that others have locked."""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Executable

from queue_db.dialects.claim_sql import COLUMNS, ClaimText, columns_of
from queue_db.dialects.statements import kept
from queue_db.fairness.dialects.base import FairDialect


class PostgreSQLFair(FairDialect):
    """The first due jobs of groups are read by lateral joins, each with its own limit."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    # The operators of the index, which compare bytes in a database of any collation.
    after, before, ordered = "{} ~>~ {}", "{} ~<~ {}", "{} USING ~<~"

    def claim_by_turns(self, claim: ClaimText, *, weighted: bool) -> Executable:
        return kept(
            f"{self.turns(claim, weighted=weighted)} UPDATE {claim.jobs} SET {claim.set()}"
            f" WHERE jobs.id = ANY(ARRAY(SELECT candidate.id FROM candidate)) AND {self.allowed(claim)}"
            f" RETURNING {columns_of('jobs')}",
            *COLUMNS,
        )

    def is_refused(self, group: str) -> str:
        return f"{group} IN (SELECT jsonb_array_elements_text(CAST(:refused AS JSONB)))"

    def weight(self, group: str) -> str:
        return f"coalesce(CAST(CAST(:weights AS JSONB) ->> {group} AS INTEGER), 1)"

    def first(self, claim: ClaimText, place: int, visits: str, extra: str, weight: str) -> str:
        head = (
            f"SELECT head.id, head.available_at FROM {claim.table} AS head WHERE {self.due(claim, 'head', place, 'visit.k')}"
            " ORDER BY head.available_at, head.id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        return (
            f"turn_{place} (id, k, place, nth, available_at, weight, extra) AS MATERIALIZED"
            f" (SELECT first.id, visit.k, visit.step, CAST(1 AS BIGINT), first.available_at, {weight}, {extra}"
            f" FROM ({visits}) AS visit CROSS JOIN LATERAL ({head}) AS first LIMIT :limit)"
        )

    def more(self, claim: ClaimText, place: int) -> str:
        further = (
            f"SELECT further.id, further.available_at FROM {claim.table} AS further WHERE {self.due(claim, 'further', place, 'turn.k')}"
            " AND (further.available_at, further.id) > (turn.available_at, turn.id) ORDER BY further.available_at, further.id"
            f" LIMIT greatest((SELECT each FROM round_{place}) * turn.weight + turn.extra - 1, 0) FOR UPDATE SKIP LOCKED"
        )
        return (
            f"more_{place} AS (SELECT others.id, turn.place,"
            " 1 + row_number() OVER (PARTITION BY turn.place ORDER BY others.available_at, others.id) AS nth"
            f" FROM turn_{place} AS turn CROSS JOIN LATERAL ({further}) AS others)"
        )
