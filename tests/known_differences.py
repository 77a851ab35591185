"""The only reasons for which a test may be skipped: name → (databases, why)."""

DIFFERENCES: dict[str, tuple[frozenset[str], str]] = {
    "one writer": (
        frozenset({"sqlite"}),
        "one connection locks the whole file while it writes, so two claims cannot run at once",
    ),
    "no SKIP LOCKED": (frozenset({"sqlite"}), "there are no row locks; the strategy is refused at open"),
    "one statement claims": (
        frozenset({"sqlite", "postgresql"}),
        "the claim reads and updates in one statement, so nothing can happen in between",
    ),
    "one snapshot": (
        frozenset({"sqlite"}),
        "a transaction that has read an old snapshot cannot write; while one writes, others cannot",
    ),
    "deleted in two steps": (
        frozenset({"sqlite", "mysql", "mariadb"}),
        "a claim updates the rows and deletes them in the same transaction",
    ),
    "mysqlclient shows no BEGIN": (
        frozenset({"mysql", "mariadb"}),
        "in autocommit mode this driver does not show the transaction that the application begins; using= refuses the connection",
    ),
    "no server": (frozenset({"sqlite"}), "there is no server process to kill, stop or refuse a login"),
    "no systemd": (
        frozenset({"sqlite", "postgresql", "mysql", "mariadb"}),
        "systemd-analyze is not on this machine; the test beside it starts the unit's command and stops it as systemd does",
    ),
    "no history": (
        frozenset({"sqlite", "postgresql", "mysql", "mariadb"}),
        "an sdist or a shallow clone does not have the code of the previous version",
    ),
}
