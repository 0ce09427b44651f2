"""Which packages are installed, by their metadata: nothing is imported, and nothing is run."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit


def packages() -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of all packages by name, and the folders of those that are installed in editable form.

    The first on the search path counts, as for ``import``. Names are as the Python Packaging Authority normalizes them.
    """
    return _packages(tuple(_stamped(sys.path)))


@functools.lru_cache(maxsize=1)  # the files are read once, unless something is installed meanwhile
def _packages(search_path: tuple[tuple[str, float], ...]) -> tuple[dict[str, str], dict[str, str]]:
    versions: dict[str, str] = {}
    editable: dict[str, str] = {}
    for found in importlib.metadata.distributions(path=[folder for folder, _ in search_path]):
        try:
            name, version = _name_and_version(found)
            folder = _editable_folder(found.read_text("direct_url.json"))
        except Exception:  # of one that is half installed: pip passes over it too
            continue
        if name and name not in versions:
            versions[name] = version
            if folder is not None:
                editable[name] = folder
    return dict(sorted(versions.items())), editable


def _stamped(folders: list[str]) -> Iterator[tuple[str, float]]:
    for folder in folders:
        try:
            yield folder, os.stat(folder or ".").st_mtime
        except OSError:
            continue


def _name_and_version(found: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return them from the head of the metadata, whose rest may be a page long: ``found.metadata`` parses all of it."""
    head = (found.read_text("METADATA") or found.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(re.findall(r"(?m)^(Name|Version):[ \t]*(\S+)", head))
    return re.sub(r"[-_.]+", "-", fields.get("Name", "")).lower(), fields.get("Version", "")


def _editable_folder(direct_url: str | None) -> str | None:
    told: Any = json.loads(direct_url) if direct_url else {}
    if not told.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(told["url"]).path)
