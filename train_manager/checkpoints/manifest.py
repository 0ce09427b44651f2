"""The manifest of a checkpoint: which files belong to it, how large they are, and their SHA-256.

It is written last and has a SHA-256 of itself, so that a folder with a sound manifest is a whole checkpoint.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from train_manager._version import __version__
from train_manager.checkpoints.state_tree import join, split
from train_manager.files.json_text import json_of
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level

FORMAT: Final = 2  # of the whole checkpoint; raised if another version could not read it
MANIFEST: Final = "manifest.json"
MODEL: Final = "model.safetensors"
TENSORS: Final = "state.safetensors"
TREE: Final = "state.json"
FILES: Final = (MODEL, TREE, TENSORS)  # in the order in which they are written
OWN: Final = ("format", "files", "sha256")  # entries that no fact of a user may replace
LARGEST: Final = 16_000_000  # bytes of a manifest that are read
# A fact of another type would raise in a reader that has already accepted the hash.
KINDS: Final = {
    "versions": (dict,),
    "threads": (int,),
    "time": (str,),
    "metrics": (dict, type(None)),
    "monitored": (float, int, type(None)),
    "mode": (str, type(None)),
    "rows": (dict, type(None)),
    "base": (dict, type(None)),
}
"""The types of the facts that readers of a manifest rely on."""


def environment() -> dict[str, Any]:
    """Return the facts, beside the state, on which bit-identity of a resumed training depends."""
    # Imported only where a manifest is written: the command line reads manifests without a second for torch.
    import torch

    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "train_manager": __version__,
        },
        # The number of threads changes the order of sums on a CPU, and with it the last bits.
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
    }


def differences_from_here(manifest: Mapping[str, Any]) -> list[str]:
    """Return the facts that end bit-identity here: another version of torch, number of threads or device."""
    then, now = manifest, environment()
    found = {
        "torch": (then["versions"].get("torch"), now["versions"]["torch"]),
        "threads of torch": (then["threads"], now["threads"]),
        "device": (then.get("device"), now["device"]),
    }
    return [f"{what} {before} (here {here})" for what, (before, here) in found.items() if before != here]


def warn_of_differences(name: str, manifest: Mapping[str, Any], rows: Mapping[str, str]) -> None:
    """Warn if a training cannot resume bit for bit here, or if its data have other rows, but as many.

    Args:
        name: of the checkpoint.
        manifest: its manifest.
        rows: the digests of the rows of the training data here, by their places.
    """
    saved = manifest.get("rows") or {}
    other = [place.partition(" ")[0] for place, digest in rows.items() if saved.get(place, digest) != digest]
    texts = []
    if found := differences_from_here(manifest):
        what = f"{name} was written with {', '.join(found)}"
        texts.append(f"{what}: the training resumes, but not bit for bit as it would have")
    if other:
        what = f"{other[0]} has other rows than in the program that wrote {name}, and as many"
        texts.append(f"{what}: the training resumes on those of this program")
    for text in texts:
        warnings.warn(text, RuntimeWarning, stacklevel=users_level())


def run_of(checkpoint: Path) -> str | None:
    """Return the id of the run that has written a checkpoint; None if its manifest has none."""
    with suppress(OSError, ValueError):
        run = json.loads((checkpoint / MANIFEST).read_bytes()).get("run")
        return run if isinstance(run, str) else None
    return None


def render_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest file; the same manifest always gives the same bytes."""
    tree, tensors = split(dict(manifest))
    if tensors:
        raise CheckpointError(f"the facts of a checkpoint hold a tensor: {next(iter(tensors))}")
    # The hash of the manifest is of its own other entries, so it lies in the same file.
    digest = hashlib.sha256(json.dumps(tree).encode()).hexdigest()
    return json.dumps({**tree, "sha256": digest}, indent=1).encode() + b"\n"


def parse_manifest(content: bytes, label: str) -> dict[str, Any]:
    """Return a manifest, after checks of every entry that readers rely on.

    Args:
        content: the bytes of the file.
        label: the file's name in errors.
    """
    tree = json_of(content, label)
    if not isinstance(tree, dict) or type(tree.get("format")) is not int:
        raise CheckpointError(f"{label} is not a manifest of train_manager", name=label)
    # Before any other check: another format may have another form of everything else, and is not damaged.
    if tree["format"] != FORMAT:
        writer, cure = "a newer", "update train_manager"
        if tree["format"] < FORMAT:
            writer, cure = "an earlier", 'load it with that train_manager, or begin anew, with resume="fresh"'
        what = f"{label} was written by {writer} train_manager (format {tree['format']})"
        # With this cause `is_damage` answers False: the checkpoint stays for the other train_manager.
        cause = NotImplementedError(f"format {tree['format']}")
        raise CheckpointError(f"{what}; this one reads format {FORMAT}", name=label, cure=cure) from cause
    tree.pop("sha256", None)
    manifest: dict[str, Any] = join(tree, {}, label)
    # Rendered again, the manifest must have the same bytes: this checks its hash, and every byte beside it.
    if render_manifest(manifest) != content:
        raise CheckpointError(f"{label} is damaged: it has changed since it was written", name=label)
    # The hash only proves that the file is as it was written: somebody may have written it by hand.
    _require_files(manifest, label)
    for name, kinds in KINDS.items():
        if type(manifest.get(name)) not in kinds:
            raise CheckpointError(f"{label} is damaged: its {name} is {manifest.get(name)!r:.60}", name=label)
    return manifest


def _require_files(manifest: Mapping[str, Any], label: str) -> None:
    files = manifest.get("files")
    if not isinstance(files, dict) or type(manifest.get("step", 0)) is not int:
        raise CheckpointError(f"{label} is not a manifest of train_manager", name=label)
    # The names are known beforehand, so no name in a file ever becomes a path.
    if more := sorted({*files} - {*FILES}):
        raise CheckpointError(f"{label} must name {', '.join(FILES)}, but also names {more[0]!r:.100}", name=label)
    if missing := sorted({*FILES} - {*files}):
        raise CheckpointError(f"{label} does not name {missing[0]}", name=label)
    for name, entry in files.items():
        if not isinstance(entry, dict) or type(entry.get("size")) is not int or type(entry.get("sha256")) is not str:
            raise CheckpointError(f"{label} is damaged: the entry of {name} is invalid", name=label)
