"""A provider for Apache Airflow 3.3 and later: assets that watch feeds, tasks that enqueue jobs and wait for them.

Airflow finds it by the entry point ``apache_airflow_provider``. This package itself imports nothing of Airflow.
"""
