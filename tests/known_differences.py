"""The only reasons for which a test may be skipped: name → (databases, why)."""

DIFFERENCES: dict[str, tuple[frozenset[str], str]] = {
    "one writer": (
        frozenset({"sqlite"}),
        "one connection holds the whole file while it writes, so two claims cannot be under way at once",
    ),
    "no SKIP LOCKED": (frozenset({"sqlite"}), "there are no row locks to step over; the strategy is refused at open"),
    "one statement claims": (
        frozenset({"sqlite", "postgresql"}),
        "the claim looks and takes in one statement, so nothing can happen in between",
    ),
    "one snapshot": (
        frozenset({"sqlite"}),
        "a transaction that has read an old snapshot cannot write at all; the others keep out while one writes",
    ),
    "taken out in two steps": (
        frozenset({"sqlite", "mysql", "mariadb"}),
        "a claim updates the rows and deletes them in the same transaction",
    ),
    "no server": (frozenset({"sqlite"}), "there is no server process to kill, stop or refuse a login"),
}
