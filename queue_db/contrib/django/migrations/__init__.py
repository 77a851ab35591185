"""Django's migrations of the app: each brings the queue's tables to a revision of the library."""
