"""``python -m queue_db`` is the command ``queue-db``."""

from queue_db.cli import main

if __name__ == "__main__":
    main()
