"""Builds the same bytes from the same commit, on any day and in any folder; all else stands in setup.cfg.

An archive has more than what its files hold: times, owners, modes, and its own time. The time is that of the last
commit; in an unpacked sdist that of its files, which is the same one.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent


def time_of_commit() -> int:
    """Return the seconds since 1970 at the last commit; or of the files, if there is no repository."""
    if (ROOT / ".git").exists():
        try:
            return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(f"the archives get the times of the files, as git does not answer: {error}", file=sys.stderr)
    return int(max(path.stat().st_mtime for path in (ROOT / "setup.py", ROOT / "PKG-INFO") if path.exists()))


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member of an archive with the time of the commit, without an owner, and with usual modes."""
    member.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = usual_mode(member.mode, is_folder=member.isdir())
    return member


def usual_mode(mode: int, *, is_folder: bool) -> int:
    """Return what a checkout with the usual umask has: readable for all, executable as it is for the owner."""
    return 0o755 if is_folder or mode & 0o100 else 0o644


class SameSdist(sdist):
    """An archive without the time at which it was made."""

    def make_archive(self, base_name: Any, format: Any, *args: Any, base_dir: Any = None, **kwargs: Any) -> str:
        if format != "gztar":
            return str(super().make_archive(base_name, format, *args, base_dir=base_dir, **kwargs))
        path = f"{base_name}.tar.gz"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, int(os.environ["SOURCE_DATE_EPOCH"])) as zipped:
            with tarfile.open(mode="w", fileobj=zipped, format=tarfile.PAX_FORMAT) as archive:
                archive.add(base_dir, filter=without_owner)  # in the order of names
        return path


class SameWheel(bdist_wheel):
    """A wheel in which modes do not tell of the umask; times come from SOURCE_DATE_EPOCH."""

    def write_wheelfile(self, *args: Any, **kwargs: Any) -> None:
        super().write_wheelfile(*args, **kwargs)  # the last file before all of them are put together
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(usual_mode(path.stat().st_mode, is_folder=path.is_dir()))


os.environ.setdefault("SOURCE_DATE_EPOCH", str(time_of_commit()))
setup(cmdclass={"sdist": SameSdist, "bdist_wheel": SameWheel})
