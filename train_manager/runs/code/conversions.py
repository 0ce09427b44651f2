"""Files that git calls unchanged although their bytes differ from the commit.

Line ends, keywords, encodings and filters make other bytes of a file when it is checked out. Where such conversions
may apply, times and sizes prove nothing: a file is doubtful if its size differs from its blob's, and every file is
doubtful if some conversion can keep the size. Files of LFS are recognised by the pointers that the commit has of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from train_manager.runs.code.changes import Changes, Committed
from train_manager.runs.code.clean_room import AS_THEY_ARE, CleanRoom, read_small
from train_manager.runs.code.lfs import SIZES, read_pointer
from train_manager.runs.code.reading import size_now

# A line of `git ls-tree -r -l -z`: mode, blob, size and name.
_TREE: Final = re.compile(rb"(\d+) blob ([0-9a-f]+) +(\d+|-)\t([^\0]*)\0")
# Names of filters such as git-crypt and sops: their files are plain text here and encrypted in the repository.
_ENCRYPTS: Final = re.compile(r"crypt|secret|sops|vault|\bage\b|gpg", re.IGNORECASE)


def find_converted(room: CleanRoom, changes: Changes) -> None:
    """Add the files to ``changes`` that git calls unchanged although their bytes may differ."""
    texts = b"\n".join(_attributes(room, changes))
    # No attributes and no conversion of line ends: the usual case, which needs neither `ls-tree` nor a filter.
    if not texts.strip() and room.repository.setting("core.autocrlf").lower() in ("", "false", "no", "off", "0"):
        return
    named = {file.path for file in [*changes.doubtful, *changes.gone]} | {*changes.not_checked_out}
    blobs = {file.path: (file, size) for file, size in _commit(room)}
    filters = _filters(room, [*blobs, *changes.new]) if b"filter" in texts else {}
    changes.encrypted = {path: name for path, name in filters.items() if _ENCRYPTS.search(name)}
    _find_pointers(room, changes, [blobs[path] for path, name in filters.items() if name == "lfs" and path in blobs])
    # An `$Id: ...$` that is expanded again and an encoding of one byte can replace bytes by as many others.
    may_keep_sizes = b"ident" in texts or b"encoding" in texts or {*filters.values()} - {"lfs"}
    for path, (file, size) in blobs.items():
        present = size_now(os.fspath(room.repository.root), path)
        if path in named:
            continue
        if path in changes.pointers and present == changes.pointers[path][1]:
            # Git calls the file unchanged since LFS wrote it, and its size fits: gigabytes need not be read.
            changes.lfs.append(path)
        elif present != size or may_keep_sizes:
            changes.doubtful.append(file)


def _attributes(room: CleanRoom, changes: Changes) -> Iterator[bytes]:
    # The places where git looks for attributes, in gitattributes(5).
    user = room.repository
    home = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))
    own = user.setting("core.attributesfile")
    yield read_small(user.common_folder / "info" / "attributes")
    yield read_small(Path(os.path.expanduser(own)) if own else home / "git" / "attributes")
    yield read_small(Path("/etc/gitattributes"))
    yield read_small(user.root / ".gitattributes")
    for path in [*changes.attribute_files, *changes.new]:
        if path.endswith(".gitattributes"):
            yield read_small(user.root / path)
    if any(file.path.endswith(".gitattributes") for file in [*changes.doubtful, *changes.gone]):
        # The attributes have changed since the files were checked out: a conversion of every file is possible.
        yield b"* text"


def _commit(room: CleanRoom) -> Iterator[tuple[Committed, int]]:
    if room.repository.commit is None:
        return
    output = room.git.run("ls-tree", "-r", "-l", "-z", "--full-tree", room.repository.commit)
    for mode, blob, size, name in _TREE.findall(output):
        # A blob that is missing (a partial clone) has no size.
        yield Committed(os.fsdecode(name), mode.decode(), blob.decode()), int(size) if size.isdigit() else -1


def _filters(room: CleanRoom, paths: list[str]) -> dict[str, str]:
    """Return the filter of each file that has one."""
    # `git check-attr` must see the user's attributes, which AS_THEY_ARE hides from every other command.
    attributes = room.folder / "info" / "attributes"
    attributes.write_bytes(read_small(room.repository.common_folder / "info" / "attributes"))
    try:
        feed = b"".join(os.fsencode(path) + b"\0" for path in paths)
        answers = [*map(os.fsdecode, room.git.run("check-attr", "-z", "--stdin", "filter", feed=feed).split(b"\0"))]
    finally:
        attributes.write_bytes(AS_THEY_ARE)
    found = zip(answers[0::3], answers[2::3], strict=False)  # triples of path, "filter" and its value
    return {path: name for path, name in found if name not in ("unspecified", "unset")}


def _find_pointers(room: CleanRoom, changes: Changes, files: list[tuple[Committed, int]]) -> None:
    # Only blobs as small as a pointer are read.
    small = [file for file, size in files if size in SIZES]
    if not small:
        return
    contents = room.contents([file.blob for file in small])
    for file in small:
        if pointer := read_pointer(contents.get(file.blob, b"")):
            changes.pointers[file.path] = pointer
