"""The exit codes of all commands."""

from __future__ import annotations

from typing import Final

ALL_IS_WELL: Final = 0
NOT_AS_IT_SHOULD_BE: Final = 1  # a file is damaged, or runs are not identical
CANNOT_BE_DONE: Final = 2  # also the code with which argparse refuses an option
