"""Which packages are installed, by their metadata: nothing is imported, and nothing is run."""

from __future__ import annotations

import importlib.metadata
import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit


def packages() -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of all packages by name, and the folders of those that are installed in editable form.

    The first on the search path counts, as for ``import``. Names are as the Python Packaging Authority normalizes them.
    """
    versions: dict[str, str] = {}
    editable: dict[str, str] = {}
    for found in importlib.metadata.distributions():
        try:
            name, version = _name_and_version(found)
            folder = _editable_folder(found.read_text("direct_url.json"))
        except Exception:  # the metadata of a half installed package raises many errors; pip skips it too
            continue
        if name and name not in versions:
            versions[name] = version
            if folder is not None:
                editable[name] = folder
    return dict(sorted(versions.items())), editable


def _name_and_version(found: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return the name and the version of a distribution."""
    # Only the head of the metadata is read: `found.metadata` would parse the whole description, a page of text.
    head = (found.read_text("METADATA") or found.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(re.findall(r"(?m)^(Name|Version):[ \t]*(\S+)", head))
    return re.sub(r"[-_.]+", "-", fields.get("Name", "")).lower(), fields.get("Version", "")


def _editable_folder(direct_url: str | None) -> str | None:
    noted: Any = json.loads(direct_url) if direct_url else {}  # by pip, as PEP 610 says
    if not noted.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(noted["url"]).path)
