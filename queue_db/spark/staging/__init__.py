"""Loads of jobs and messages: tasks stage their rows, and one transaction publishes all of them or none, once."""
