"""The order of hooks ``post_run`` around the end of the store."""

from typing import Final

STORE_CLOSES: Final = 1_000_000
"""The priority of the hook that closes the store: other hooks may write before it."""
AFTER_STORE: Final = 2 * STORE_CLOSES
"""The priority of a hook that reads the whole file, as a report does: ``@priority(AFTER_STORE)``."""
