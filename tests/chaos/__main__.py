import sys

from tests.chaos.command import main

if __name__ == "__main__":
    sys.exit(main())
