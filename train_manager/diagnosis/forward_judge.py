"""Whether what a model returns for the kept examples has changed with the others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import Path, name_of
from train_manager.diagnosis.changes import Change
from train_manager.diagnosis.differences import differ, tolerance_of
from train_manager.diagnosis.output_places import Mixed, Outputs, Place, Places, Rows, Whole


class Leak(NamedTuple):
    """Something of the kept examples that depends on the changed ones.

    Attributes:
        way: whether it was seen in the outputs or in the gradients.
        rule: what did not hold.
        change: the change that showed it.
        example: the number of a kept example that was affected; None if that is not known.
        of: the output, parameter or input in which it was seen.
        size: how far that has changed.
    """

    way: Literal["forward", "backward"]
    rule: str
    change: Change
    example: int | None
    of: str
    size: float


@final
class ForwardJudge:
    """Compares the outputs of changed batches with those of the batch as it is.

    Args:
        base: the outputs of the batch as it is.
        places: where the examples lie in them.
        dtypes: the types of number that the model computes in.
        layout: the kind of change that keeps the layout of what is packed; empty if there is none.
    """

    def __init__(self, base: Outputs, places: Places, dtypes: Collection[torch.dtype], layout: str) -> None:
        self._base = {path: output.detach() for path, output in base.items()}
        self._places = places
        self._dtypes = dtypes
        self._layout = layout
        self._seen: dict[Path, dict[int, list[tuple[Change, Tensor]]]] = {}
        self.unsteady = {path for path, place in places.by_path.items() if isinstance(place, Mixed) and not layout}

    def judge(self, outputs: Outputs, change: Change) -> Leak | None:
        """Return what of a kept example has changed; None if nothing has."""
        for path, place in self._places.by_path.items():
            output = outputs.get(path)
            if isinstance(place, Mixed):
                self._note(path, output, change)
            elif output is not None and output.dim() == self._base[path].dim():
                leak = self._of_leaf(path, place, output.detach(), change)
                if leak is not None:
                    return leak
        return None

    def judge_mixed(self) -> Leak | None:
        """Return what both sides of a bit change, where it is not known what belongs to which example."""
        for path in self._seen.keys() - self.unsteady:
            for sides in self._seen[path].values():
                both = torch.stack([differs for _, differs in sides]).all(0)
                if len(sides) == 2 and bool(both.any()):
                    return Leak("forward", "mixed", sides[0][0], None, name_of(path), float(both.float().mean()))
        return None

    def _of_leaf(self, path: Path, place: Rows | Whole, output: Tensor, change: Change) -> Leak | None:
        new, base = overlap(output, self._base[path])
        if not fits(place, new):
            return None
        differs = self._differ(new, base) & place.mask(new, ~change.split.changed)
        if not bool(differs.any()):
            return None
        far = (new - base).abs() if new.dtype != torch.bool else differs
        return Leak("forward", "value", change, _example_of(place, differs), name_of(path), float(far[differs].max()))

    def _note(self, path: Path, output: Tensor | None, change: Change) -> None:
        """Note what a change that keeps the layout has changed; if it has not kept it, the leaf cannot be judged."""
        if change.kind != self._layout:
            return
        if output is None or output.shape != self._base[path].shape:
            self.unsteady.add(path)
            return
        differs = self._differ(output.detach(), self._base[path])
        self._seen.setdefault(path, {}).setdefault(change.split.bit, []).append((change, differs))

    def _differ(self, new: Tensor, base: Tensor) -> Tensor:
        return differ(new, base, tolerance_of(new.dtype, *self._dtypes))


def overlap(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return what two tensors have both; padding may be of another length."""
    shape = [slice(min(lengths)) for lengths in zip(one.shape, other.shape, strict=True)]
    return one[tuple(shape)], other[tuple(shape)]


def fits(place: Place, tensor: Tensor) -> bool:
    """Return whether the examples lie in a tensor as in that of the batch as it is."""
    return not isinstance(place, Rows) or tensor.shape[place.axis] == len(place.numbers)


def _example_of(place: Rows | Whole, differs: Tensor) -> int:
    if isinstance(place, Whole):
        return place.number
    moved = differs.movedim(place.axis, 0)
    along = moved.flatten(1).any(1) if moved.dim() > 1 else moved
    return int(place.numbers[int(along.int().argmax())])
