"""Measurements that need more than the package: other queues, beside ours."""
