"""Threads together: group commit, counts, and the waits between tries."""
