"""The command line, as ``python -m train_manager``."""

import sys

from train_manager.cli import main

if __name__ == "__main__":
    sys.exit(main())
