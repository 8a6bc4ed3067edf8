"""``python -m rtlab.cli``."""

import sys

from rtlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
