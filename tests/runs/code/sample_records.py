"""Code records that are made by hand of a real repository."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def git(folder: Path, *arguments: str) -> bytes:
    identity = ["-c", "user.name=Me", "-c", "user.email=me@example.com"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True).stdout


def committed(folder: Path, files: Mapping[str, bytes | str]) -> str:
    """Write files, commit them, and return the commit."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "work")
    return git(folder, "rev-parse", "HEAD").decode().strip()


def write(folder: Path, files: Mapping[str, bytes | str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def recorded(folder: Path, train_dir: Path, **more: Any) -> tuple[Path, dict[str, Any]]:
    """A code record of version 1: the changes of a working tree as a patch, its new files in an archive."""
    changed = git(folder, "diff-index", "--name-status", "--no-renames", "HEAD").decode().splitlines()
    new = git(folder, "ls-files", "--others", "--exclude-standard").decode().splitlines()
    payload = train_dir / "code" / "payload"
    payload.mkdir(parents=True, exist_ok=True)
    patch = git(folder, "diff-index", "-p", "--binary", "--full-index", "HEAD")
    (payload / "changes.patch").write_bytes(patch)
    with tarfile.open(payload / "files.tar", "w") as tar:
        for name in new:
            tar.add(folder / name, name)
    files = [entry(folder, line[2:], "deleted" if line[0] == "D" else "patch", "changed") for line in changed]
    files += [entry(folder, name, "archive", "new") for name in new]
    commit = git(folder, "rev-parse", "HEAD").decode().strip()
    repository = {"path": str(folder), "inside": None, "commit": commit, "branch": "main", "payload": "code/payload"}
    told = {"size": len(patch), "sha256": hashlib.sha256(patch).hexdigest()}
    more_of_it = {"patch": told, "remotes": {}, "lfs": []}
    record = {"schema": "train-manager/code", "version": 1, "reason": None}
    return train_dir, {**record, "repositories": [{**repository, **more_of_it, "files": files}], **more}


def entry(folder: Path, name: str, how: str, status: str) -> dict[str, Any]:
    content = (folder / name).read_bytes() if how != "deleted" else b""
    mode = "100755" if how != "deleted" and (folder / name).stat().st_mode & 0o100 else "100644"
    digest = hashlib.sha256(content).hexdigest()
    return {"path": name, "how": how, "status": status, "size": len(content), "sha256": digest, "mode": mode}
