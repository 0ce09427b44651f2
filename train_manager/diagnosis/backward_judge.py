"""Whether what the kept examples teach reaches the others, or depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.batch_leaves import Path, name_of
from train_manager.diagnosis.changes import Change
from train_manager.diagnosis.differences import tolerance_of
from train_manager.diagnosis.forward_judge import Leak
from train_manager.diagnosis.gradient_digests import Digest, Gradients, Numbers
from train_manager.diagnosis.output_places import Place
from train_manager.diagnosis.runs import Run

FACTOR: Final = 8.0
"""Rounding adds up on the way back: so many times what it may change in an output."""

SHARE: Final = 1e-2
"""Where a gradient must be zero, so much of what rounding may change elsewhere is too much."""

FLOOR: Final = 1e-3
"""What is smaller than this share of the largest gradients is rounding in parts that cancel."""


@final
class BackwardJudge:
    """Compares the gradients of the kept examples' loss.

    (a) It is zero at the inputs of the others; (b) those of both sides of a bit are together those of all; (c) it is
    the same before and after a change of the others.

    Args:
        gradients: walks back.
        model: the model.
        places: where the examples lie in its outputs.
        dtypes: the types of number that it computes in.
    """

    def __init__(
        self, gradients: Gradients, model: nn.Module, places: Mapping[Path, Place], *dtypes: torch.dtype
    ) -> None:
        self._gradients, self._places = gradients, places
        self._tolerance = FACTOR * tolerance_of(*dtypes)
        hooked = {name for name, one in model.named_parameters() if one._backward_hooks}
        self._hooked = hooked  # such a hook, as one that clips, is of the sum over all examples
        self._base: dict[tuple[int, int], Digest] = {}

    @property
    def could_look(self) -> bool:
        """Whether what the model returns for the examples has gradients."""
        return bool(self._base)

    def judge_base(self, run: Run, changes: list[Change]) -> Leak | None:
        """Walk back from each side of each bit of the batch as it is, and compare; by (a) and (b)."""
        everything = self._gradients.of(run, self._places, torch.ones_like(changes[0].split.changed))
        for change in changes:
            digest = self._gradients.of(run, self._places, ~change.split.changed)
            if digest is None or everything is None:
                return None
            self._base[change.split.bit, change.split.side] = digest
            leak = self._reaches(digest, change) or self._sum_is_another(digest, everything, change)
            if leak is not None:
                return leak
        return None

    def judge(self, run: Run, change: Change, *, compares: bool) -> Leak | None:
        """Walk back from the kept examples of a changed batch, and compare: by (a), and by (c) if that was asked."""
        base = self._base.get((change.split.bit, change.split.side))
        new = None if base is None else self._gradients.of(run, self._places, ~change.split.changed)
        if new is None or base is None:
            return None
        return self._reaches(new, change) or (self._is_another(new, base, change) if compares else None)

    def are_same(self, one: Digest | None, other: Digest | None) -> bool:
        """Return whether two runs of the same batch have the same gradients."""
        if one is None or other is None:
            return one is other
        return not any(self._differences(one.parameters, other.parameters)) and not any(
            self._differences(one.inputs, other.inputs)
        )

    def _reaches(self, digest: Digest, change: Change) -> Leak | None:
        """(a)"""
        for path, (numbers, sizes) in digest.inputs.items():
            reached = numbers.abs().amax(1) * change.split.changed > SHARE * self._tolerance * sizes.max()
            if bool(reached.any()):
                size = float((numbers.abs().amax(1) * change.split.changed).max())
                return Leak("backward", "reaches", change, int(reached.int().argmax()), name_of(path), size)
        return None

    def _sum_is_another(self, digest: Digest, everything: Digest, change: Change) -> Leak | None:
        """(b)"""
        other = self._base.get((change.split.bit, 1 - change.split.side))
        if other is None:
            return None
        both = Digest(_sum(digest.parameters, other.parameters), _sum(digest.inputs, other.inputs))
        return self._first(both, everything, change, "sum", torch.ones_like(change.split.changed))

    def _is_another(self, new: Digest, base: Digest, change: Change) -> Leak | None:
        """(c)"""
        return self._first(new, base, change, "depends", ~change.split.changed)

    def _first(self, new: Digest, base: Digest, change: Change, rule: str, kept: Tensor) -> Leak | None:
        for name, far in self._differences(new.inputs, base.inputs):
            rows = far * kept[:, None]
            if bool((rows > 0).any()):
                return Leak("backward", rule, change, int(rows.amax(1).argmax()), str(name), float(rows.max()))
        for name, far in self._differences(new.parameters, base.parameters):
            if rule != "sum" or name not in self._hooked:
                return Leak("backward", rule, change, None, str(name), float(far.max()))
        return None

    def _differences(self, new: Mapping[Any, Numbers], base: Mapping[Any, Numbers]) -> list[tuple[str, Tensor]]:
        """Return the names of the tensors that differ, with how far each number does; zero is within rounding."""
        largest = max((float(sizes.max()) for _, sizes in base.values()), default=0.0)
        found = []
        for key in dict.fromkeys([*base, *new]):
            numbers, sizes = new.get(key) or _zeros(base[key])
            others, other_sizes = base.get(key) or _zeros(new[key])
            allowed = self._tolerance * (torch.maximum(sizes, other_sizes) + FLOOR * largest)
            far = (numbers - others).abs()
            far = torch.where((far > allowed) | far.isnan(), far.nan_to_num(1.0), torch.zeros_like(far))
            if bool(far.any()):
                found.append((key if isinstance(key, str) else name_of(key), far))
        return found


def _sum(one: Mapping[Any, Numbers], other: Mapping[Any, Numbers]) -> dict[Any, Numbers]:
    keys = dict.fromkeys([*one, *other])
    pairs = {key: (one.get(key) or _zeros(other[key]), other.get(key) or _zeros(one[key])) for key in keys}
    return {key: (a[0] + b[0], a[1] + b[1]) for key, (a, b) in pairs.items()}


def _zeros(pair: Numbers) -> Numbers:
    return torch.zeros_like(pair[0]), torch.zeros_like(pair[1])
