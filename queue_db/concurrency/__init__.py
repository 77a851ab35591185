"""Tools for threads and tasks: group commit, caches, counts, pauses, greenlets, and new locks after a fork."""
