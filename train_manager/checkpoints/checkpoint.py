"""One checkpoint: a folder that is there as a whole or not at all, and that is checked before anything is read.

    step-000000000123/
        model.safetensors    the model's tensors, by their names
        state.safetensors    all other tensors
        state.json           all else
        manifest.json        names, sizes and SHA-256 of the others; written last

It is written as ``.tmp-step-000000000123-<pid>`` in the same folder, and renamed when the disk has it. Nothing in it is
ever unpickled, imported or called.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from train_manager.checkpoints import manifest
from train_manager.checkpoints.checkpoint_names import order_of
from train_manager.checkpoints.hashed_file import HashedFile, is_full, opened, sync_folder, told
from train_manager.checkpoints.manifest import FILES, MANIFEST, MODEL, TENSORS, TREE
from train_manager.checkpoints.state_tree import join, split, tensor_names
from train_manager.checkpoints.tensor_file import read_tensors, size_of, write_tensors
from train_manager.checkpoints.verification import damaged, gone_or_damaged, verify
from train_manager.files.strict_json import strict_json
from train_manager.telling.errors import CheckpointError

PREFIX = "model."  # of the names of the model's tensors in the state
LARGEST_TREE = 1_000_000_000  # bytes of state.json
ROOM = 1_000_000  # bytes beside the tensors: headers, folders


def write_checkpoint(folder: Path, name: str, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint; when this returns, the disk has it.

    >>> from tempfile import mkdtemp
    >>> path = write_checkpoint(Path(mkdtemp()), "step-000000000003", {"counters": {"step": 3}}, {"run_id": "a"})
    >>> path.name, read_checkpoint(path), verify(path)["step"]
    ('step-000000000003', {'counters': {'step': 3}}, 3)

    Args:
        folder: in which it is made; made if it is missing.
        name: of the checkpoint. ``step-`` and at least twelve digits claim a step, which is then a fact too.
        state: parts by their names, such as ``model`` and ``optimizers``; see ``state_tree`` for what they may hold.
        facts: for the manifest: metrics, run id and the like.

    Returns:
        Where it is.

    Raises:
        CheckpointError: the state holds what a checkpoint cannot, the name is taken, the disk is full or fails. Then
            all is as it was before; only if the last sync fails, the new checkpoint is there.
    """
    final = Path(folder) / _plain(name)
    facts = _facts(name, facts)
    tree, model, tensors = _taken_apart(state)
    needed = size_of(model, shares=False) + size_of(tensors) + len(tree) + ROOM
    _make(final.parent)
    _require_free(final)
    temporary = final.parent / f".tmp-{name}-{os.getpid()}"
    try:
        _require_room(final.parent, needed)
        _write_files(temporary, tree, model, tensors, facts)
        _rename(temporary, final)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_full(error):
            raise _full(final.parent, needed) from error.__cause__
        raise
    _sync_name(final)
    return final


def read_checkpoint(path: Path, parts: Collection[str] | None = None, *, is_verified: bool = False) -> dict[str, Any]:
    """Return the state of a checkpoint, after a check of each of its files.

    Args:
        path: the checkpoint's folder.
        parts: those that are wanted, such as ``["model"]``; all by default.
        is_verified: the caller has just verified it.

    Returns:
        The state as it was given to ``write_checkpoint``, with all tensors on the CPU.

    Raises:
        CheckpointError: it is not a checkpoint, is damaged, or has no such part.
    """
    path = Path(path)
    if not is_verified:
        verify(path)
    with gone_or_damaged(path):
        return _read(path, parts)


def _read(path: Path, parts: Collection[str] | None) -> dict[str, Any]:
    with opened(path / TREE) as file:
        tree = strict_json(file.read(LARGEST_TREE), str(path / TREE))
    if not isinstance(tree, dict):
        raise damaged(path, f"{TREE} is not an object")
    if missing := sorted({*(parts or ())} - {*tree}):
        raise CheckpointError(f"{path} has no part {missing[0]!r}; it has {', '.join(tree)}", name=missing[0])
    tree = {part: tree[part] for part in tree if parts is None or part in parts}
    names = tensor_names(tree)
    of_model = {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    tensors = read_tensors(path / TENSORS, {name for name in names if not name.startswith(PREFIX)})
    tensors |= {PREFIX + name: tensor for name, tensor in read_tensors(path / MODEL, of_model).items()}
    state: dict[str, Any] = join(tree, tensors, str(path / TREE))
    return state


def _plain(name: str) -> str:
    if not name or "/" in name or name.startswith("."):
        raise CheckpointError(f"{name!r} cannot be the name of a checkpoint: it must be a plain name", name=name)
    return name


def _facts(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    order = order_of(Path(name))
    step = None if order is None else order[0]
    if step is not None and facts.get("step", step) != step:
        raise CheckpointError(f"the checkpoint {name} cannot be of step {facts['step']}", name=name)
    found = {**manifest.environment(), **facts, **({} if step is None else {"step": step})}
    if reserved := sorted({*facts} & {*manifest.OWN}):
        what = f"{reserved[0]!r} cannot be a fact: the manifest has an entry of that name"
        raise CheckpointError(what, name=reserved[0])
    return found


def _taken_apart(state: Mapping[str, Any]) -> tuple[bytes, dict[str, Tensor], dict[str, Tensor]]:
    for part in state:
        if not (isinstance(part, str) and part.isidentifier()):
            raise CheckpointError(f"{part!r} cannot be a part of a checkpoint: it must be an identifier", name=part)
    tree, tensors = split(dict(state))
    model = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}
    content = json.dumps(tree).encode()
    if len(content) > LARGEST_TREE:
        raise CheckpointError(
            f"the state has {len(content) / 1e6:.0f} MB beside its tensors; give large data as tensors"
        )
    return content, model, others


def _write_files(
    folder: Path, tree: bytes, model: Mapping[str, Tensor], tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what a process of the same number has left
    with told("write", folder):
        os.mkdir(folder)
    files = {}
    for name in FILES:
        with HashedFile(folder / name) as file:
            if name == TREE:
                file.write(tree)
            else:
                is_model = name == MODEL
                write_tensors(file, model if is_model else tensors, shares=not is_model)
            file.sync()
        files[name] = {"size": file.size, "sha256": file.sha256}
    with HashedFile(folder / MANIFEST) as file:
        file.write(manifest.rendered({"format": manifest.FORMAT, **facts, "files": files}))
        file.sync()
    sync_folder(folder)


def _rename(temporary: Path, final: Path) -> None:
    _require_free(final)  # a rename would replace an empty folder
    with told("rename", temporary):
        os.rename(temporary, final)


def _sync_name(final: Path) -> None:
    try:
        sync_folder(final.parent)
    except CheckpointError as error:
        error.cure = f"{final} is complete, but a power failure could lose it"
        raise


def _make(folder: Path) -> None:
    """Make a folder with those around it, such that the disk has their names."""
    if not folder.is_dir():
        _make(folder.parent)
        with told("write", folder):
            os.mkdir(folder)
        sync_folder(folder.parent)


def _require_free(final: Path) -> None:
    if os.path.lexists(final):
        raise CheckpointError(f"{final} is there already; nothing is overwritten", name=final.name)


def _require_room(folder: Path, needed: int) -> None:
    with told("write", folder):
        usage = shutil.disk_usage(folder)
    if usage.total and usage.free < needed:  # a file system that counts nothing has no total
        raise _full(folder, needed)


def _lacks_inodes(folder: Path) -> bool:
    try:
        counts = os.statvfs(folder)
    except OSError:
        return False
    return counts.f_files > 0 and counts.f_favail == 0  # a file system that counts none has no total


def _full(folder: Path, needed: int) -> CheckpointError:
    if _lacks_inodes(folder):
        what = f"no inodes left at {folder}: its file system takes no more files, however small"
        return CheckpointError(what, name=str(folder), cure="delete files there, or give another train_dir")
    try:
        free = f"{shutil.disk_usage(folder).free / 1e6:.1f} MB free"
    except OSError:
        free = "free space unknown"
    return CheckpointError(f"disk full at {folder}: {needed / 1e6:.1f} MB needed, {free}", name=str(folder))
