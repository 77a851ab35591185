"""The tables of the queue, and the permissions of its page in the admin."""

from typing import Any, ClassVar

from django.db import migrations, models

from queue_db.contrib.django.operations import MigrateQueue


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    # The library's migrations commit by themselves.
    atomic = False
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        MigrateQueue("base", "0018"),
        migrations.CreateModel(
            name="TaskQueue",
            fields=[("name", models.CharField(max_length=100, primary_key=True, serialize=False))],
            options={
                "verbose_name": "task queue",
                "verbose_name_plural": "task queues",
                "managed": False,
                "base_manager_name": "objects",
                "default_permissions": ("view", "change"),
            },
        ),
    ]
