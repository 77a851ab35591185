"""A project of Django whose database is that of the variable QUEUE_DB_TEST_DJANGO_URL."""

import importlib.util
import os
import sys
from typing import Any

from sqlalchemy import make_url

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}

if os.environ.get("QUEUE_DB_TEST_DJANGO_DRIVER") == "psycopg2":  # Django takes psycopg where it can be imported
    sys.modules["psycopg"] = None  # type: ignore[assignment]

if "MySQLdb" not in sys.modules:
    import pymysql

    pymysql.install_as_MySQLdb()


def database(text: str) -> dict[str, Any]:
    """The settings of the database with this URL."""
    url = make_url(text)
    return {
        "ENGINE": f"django.db.backends.{ENGINES[url.get_backend_name()]}",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
        "OPTIONS": {"timeout": 20} if url.get_backend_name() == "sqlite" else {},
        "TEST": {"NAME": os.environ.get("QUEUE_DB_TEST_DJANGO_NAME") or None},
    }


SECRET_KEY = "of tests"
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "tests.contrib.django.project.urls"
DATABASES = {"default": database(os.environ.get("QUEUE_DB_TEST_DJANGO_URL", "sqlite:///nowhere.db"))}
BACKPORT = [] if importlib.util.find_spec("django.tasks") else ["django_tasks"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    *BACKPORT,
    "queue_db.contrib.django",
    "tests.contrib.django.project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
TASKS: dict[str, Any] = {
    "default": {"BACKEND": "queue_db.contrib.django.QueueBackend", "QUEUES": [], "OPTIONS": {"worker": {"poll": 0.05}}}
}
