"""A name that the suite imports; the tests of its admin page do not run."""


class DBTaskResultAdmin:
    """None."""
