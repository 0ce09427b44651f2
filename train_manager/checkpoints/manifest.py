"""The manifest of a checkpoint: which files belong to it, how large they are, and their SHA-256.

It is written last and has a SHA-256 of itself, so that a folder with a sound manifest is a whole checkpoint.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from train_manager._version import __version__
from train_manager.checkpoints.hashed_file import Unreadable
from train_manager.checkpoints.state_tree import join, split
from train_manager.files.strict_json import strict_json
from train_manager.telling.errors import CheckpointError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MODEL: Final = "model.safetensors"
TENSORS: Final = "state.safetensors"
TREE: Final = "state.json"
FILES: Final = (MODEL, TREE, TENSORS)
OWN: Final = ("format", "files", "sha256")
LARGEST: Final = 16_000_000  # bytes
KINDS: Final = {
    "versions": (dict,),
    "threads": (int,),
    "time": (str,),
    "metrics": (dict, type(None)),
    "monitored": (float, int, type(None)),
    "mode": (str, type(None)),
}
"""What those that read facts rely on."""


def environment() -> dict[str, Any]:
    """Return what bit-identity depends on, beside the state."""
    import torch  # which nothing else here needs: manifests are read without it

    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "train_manager": __version__,
        },
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
    }


def differences_from_here(manifest: Mapping[str, Any]) -> list[str]:
    """Return what bit-identity depends on and is different here: the version of torch, the threads, the device."""
    then, now = manifest, environment()
    found = {
        "torch": (then["versions"].get("torch"), now["versions"]["torch"]),
        "threads of torch": (then["threads"], now["threads"]),
        "device": (then.get("device"), now["device"]),
    }
    return [f"{what} {before} (here {here})" for what, (before, here) in found.items() if before != here]


def run_of(checkpoint: Path) -> str | None:
    """Return the run that has written a checkpoint; None if it is not one of this library's."""
    with suppress(OSError, ValueError):
        run = json.loads((checkpoint / MANIFEST).read_bytes()).get("run")
        return run if isinstance(run, str) else None
    return None


def rendered(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest file; the same manifest always gives the same bytes."""
    tree, tensors = split(dict(manifest))
    if tensors:
        raise CheckpointError(f"the facts of a checkpoint hold a tensor: {next(iter(tensors))}")
    digest = hashlib.sha256(json.dumps(tree).encode()).hexdigest()
    return json.dumps({**tree, "sha256": digest}, indent=1).encode() + b"\n"


def parsed(content: bytes, told: str) -> dict[str, Any]:
    """Return a manifest, after checks of all that reading relies on.

    Args:
        content: of the file.
        told: the file's name in errors.
    """
    tree = strict_json(content, told)
    if not isinstance(tree, dict) or type(tree.get("format")) is not int:
        raise CheckpointError(f"{told} is not a manifest of train_manager", name=told)
    if tree["format"] > FORMAT:
        raise Unreadable(
            f"{told} was written by a newer train_manager (format {tree['format']}); this one reads format {FORMAT}",
            name=told,
            cure="update train_manager",
        )
    tree.pop("sha256", None)
    manifest: dict[str, Any] = join(tree, {}, told)
    if rendered(manifest) != content:
        raise CheckpointError(f"{told} is damaged: it has changed since it was written", name=told)
    _require_files(manifest, told)
    for name, kinds in KINDS.items():
        if type(manifest.get(name)) not in kinds:
            raise CheckpointError(f"{told} is damaged: its {name} is {manifest.get(name)!r:.60}", name=told)
    return manifest


def _require_files(manifest: Mapping[str, Any], told: str) -> None:
    files = manifest.get("files")
    if manifest["format"] < 1 or not isinstance(files, dict) or type(manifest.get("step", 0)) is not int:
        raise CheckpointError(f"{told} is not a manifest of train_manager", name=told)
    # The names are known beforehand, so no name in a file ever becomes a path.
    if more := sorted({*files} - {*FILES}):
        raise CheckpointError(f"{told} must name {', '.join(FILES)}, but also names {more[0]!r:.100}", name=told)
    if missing := sorted({*FILES} - {*files}):
        raise CheckpointError(f"{told} does not name {missing[0]}", name=told)
    for name, entry in files.items():
        if not isinstance(entry, dict) or type(entry.get("size")) is not int or type(entry.get("sha256")) is not str:
            raise CheckpointError(f"{told} is damaged: the entry of {name} is invalid", name=told)
