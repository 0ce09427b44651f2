#!/usr/bin/env python3
"""Build the sdist and the wheel twice, in two places that differ, and compare the bytes: ``.ci/build_twice.py FOLDER``.

Both are built from the files that git knows, as they are here. The places differ in their path, in the times and modes
of the files, in the order in which they were written, in umask, time zone, language and hash seed. What was built is in
FOLDER, with its SHA-256 on the screen; if the bytes differ, so is what differs, and the exit code is 1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Place:
    """Where and how the package is built."""

    folder: str
    umask: int
    time: int
    backwards: bool
    variables: dict[str, str]


PLACES = (
    Place("one", 0o022, 1_000_000_000, False, {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    Place("another/place", 0o077, 1_700_000_000, True, {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8"}),
)


def known_files() -> list[Path]:
    """Return the files that git knows, and those that it would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = os.fsdecode(subprocess.check_output(command, cwd=ROOT)).split("\0")
    return [Path(name) for name in sorted({*names} - {""}) if (ROOT / name).is_symlink() or (ROOT / name).exists()]


def copy(place: Place, to: Path) -> None:
    """Make a clone, which has the time of the commit, with the files as they are here."""
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(to)], check=True)
    files = known_files()
    for file in reversed(files) if place.backwards else files:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, to / file, follow_symlinks=False)
        if not (to / file).is_symlink():
            is_program = (ROOT / file).stat().st_mode & 0o100
            (to / file).chmod((0o777 if is_program else 0o666) & ~place.umask)
            os.utime(to / file, (place.time, place.time))


def build(place: Place, within: Path) -> dict[str, Path]:
    """Return the files that are built in a place, by name."""
    before = os.umask(place.umask)
    try:
        copy(place, within / place.folder)
        environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        command = [sys.executable, "-m", "build", "--no-isolation", "."]
        done = subprocess.run(
            command,
            cwd=within / place.folder,
            env={**environment, **place.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    finally:
        os.umask(before)
    if done.returncode:
        sys.exit(done.stdout.decode(errors="replace") + "the build has failed")
    return {path.name: path for path in sorted((within / place.folder / "dist").iterdir())}


def members(path: Path) -> dict[str, object]:
    """Return what an archive tells of each of its files, by name."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {one.filename: (one.date_time, oct(one.external_attr), one.CRC) for one in wheel.infolist()}
    with tarfile.open(path) as sdist:
        return {one.name: (one.mtime, one.uid, one.uname, oct(one.mode), one.size, one.chksum) for one in sdist}


def differences(first: Path, second: Path) -> list[str]:
    """Return in which files two archives differ, and how."""
    here, there = members(first), members(second)
    if here == there:
        return ["the same files in another order or other bytes around them"]
    return [
        f"{name}: {here.get(name)} and {there.get(name)}"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as within:
        first, second = (build(place, Path(within)) for place in PLACES)
        assert [*first] == [*second], [*first, *second]
        same = True
        for name, path in first.items():
            if sha256(path) != sha256(second[name]):
                same = False
                print(f"{name} was built twice, to other bytes:", *differences(path, second[name])[:20], sep="\n  ")
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in first.items():
            shutil.copyfile(path, folder / name)
            print(sha256(path), name)
    return 0 if same else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
