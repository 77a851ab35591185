"""The tasks that the suite enqueues; its package does not have them."""

import time

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def noop_task(*args, **kwargs):
    return None


@task
async def noop_task_async(*args, **kwargs):
    return None


@task
def calculate_meaning_of_life():
    return 42


@task
def failing_task_value_error():
    raise ValueError("This task failed due to ValueError")


@task
def failing_task_system_exit():
    raise SystemExit("This task failed due to SystemExit")


@task
def failing_task_keyboard_interrupt():
    raise KeyboardInterrupt("This task failed due to KeyboardInterrupt")


@task
def complex_exception():
    raise ValueError(ValueError("This task failed"))


@task
def complex_return_value():
    return lambda: True


@task
def exit_task():
    raise SystemExit(1)


@task
def hang():
    while True:
        time.sleep(0.1)


@task
def sleep_for(seconds):
    time.sleep(seconds)


@task(takes_context=True)
def get_task_id(context):
    return context.task_result.id


@task(takes_context=True)
def test_context(context, attempt):
    assert context.attempt == attempt
    assert context.task_result.worker_ids
