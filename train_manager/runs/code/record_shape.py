"""What a code record has at each place, so that a damaged or a foreign one is refused before anything is done."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from train_manager.files.json_shape import LIST, NAME, NAMES, NUMBER, OBJECT, OBJECT_OF_NAMES, Kind, Shape

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def _is_path(value: Any) -> bool:
    return NAME.fits(value) and os.path.basename(value.rstrip("/")) not in (".", "..")


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and NAME.fits(value.get("sha256")) and NUMBER.fits(value.get("size"))


RECORD: Final[Shape] = {
    "reason": NAME,
    "notebook": OBJECT,
    "repositories": LIST.required,
    "repositories[]": OBJECT.required,
    "repositories[].path": Kind("a path", _is_path).required,
    "repositories[].commit": Kind(
        "a commit", lambda value: isinstance(value, str) and _COMMIT.fullmatch(value) is not None
    ),
    **dict.fromkeys((f"repositories[].{name}" for name in ("inside", "branch", "package", "diff", "payload")), NAME),
    **dict.fromkeys(("repositories[].patch", "repositories[].not_checked_out"), Kind("size and SHA-256", _is_content)),
    "repositories[].remotes": OBJECT_OF_NAMES.required,
    "repositories[].lfs": NAMES.required,
    "repositories[].state": LIST,
    "repositories[].files": LIST.required,
    "repositories[].files[]": OBJECT.required,
    **dict.fromkeys((f"repositories[].files[].{name}" for name in ("path", "how", "sha256", "mode")), NAME.required),
    "repositories[].files[].why": NAME,
    "repositories[].files[].size": NUMBER.required,
}
