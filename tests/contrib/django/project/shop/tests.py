"""Tests as an application has them, for Django's test runner."""

from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from .models import Order
from .tasks import add, buy


class InTransaction(TestCase):
    def test_a_task_is_enqueued_and_read_in_the_transaction_of_the_test(self):
        result = add.enqueue(1, 2)
        assert add.get_result(result.id) == result

    def test_a_task_of_another_test_is_gone(self):
        Order.objects.create(name="book")
        add.enqueue(1, 2)
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM jobs")
            assert cursor.fetchone() == (1,)

    def test_hooks_after_the_commit_are_captured(self):
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: add.enqueue(1, 2))


class WithWorker(TransactionTestCase):
    def test_a_worker_runs_in_the_test(self):
        result = buy.enqueue("book")
        call_command("queue_worker", until_empty=True, queue=["default"], verbosity=0)
        result.refresh()
        assert result.status == "SUCCESSFUL"
        assert Order.objects.count() == 1
