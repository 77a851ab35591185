from django.db import models


class Order(models.Model):
    """What an application has beside the queue."""

    name = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"

    def __str__(self) -> str:
        return self.name
