"""``python -m rtlab``: the command line."""

import sys

from rtlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
