import os
import time
from contextlib import suppress
from pathlib import Path

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django.db import connection, transaction

from queue_db.contrib.django import options

from .models import Order


@task
def add(a, b):
    return a + b


@task
async def add_later(a, b):
    return a + b


@task(takes_context=True)
def look(context, word):
    return [context.task_result.id, context.attempt, context.task_result.worker_ids, word]


@task
def explode():
    raise ValueError("kapow")


@task
@options(max_attempts=2, backoff=lambda attempt: 0.01)
def open_file_without_text():
    raise ValueError("no file name \udcff")


@task
@options(max_attempts=3, backoff=lambda attempt: 0.01)
def explode_twice(file):
    tries = len(Path(file).read_text()) if Path(file).exists() else 0
    Path(file).write_text("x" * (tries + 1))
    if tries < 2:
        raise ValueError(f"kapow {tries}")
    return "at last"


@task
def leave():
    raise SystemExit(3)


@task
def unfit():
    return object()


@task
def note(file, word):
    with Path(file).open("a") as to:
        to.write(f"{word}\n")


@task
@options(atomic=True)
def buy(name):
    Order.objects.create(name=name)


@task
@options(atomic=True)
def buy_and_regret(name):
    buy.using(queue_name=name).enqueue(f"{name} later")
    Order.objects.create(name=name)
    with suppress(ZeroDivisionError), transaction.atomic():
        Order.objects.create(name=f"{name} regretted")
        buy.using(queue_name=name).enqueue(f"{name} regretted")
        raise ZeroDivisionError
    return "kept"


@task(takes_context=True)
@options(atomic=True)
def buy_and_hang(context, name, file):
    """The first attempt writes and stays."""
    Order.objects.create(name=name)
    Path(file).write_text("written")
    while context.attempt == 1:
        time.sleep(0.01)


@task
@options(atomic=True, max_attempts=2, backoff=lambda attempt: 0.01)
def adopt(parent):
    """Its COMMIT fails if there is no such parent."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop_children VALUES (%s)", [parent])


@task(takes_context=True)
def hang(context, file, seconds):
    """Say that it runs, and stay; the attempt after a crash returns at once."""
    with Path(file).open("a") as to:
        to.write(f"{os.getpid()}\n")
    until = time.monotonic() + (seconds if context.attempt == 1 else 0)
    while time.monotonic() < until:
        time.sleep(0.01)
    return context.attempt
