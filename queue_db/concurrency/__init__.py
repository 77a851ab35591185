"""What threads and tasks share: group commit, caches and counts; and the waits between retries and polls."""
