"""The base of a model: the tensors that the checkpoints of a training leave out, known by their hashes.

A parameter is hashed once: afterwards ``Mark`` shows whether it has changed. ``selection`` says what is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

from torch import Tensor, nn

from train_manager.checkpoints.hashed_file import hash_of_content
from train_manager.checkpoints.left_out import Mark
from train_manager.checkpoints.tensors import content_of, why_not
from train_manager.model.modules import plain_name
from train_manager.telling.errors import CheckpointError

_AT_ONCE: Final = 4  # tensors that are hashed at the same time, each on a processor of its own


@final
class Base:
    """The tensors of a model as they are now, to tell later which of them the training has left as they were.

    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> base = Base(model)
    >>> with torch.no_grad():
    ...     _ = model.bias.add_(1)
    >>> [*base.unchanged(["weight", "bias"], model)]
    ['weight']

    Parameters and saved buffers count, by their plain names; not shards, quantized tensors and the like, of which a
    file of tensors has no form.

    Args:
        model: the model; of anything else than a Module the base is empty.
    """

    def __init__(self, model: Any) -> None:
        self._digests: dict[str, str] = {}
        self.mark(model)

    def mark(self, model: Any) -> None:
        """Take the tensors for unchanged as they are now, as after their own values were written to them."""
        tensors = tensors_of(model)
        self._marks = {name: Mark(tensor) for name, tensor in tensors.items()}
        self._digests |= digests_of(_changes_unmarked(tensors), tensors)

    def unchanged(self, names: Iterable[str], model: Any) -> dict[str, str]:
        """Return the digests of those of the named tensors that are as they were."""
        tensors = tensors_of(model)
        found = {name: tensors[name] for name in map(plain_name, names) if name in tensors}
        moved = {name: found[name] for name in _changes_unmarked(found)}
        moved |= {name: one for name, one in found.items() if self._marks.get(name) != Mark(one)}
        # A tensor that was written to may have the same values, as after a load of its weights.
        now = digests_of(moved.keys() & self._digests, found)
        same = {name for name, digest in now.items() if digest == self._digests[name]}
        self._marks |= {name: Mark(moved[name]) for name in same}
        for name in now.keys() - same:
            del self._digests[name]  # it is out for good, and not hashed again with each checkpoint
        kept = [name for name in found if name not in moved or name in same]
        self._digests |= digests_of([name for name in kept if name not in self._digests], found)
        return {name: self._digests[name] for name in kept}


def tensors_of(model: Any) -> dict[str, Tensor]:
    """Return the parameters and the saved buffers of a model that have a digest, by their plain names."""
    if not isinstance(model, nn.Module):
        return {}
    found = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return {plain_name(name): found[name] for name in model.state_dict() if name in found and not why_not(found[name])}


def _changes_unmarked(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of buffers that may change without a new ``Mark``: the kernel of a norm counts no change."""
    return [name for name, one in tensors.items() if not isinstance(one, nn.Parameter) and one.is_floating_point()]


def digests_of(names: Iterable[str], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return digests of dtype, shape and values: the same on each device and machine."""
    chosen = list(names)

    def digest(name: str) -> str:
        return hash_of_content(content_of({"tensor": tensors[name]}))[:32]

    with ThreadPoolExecutor(_AT_ONCE, "train-manager-base") as threads:
        return dict(zip(chosen, threads.map(digest, chosen), strict=True))


def facts_of(digests: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the entry of a manifest that names a base; None if nothing is left out."""
    return {"sha256": _hash_of(digests), "tensors": dict(digests)} if digests else None


def refuse_another(checkpoint: str, saved: Mapping[str, str], base: Base, model: Any) -> None:
    """Refuse a model whose tensors are not those that a checkpoint leaves out.

    Args:
        checkpoint: its name.
        saved: the digests of what it leaves out.
        base: of the model.
        model: the model as the program has made it.

    Raises:
        CheckpointError: a tensor is another one, or is not there.
    """
    here = base.unchanged(saved, model)
    others = [name for name, digest in saved.items() if here.get(name) != digest]
    if others:
        what = f"{checkpoint} is of another base (sha256 {_hash_of(saved)[:8]}) than this model ({_hash_of(here)[:8]})"
        how_many = f"{len(others)} of the {len(saved)} tensors that it leaves out differ, the first is {others[0]}"
        cure = "make the model with the weights that it had; strict=False resumes with those of this model"
        raise CheckpointError(f"{what}: {how_many}", name=others[0], asked_by="Checkpoints", cure=cure)


def _hash_of(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()
