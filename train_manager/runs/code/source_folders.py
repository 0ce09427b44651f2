"""Where the source of an installed package lies, if it is installed such that edits count at once."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from train_manager.telling.errors import InputError

_CURE: Final = 'give names of packages, or folders: others=["my_package", Path("../library")]'


def source_folders(others: Iterable[str | os.PathLike[str]], *, asked_by: str = "") -> dict[str, Path]:
    """Return the folder of each package or path, by the name to show.

    Args:
        others: names of packages, as they are installed or imported, or paths of folders.
        asked_by: whose argument it is, for the error.

    Raises:
        InputError: there is not such a package or folder.
    """
    found = {}
    for other in others:
        folder = _folder(other)
        if folder is None:
            raise InputError(
                f"others has {os.fspath(other)!r:.60}, which is neither a folder nor an installed package",
                name="others",
                asked_by=asked_by,
                cure=_CURE,
            )
        found[os.fspath(other)] = folder
    return found


def _folder(other: str | os.PathLike[str]) -> Path | None:
    is_name = isinstance(other, str) and os.sep not in other
    path = Path(other).expanduser()
    # A name is looked up as a package first, then as a folder in the working folder.
    found = (_editable_folder(str(other)) or _module_folder(str(other))) if is_name else None
    return found or (path.absolute() if path.is_dir() else None)


def _editable_folder(name: str) -> Path | None:
    """Return the folder that pip has noted for an editable package."""
    try:
        # PEP 610: an installer notes in direct_url.json where a package came from.
        noted = importlib.metadata.distribution(name).read_text("direct_url.json")
        address = urlparse(str(json.loads(noted or "{}").get("url", "")))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    path = Path(unquote(address.path))
    return path if address.scheme == "file" and path.is_dir() else None


def _module_folder(name: str) -> Path | None:
    """Return the folder of a module, without an import of it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    places = [] if spec is None else [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    folders = (Path(place) if os.path.isdir(place) else Path(place).parent for place in places if os.path.exists(place))
    return next((folder.resolve() for folder in folders), None)
