"""Limits of a queue for all workers together: how many jobs run at once, and how many begin in a time."""
