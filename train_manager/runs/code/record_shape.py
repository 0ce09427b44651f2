"""What a code record must have at each place, so that a damaged or a foreign one is refused before anything is done."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def damage_in(record: Mapping[str, Any]) -> str | None:
    """Return the first place of a record that does not have what belongs there, or None.

    >>> damage_in({"reason": None, "repositories": [{"path": 5}]})
    'repositories[0].path'
    """
    return next(_damages(record), None)


def _damages(record: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong(record, "", {"reason": _is_text_or_none, "repositories": _is_list})
    for number, repository in enumerate(_list(record.get("repositories"))):
        where = f"repositories[{number}]."
        yield from _wrong(repository, where, {**_REPOSITORY, **_OF_VERSION[record.get("version", 2)]})
        for place, file in enumerate(_list(repository.get("files"))):
            yield from _wrong(file, f"{where}files[{place}].", _FILE)
            if file["how"] == "left out":
                yield from _wrong(file, f"{where}files[{place}].", {"why": _is_text})


def _wrong(item: Any, where: str, expected: Mapping[str, Callable[[Any], bool]]) -> Iterator[str]:
    if not isinstance(item, dict):
        yield where.removesuffix(".")
        return
    yield from (f"{where}{name}" for name, fits in expected.items() if name not in item or not fits(item[name]))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_text(value: Any) -> bool:
    """Whether it may be a name: a zero or half a character that no system has would be an error later on."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_text_or_none(value: Any) -> bool:
    return value is None or _is_text(value)


def _is_commit(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _COMMIT.fullmatch(value) is not None)


def _is_path(value: Any) -> bool:
    return _is_text(value) and os.path.basename(value.rstrip("/")) not in (".", "..")


def _is_content(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and _is_text(value.get("sha256")) and type(value.get("size")) is int


def _are_remotes(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, [*value, *value.values()]))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_REPOSITORY: Final = {
    "path": _is_path,
    "inside": _is_text_or_none,
    "commit": _is_commit,
    "branch": _is_text_or_none,
    "remotes": _are_remotes,
    "files": _is_list,
    "lfs": _are_names,
}
_OF_VERSION: Final = {
    1: {"payload": _is_text_or_none, "patch": _is_content},
    2: {"diff": _is_text_or_none, "not_checked_out": _is_content},
}
_FILE: Final = {**dict.fromkeys(("path", "how", "sha256", "mode"), _is_text), "size": lambda value: type(value) is int}
