"""Settings for the suite, with the database of the run."""

import importlib.util
import json
import os

import pymysql

pymysql.install_as_MySQLdb()

DATABASES = {"default": json.loads(os.environ["SUITE_DATABASE"])}
SECRET_KEY = "of tests"
USE_TZ = True
BACKPORT = [] if importlib.util.find_spec("django.tasks") else ["django_tasks"]
INSTALLED_APPS = [*BACKPORT, "django.contrib.auth", "django.contrib.contenttypes", "queue_db.contrib.django", "django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "queue-1"]}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
