"""Settings of worker processes: the test database is theirs."""

from .settings import *  # noqa: F403

DATABASES["default"]["NAME"] = DATABASES["default"]["TEST"]["NAME"]  # noqa: F405
