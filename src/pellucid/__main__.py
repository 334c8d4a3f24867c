"""`python -m pellucid` is the command `pellucid`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
