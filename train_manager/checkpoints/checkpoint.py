"""One checkpoint: a folder that is there as a whole or not at all, and that is checked before anything is read.

    step-000000000123/
        model.safetensors    the model's tensors, by their names
        state.safetensors    all other tensors
        state.json           all else
        manifest.json        names, sizes and SHA-256 of the others; written last

It is written as ``.tmp-step-000000000123-...`` in the same folder, and renamed when the disk has it. Nothing in it is
ever unpickled, imported or called.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from train_manager.checkpoints import manifest
from train_manager.checkpoints.checkpoint_names import order_of
from train_manager.checkpoints.hashed_file import (
    hash_of,
    hash_of_content,
    open_file,
    sync_file,
    sync_folder,
    translate_os_errors,
    write_file,
)
from train_manager.checkpoints.manifest import FILES, MANIFEST, MODEL, TENSORS, TREE
from train_manager.checkpoints.state_tree import join, split, tensor_names
from train_manager.checkpoints.tensors import content_of, read_tensors
from train_manager.checkpoints.verification import (
    damaged_error,
    require_hash,
    translate_gone_errors,
    verify,
    verify_sizes,
)
from train_manager.files.atomic import new_folder
from train_manager.files.json_text import json_of
from train_manager.telling.errors import CheckpointError

PREFIX = "model."  # begins the names of the tensors that the component `model` holds
LARGEST_TREE = 1_000_000_000  # bytes of state.json


def write_checkpoint(folder: Path, name: str, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint; when this returns, the disk has it.

    >>> from tempfile import mkdtemp
    >>> from train_manager.checkpoints.verification import verify
    >>> path = write_checkpoint(Path(mkdtemp()), "step-000000000003", {"counters": {"step": 3}}, {"run_id": "a"})
    >>> path.name, read_checkpoint(path), verify(path)["step"]
    ('step-000000000003', {'counters': {'step': 3}}, 3)

    Args:
        folder: the folder of the new checkpoint; it is made if it is missing.
        name: of the checkpoint. ``step-`` and at least twelve digits name a step, which is then a fact too.
        state: saved components by their names, such as ``model`` and ``optimizers``; ``state_tree`` lists the types
            that they may hold.
        facts: for the manifest: metrics, run id and the like.

    Returns:
        Where it is.

    Raises:
        CheckpointError: the state has a value that a checkpoint cannot hold, the name is taken, the disk is full or
            fails. Then no checkpoint is made, except if only the last sync fails.
    """
    final = Path(folder) / _plain(name)
    facts = _facts(name, facts)
    tree, model, tensors = _split_state(state)
    _make(final.parent)
    with translate_os_errors("write", final), new_folder(final, error=CheckpointError) as temporary:
        _write_files(temporary, tree, model, tensors, facts)
    # The new name lies in the parent folder, which is synced apart from the files.
    _sync_name(final)
    return final


def copy_checkpoint(folder: Path, checkpoint: Path) -> Path:
    """Copy a checkpoint to another folder; when this returns, the disk has the copy, and its hashes were compared.

    Args:
        folder: the other folder.
        checkpoint: the checkpoint, of which the copy gets the name.

    Returns:
        Where the copy is.

    Raises:
        CheckpointError: the name is taken, a copied file has not the hash of the manifest, or the disk is full or
            fails. Then no checkpoint is made, except if only the last sync fails.
    """
    final = folder / checkpoint.name
    with translate_os_errors("copy", final), new_folder(final, error=CheckpointError) as temporary:
        for name in (*FILES, MANIFEST):
            shutil.copyfile(checkpoint / name, temporary / name)
            sync_file(temporary / name)
        sync_folder(temporary)
        try:
            verify(temporary)  # before the rename: a copy that was spoilt on the way never gets the name
        except CheckpointError as error:
            raise CheckpointError(f"a copy in {folder} is not what was written", name=final.name) from error.__cause__
    _sync_name(final)
    return final


def read_checkpoint(path: Path, parts: Collection[str] | None = None, *, is_verified: bool = False) -> dict[str, Any]:
    """Return the state of a checkpoint, of which each file is checked.

    Args:
        path: the checkpoint's folder.
        parts: the names of the saved components to read, such as ``["model"]``; all by default.
        is_verified: the caller has just verified the checkpoint.

    Returns:
        The state as it was given to ``write_checkpoint``, with all tensors on the CPU.

    Raises:
        CheckpointError: it is not a checkpoint, is damaged, or lacks a component of that name.
    """
    path = Path(path)
    with translate_gone_errors(path):
        return _read(path, parts, None if is_verified else verify_sizes(path))


def _read(path: Path, parts: Collection[str] | None, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read the files of a checkpoint, and check them against its manifest if it is given."""
    tree = json_of(_content(path / TREE, found, LARGEST_TREE), str(path / TREE))
    if not isinstance(tree, dict):
        raise damaged_error(path, f"{TREE} is not an object")
    if missing := sorted({*(parts or ())} - {*tree}):
        raise CheckpointError(f"{path} has no part {missing[0]!r}; it has {', '.join(tree)}", name=missing[0])
    # The components are chosen before any tensor is read, so the model alone costs no read of optimizer states.
    tree = {component: tree[component] for component in tree if parts is None or component in parts}
    of_model = {name.startswith(PREFIX) for name in tensor_names(tree)}
    # The model has a file of its own, under its plain names, so that other programs can read it.
    tensors = _tensors(path / TENSORS, False in of_model, found)
    tensors |= {PREFIX + name: tensor for name, tensor in _tensors(path / MODEL, True in of_model, found).items()}
    state: dict[str, Any] = join(tree, tensors, str(path / TREE))
    return state


def _tensors(path: Path, is_needed: bool, found: Mapping[str, Any] | None) -> dict[str, Tensor]:
    if is_needed:
        return read_tensors(_content(path, found), path)
    # A checkpoint with a damaged file is not used, although nothing is needed of this one.
    if found is not None:
        require_hash(path, hash_of(path), found)
    return {}


def _content(path: Path, found: Mapping[str, Any] | None, at_most: int = -1) -> bytes:
    with open_file(path) as file:
        content = file.read(at_most)
    # The hash is of the bytes that are used: those on the disk may change after any check.
    if found is not None:
        require_hash(path, sha256(content).hexdigest(), found)
    return content


def _plain(name: str) -> str:
    # A slash would write elsewhere, and a leading dot would make a leftover that `leftovers` deletes.
    if not name or "/" in name or name.startswith("."):
        raise CheckpointError(f"{name!r} cannot be the name of a checkpoint: it must be a plain name", name=name)
    return name


def _facts(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    order = order_of(Path(name))
    step = None if order is None else order[0]
    # `CheckpointFolder` sorts by names alone: a name of another step would break the order of the checkpoints.
    if step is not None and facts.get("step", step) != step:
        raise CheckpointError(f"the checkpoint {name} cannot be of step {facts['step']}", name=name)
    found = {**manifest.environment(), **facts, **({} if step is None else {"step": step})}
    if reserved := sorted({*facts} & {*manifest.OWN}):
        what = f"{reserved[0]!r} cannot be a fact: the manifest has an entry of that name"
        raise CheckpointError(what, name=reserved[0])
    return found


def _split_state(state: Mapping[str, Any]) -> tuple[bytes, dict[str, Tensor], dict[str, Tensor]]:
    for component in state:
        if not (isinstance(component, str) and component.isidentifier()):
            raise CheckpointError(
                f"{component!r} cannot be a part of a checkpoint: it must be an identifier", name=component
            )
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
    files, syncs = {}, []
    with ThreadPoolExecutor(1 + len(FILES), "train-manager-seal") as threads:
        for name, content in _contents(tree, model, tensors):
            # One processor hashes a file while another writes it, and the disk syncs it while the next file is written:
            # one after the other they take 1.5 times as long.
            digest = threads.submit(hash_of_content, content)
            write_file(folder / name, content)
            syncs.append(threads.submit(sync_file, folder / name))
            files[name] = {"size": sum(map(len, content)), "sha256": digest.result()}
    for sync in syncs:
        sync.result()
    # The size and hash of each file are known only after its last byte, so the manifest comes last.
    write_file(folder / MANIFEST, [manifest.render_manifest({"format": manifest.FORMAT, **facts, "files": files})])
    sync_file(folder / MANIFEST)
    # The names of the files are on the disk before the rename: else a power failure could leave an empty folder.
    sync_folder(folder)


def _contents(
    tree: bytes, model: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Sequence[bytes | memoryview]]]:
    """Yield the name and the content of each file; those of a GPU are copied only as their file is written."""
    yield MODEL, content_of(model, shares=False)
    yield TREE, [tree]
    yield TENSORS, content_of(tensors)


def _sync_name(final: Path) -> None:
    try:
        sync_folder(final.parent)
    except CheckpointError as error:
        # The rename is done, so the checkpoint stays: only its name may still be missing on the disk.
        error.cure = f"{final} is complete, but a power failure could lose it"
        raise


def _make(folder: Path) -> None:
    """Make a folder and its missing parents, and wait until the disk has their names."""
    if not folder.is_dir():
        _make(folder.parent)
        with translate_os_errors("write", folder):
            os.mkdir(folder)
        sync_folder(folder.parent)
