"""An archive of files: the same files give the same bytes, and nothing that is taken out leads out of its folder.

A tar of its own kind: plain files and links only, sorted by name, without times and owners. It is read here by the
same rules, file by file, and never by ``extractall``.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

LINK: Final = "120000"
PROGRAM: Final = "100755"
FILE: Final = "100644"


@final
@dataclass(frozen=True)
class ArchivedFile:
    """A file, or a link whose content is its target."""

    path: str
    mode: str
    content: bytes

    @property
    def is_link(self) -> bool:
        """Whether it is a link."""
        return self.mode == LINK


def write_archive(path: Path, files: Iterable[ArchivedFile]) -> None:
    """Write files into a new archive, in the order of their names.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "files.tar"
    >>> write_archive(path, [ArchivedFile("notes.txt", FILE, b"warm up longer")])
    >>> [file.content for file in read_archive(path)]
    [b'warm up longer']
    """
    # The format of GNU: names of any length and any bytes, without headers that depend on the Python.
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as archive:
        for file in files:
            archive.addfile(_header(file), None if file.is_link else io.BytesIO(file.content))


def read_archive(path: Path) -> Iterator[ArchivedFile]:
    """Yield the files and links of an archive; whatever else is in it is passed over."""
    with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            if member.issym():
                yield ArchivedFile(member.name, LINK, os.fsencode(member.linkname))
            # A sparse one may be of any length, whatever the length of the archive.
            elif member.isreg() and not member.issparse() and (file := archive.extractfile(member)) is not None:
                mode = PROGRAM if member.mode & stat.S_IXUSR else FILE
                yield ArchivedFile(member.name, mode, file.read())


def put_file(root: Path, file: ArchivedFile) -> str | None:
    """Write a file or a link below a folder, in place of what is there; return why that is impossible, or None.

    It is never written through a link: a folder on its way that is a link is a reason. Where a link itself points to
    is not judged: data often lies elsewhere.
    """
    if reason := reason_against(file.path):
        return reason
    place = root
    for part in file.path.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            return f"{place.relative_to(root)} is a link, and nothing is written through links"
        try:
            place.mkdir(exist_ok=True)
        except FileExistsError:
            return f"{place.relative_to(root)} is a file where a folder is needed"
    return _write(root / file.path, file)


def reason_against(path: str) -> str | None:
    """Return why a name may not be written below a folder, or None if it may.

    >>> reason_against("../elsewhere")
    'its name leads out of the folder'
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "its name leads out of the folder"
    if any(part.casefold().rstrip(". ") == ".git" for part in parts):
        return "its name leads into a git folder"
    return None


def _write(place: Path, file: ArchivedFile) -> str | None:
    if place.is_dir() and not place.is_symlink():
        with contextlib.suppress(OSError):
            place.rmdir()
        if place.is_dir():
            return "a folder is in its place"
    place.unlink(missing_ok=True)
    if file.is_link:
        os.symlink(os.fsdecode(file.content), place)
        return None
    mode = 0o777 if file.mode == PROGRAM else 0o666  # less what the user's umask takes away, as git does it
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode)
    with open(descriptor, "wb") as opened:
        opened.write(file.content)
    return None


def _header(file: ArchivedFile) -> tarfile.TarInfo:
    header = tarfile.TarInfo(file.path)
    header.mode = 0o755 if file.mode == PROGRAM else 0o644
    if file.is_link:
        header.type = tarfile.SYMTYPE
        header.linkname = os.fsdecode(file.content)
    else:
        header.size = len(file.content)
    return header
