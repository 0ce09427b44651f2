"""What is wrong with the data as the model gets them: their numbers, their labels, and rows that are in two sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from train_manager.data.batch import tensors_in
from train_manager.data.randomness import preserved_random_state
from train_manager.diagnosis.batch_leaves import Path, leaves_of, name_of, put_together
from train_manager.telling.findings import Finding, Level

CHECK: Final = "input"

LARGE: Final = 100.0
"""Features of a larger scale are told."""

ROWS: Final = 8
"""Of fewer labels, all may be the same by chance."""

WITH_WEIGHTS: Final = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase)


class Scale(NamedTuple):
    """The numbers that reach the first layer with weights: the largest, and whether they look like bytes."""

    layer: str
    size: float
    are_bytes: bool


def paths_of_inputs(batch: Any, inputs: Any, targets: Any = None) -> list[Path]:
    """Return where the tensors lie in a batch that the model gets; all tensors but the targets if it gets others.

    The targets are among them only if it gets nothing else, as an autoencoder: a model that is given the whole batch
    need not use them.
    """
    wanted, others = {id(one) for one in tensors_in(inputs)}, {id(one) for one in tensors_in(targets)}
    tensors = {path: id(leaf) for path, leaf in leaves_of(batch) if _is_dense(leaf)}
    same = [path for path, key in tensors.items() if key in wanted]
    besides = [path for path, key in tensors.items() if key not in others]
    return [path for path in same if path in besides] or same or besides


def at_paths(batch: Any, paths: Iterable[Path]) -> dict[Path, Tensor]:
    """Return the tensors of a batch at some places; those that it lacks are left out."""
    found = dict(leaves_of(batch))
    return {path: found[path] for path in paths if _is_dense(found.get(path))}


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout == torch.strided and not leaf.is_nested


# ---- numbers ---------------------------------------------------------------------------------------------------------


def check_numbers(batches: Sequence[Mapping[Path, Tensor]], targets: Sequence[Any]) -> Iterator[Finding]:
    """Yield what is wrong with the numbers of some batches: nan, features that are the same in all rows.

    >>> [found.what for found in check_numbers([{("x",): torch.tensor([[1.0, 2.0], [1.0, float("nan")]])}], [])]
    ['1 of 4 numbers in the inputs is nan or infinite', '1 of 2 features is the same in all 2 rows']
    """
    for path in dict.fromkeys(path for batch in batches for path in batch):
        values = [batch[path] for batch in batches if path in batch]
        yield from _not_finite("inputs", _in_batch(path), values)
        if all(one.dim() == 2 and one.shape[1] == values[0].shape[1] for one in values):
            yield from _constant(path, [one.detach() for one in values if len(one)])
    yield from _not_finite("targets", "", [one for some in targets for one in tensors_in(some)])


def check_scale(scale: Scale | None) -> Iterator[Finding]:
    """Yield whether the numbers that reach the first layer are of a scale that it does not learn well from."""
    if scale is None or not scale.size > LARGE:
        return
    if scale.are_bytes:
        what, cure = "bytes from 0 to 255 reach the first layer as they are", "scale them: x.float() / 255"
    else:
        what = f"numbers of a scale of {scale.size:.3g} reach the first layer"
        cure = "standardise the features: (x - mean) / std, of the training data"
    yield Finding(CHECK, "warning", what, scale.layer, cure, {"scale": scale.size})


@contextmanager
def scale_at_first_layer(model: nn.Module) -> Iterator[list[Scale]]:
    """Give what reaches the first layer with weights that is called in the ``with`` block."""
    seen: list[Scale] = []

    def look(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, given: Any) -> None:
            if not seen:
                seen.extend(_scale(f"{name} ({type(module).__name__})", one) for one in list(tensors_in(given))[:1])

        return hook

    layers = [(name, one) for name, one in model.named_modules() if isinstance(one, WITH_WEIGHTS)]
    handles = [one.register_forward_pre_hook(look(name)) for name, one in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _scale(layer: str, given: Tensor) -> Scale:
    values = given.detach().float() if given.numel() else torch.zeros(1)
    low, high = float(values.min()), float(values.max())
    if 0 <= low <= LARGE < high <= 255 and bool((values == values.round()).all()):
        return Scale(layer, high, are_bytes=True)
    size = values.square().mean(0).sqrt() if values.dim() == 2 and len(values) > 1 else values.abs()
    return Scale(layer, float(size.max()), are_bytes=False)


def _not_finite(kind: str, name: str, values: Sequence[Tensor]) -> Iterator[Finding]:
    floats = [one for one in values if one.is_floating_point()]
    count, bad = sum(one.numel() for one in floats), sum(int((~one.isfinite()).sum()) for one in floats)
    if bad:
        what = f"{bad:,} of {count:,} numbers in the {kind} {'is' if bad == 1 else 'are'} nan or infinite"
        yield Finding(CHECK, "error", what, name, "leave these rows out, or fill them in", {"count": bad})


def _constant(path: Path, values: Sequence[Tensor]) -> Iterator[Finding]:
    rows = sum(map(len, values))
    if rows < 2:
        return
    first, count = values[0][0], values[0].shape[1]
    same = int(torch.stack([(one == first).all(0) for one in values]).all(0).sum())
    if not same:
        return
    what = f"{same} of {count} features {'is' if same == 1 else 'are'} the same in all {rows} rows"
    level: Level = "warning" if same == count else "note"
    yield Finding(CHECK, level, what, _in_batch(path), "they tell the model nothing: were they read as meant?")


def _in_batch(path: Path) -> str:
    return f"batch.{name_of(path)}" if path else "batch"


# ---- labels ----------------------------------------------------------------------------------------------------------


def check_labels(batches: Sequence[Tensor]) -> Iterator[Finding]:
    """Yield whether each of some batches of labels has one class only.

    >>> [found.what for found in check_labels([torch.zeros(8).long(), torch.ones(8).long()])]
    ['each of the first 2 batches has one class only']
    """
    several = [one for one in batches if one.numel() >= ROWS]
    if several and len(several) == len(batches) and all(one.unique().numel() == 1 for one in several):
        what = f"each of the first {len(several)} batches has one class only"
        what = what if len(several) > 1 else "the first batch has one class only"
        yield Finding(CHECK, "warning", what, "targets", "are the data sorted by class? shuffle them")


# ---- answers of the model --------------------------------------------------------------------------------------------


def check_answers(call: Callable[[Any], Any], batch: Any, paths: Sequence[Path]) -> Iterator[Finding]:
    """Yield whether what the model returns depends on its inputs.

    Args:
        call: returns what the model gives for a batch.
        batch: with several examples.
        paths: where its inputs are.
    """
    inputs = {path: one for path, one in at_paths(batch, paths).items() if one.dim() and len(one) > 1}
    differ = {path: one for path, one in inputs.items() if not torch.equal(one, one.roll(1, 0))}
    if not differ:
        return
    base = _outputs(call, batch)
    size = len(next(iter(inputs.values())))
    if are_same_for_all(base, size):
        cure = "is an input used? do all units of a layer give 0? are the first weights 0?"
        yield Finding(CHECK, "warning", f"the outputs are the same for all {size} examples", "", cure)
        return
    for path, one in differ.items():
        other = _outputs(call, put_together(batch, {path: one.roll(1, 0)}))
        if len(other) == len(base) and all(map(torch.equal, other, base)):
            cure = "does the model use it? else leave it out of the inputs"
            yield Finding(CHECK, "warning", "no output depends on an input", _in_batch(path), cure)


def are_same_for_all(outputs: Any, size: int) -> bool:
    """Return whether the outputs with as many rows as a batch has are the same in all of them."""
    of_rows = [_as_floats(one) for one in dense_tensors(outputs) if size > 1 and one.dim() and len(one) == size]
    return bool(of_rows) and all(torch.allclose(one, one[:1].expand_as(one), rtol=1e-5) for one in of_rows)


def _outputs(call: Callable[[Any], Any], batch: Any) -> list[Tensor]:
    with preserved_random_state(), torch.no_grad():
        return [_as_floats(one) for one in dense_tensors(call(batch))]


def _as_floats(values: Tensor) -> Tensor:
    return torch.view_as_real(values) if values.is_complex() else values.float()


def dense_tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a batch or in outputs that are neither sparse nor nested."""
    return [one for _, one in leaves_of(value) if _is_dense(one)]


# ---- rows of two sets ------------------------------------------------------------------------------------------------


class Rows:
    """The rows of some batches, by hash.

    >>> rows = Rows([{("x",): torch.eye(3)}, {("x",): torch.zeros(2, 3)}])
    >>> rows.count, len(rows.distinct)
    (5, 4)

    Args:
        batches: the tensors of each, with an example along the first axis.

    Attributes:
        count: how many there are.
        distinct: their hashes.
    """

    def __init__(self, batches: Iterable[Mapping[Path, Tensor]]) -> None:
        self.count, self.distinct = 0, set[int]()
        for batch in batches:
            hashes = _hashes(list(batch.values()))
            self.count += len(hashes)
            self.distinct.update(hashes)


def check_rows(train: Rows, name: str, evaluated: Rows, *, is_itself: bool = False) -> Iterator[Finding]:
    """Yield whether rows of an evaluation set are trained on; that is a note of a set to measure the training with.

    Args:
        train: those that are trained on.
        name: of the evaluation set; one that begins with "train" is there to measure the training with.
        evaluated: the rows of the set.
        is_itself: the set has the very batches of the training.
    """
    shared, count = len(train.distinct & evaluated.distinct), len(evaluated.distinct)
    if not shared:
        return
    is_meant = is_itself or name.startswith("train")
    rows = "rows" if count == evaluated.count else "distinct rows"
    what = f"{shared:,} of the {count:,} {rows} of evaluation set {name!r} are in train_data"
    what += " itself" if is_itself else ""
    cure = "split the data before they are repeated or augmented, and by what belongs together"
    numbers = {"shared": shared, "compared": evaluated.count}
    yield Finding(CHECK, "note" if is_meant else "warning", what, name, "" if is_meant else cure, numbers)


def _hashes(tensors: Sequence[Tensor]) -> list[int]:
    """Return a hash of each row, over all tensors that have as many rows as the first one."""
    tensors = [one for one in tensors if one.dim() and len(one) == len(tensors[0]) and one.numel()]
    columns = [one.detach().cpu().contiguous().reshape(len(one), -1).view(torch.uint8).numpy() for one in tensors]
    return [hash(tuple(row.tobytes() for row in rows)) for rows in zip(*columns, strict=True)]
