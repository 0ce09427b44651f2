"""Faults of the data as the model gets them: their numbers, their labels, and rows that are in two sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from train_manager.checks.batch_leaves import Path, leaves_of, name_of, put_together
from train_manager.data.batch import tensors_in, unpack
from train_manager.data.random_state import preserve_random_state
from train_manager.telling.findings import Coverage, Finding, Findings, Level

CHECK: Final = "input"
LARGE: Final = 100.0  # the scale of features above which there is a finding
ROWS: Final = 8  # labels of a batch, fewer than which may all be the same by chance
WITH_WEIGHTS: Final = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase)  # layers that learn badly from large inputs


def _dense_in(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in a batch or in outputs that are neither sparse nor nested."""
    tensors = {path: one for path, one in leaves_of(value) if isinstance(one, Tensor)}
    return {path: one for path, one in tensors.items() if one.layout == torch.strided and not one.is_nested}


def paths_of_inputs(batch: Any, inputs: Any, targets: Any = None) -> list[Path]:
    """Return the paths of the tensors in a batch that the model gets; all except the targets if it gets other tensors.

    The targets are among them only if the model gets nothing else, as an autoencoder: a model that gets the whole batch
    need not use its targets.
    """
    # By identity: the tensors of the batch are the same objects if no transform has replaced them.
    wanted, others = {id(one) for one in tensors_in(inputs)}, {id(one) for one in tensors_in(targets)}
    tensors = {path: id(one) for path, one in _dense_in(batch).items()}
    same = [path for path, key in tensors.items() if key in wanted]
    besides = [path for path, key in tensors.items() if key not in others]
    return [path for path in same if path in besides] or same or besides


def _at(paths: Sequence[Path], batch: Any) -> dict[Path, Tensor]:
    return {path: one for path, one in _dense_in(batch).items() if path in paths}


def _in_batch(path: Path) -> str:
    return f"batch.{name_of(path)}" if path else "batch"


@final
class RowsRead:
    """The rows of a set, read batch by batch: their hashes, and their numbers without information.

    >>> x = torch.tensor([[1.0, 2.0], [1.0, float("nan")], [1.0, 2.0]])
    >>> rows = RowsRead([{"x": x}], [("x",)])
    >>> rows.count, len(rows.distinct), [found.what for found in rows.found()]
    (3, 2, ['1 of 6 numbers in the inputs is nan or infinite', '1 of 2 features is the same in all 3 rows'])

    Args:
        batches: batches whose examples lie along the first axis of each tensor.
        paths: the paths of the inputs in the batches.

    Attributes:
        count: the number of rows.
        distinct: the hashes of the inputs of the rows.
    """

    def __init__(self, batches: Iterable[Any], paths: Sequence[Path]) -> None:
        self.count, self.distinct = 0, set[int]()
        self._numbers, self._bad = Counter[str](), Counter[str]()  # numbers by their place, and those not finite
        # Of each input the first row, and for each feature whether it is the same in all rows.
        self._same: dict[Path, tuple[Tensor, Tensor]] = {}
        for batch in batches:
            inputs = _at(paths, batch)
            hashes = _hashes(list(inputs.values()))
            self.count += len(hashes)
            self.distinct.update(hashes)
            for path, values in inputs.items():
                self._count(_in_batch(path), values)
                self._compare(path, values.detach())
            for values in tensors_in(unpack(batch).get("targets")):
                self._count("targets", values)

    def found(self) -> Iterator[Finding]:
        """Yield findings about numbers that are not finite, and features that are the same in all rows."""
        for place, bad in self._bad.items():
            kind, are = "targets" if place == "targets" else "inputs", "is" if bad == 1 else "are"
            what = f"{bad:,} of {self._numbers[place]:,} numbers in the {kind} {are} nan or infinite"
            cure = "leave these rows out, or fill them in"
            yield Finding(CHECK, "error", what, place, cure, {"count": bad}, code="data-not-finite")
        for path, (_, is_same) in self._same.items():
            same, count = int(is_same.sum()), len(is_same)
            if same and self.count > 1:
                what = f"{same} of {count} features {'is' if same == 1 else 'are'} the same in all {self.count} rows"
                level: Level = "warning" if same == count else "note"
                cure = "they tell the model nothing: were they read as intended?"
                yield Finding(CHECK, level, what, _in_batch(path), cure, code="constant-feature")

    def _count(self, place: str, values: Tensor) -> None:
        bad = int((~values.isfinite()).sum()) if values.is_floating_point() else 0
        self._numbers[place] += values.numel()
        self._bad += Counter({place: bad})  # += drops the places without bad numbers

    def _compare(self, path: Path, values: Tensor) -> None:
        if values.dim() == 2 and len(values):
            first, is_same = self._same.get(path, (values[0].clone(), torch.ones_like(values[0], dtype=torch.bool)))
            # Batches may be padded to different widths, where no column is the same feature.
            has_same_width = first.shape == values.shape[1:]
            same_here = (values == first).all(0) if has_same_width else torch.zeros_like(is_same)
            self._same[path] = first, is_same & same_here


def check_rows(train: RowsRead, name: str, evaluated: RowsRead, *, is_itself: bool = False) -> Iterator[Finding]:
    """Yield a finding if rows of an evaluation set are trained on; a note if the set shows how well the training fits.

    Args:
        train: the rows that are trained on.
        name: the name of the evaluation set; one that begins with "train" is meant to have rows of the training.
        evaluated: the rows of the set.
        is_itself: the set has the same batch objects as the training.
    """
    shared, count = len(train.distinct & evaluated.distinct), len(evaluated.distinct)
    if not shared:
        return
    rows = "rows" if count == evaluated.count else "distinct rows"
    what = f"{shared:,} of the {count:,} {rows} of evaluation set {name!r} are in train_data"
    numbers = {"shared": shared, "compared": evaluated.count}
    if is_itself or name.startswith("train"):
        what += " itself" if is_itself else ""
        yield Finding(CHECK, "note", what, name, "", numbers, code="training-rows-evaluated")
    else:
        cure = "split the data before they are repeated or augmented, and by what belongs together"
        yield Finding(CHECK, "warning", what, name, cure, numbers, code="shared-rows")


def _hashes(tensors: Sequence[Tensor]) -> list[int]:
    """Return a hash of each row, over all tensors that have as many rows as the first one."""
    # Hashes in place of rows: the rows of a large set would not fit into memory.
    tensors = [one for one in tensors if one.dim() and len(one) == len(tensors[0]) and one.numel()]
    columns = [one.detach().cpu().contiguous().reshape(len(one), -1).view(torch.uint8).numpy() for one in tensors]
    return [hash(tuple(row.tobytes() for row in rows)) for rows in zip(*columns, strict=True)]


@contextmanager
def inputs_of_first_layer(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Give the name and the input of the first layer with weights that is called in the ``with`` block."""
    names = {one: f"{name} ({type(one).__name__})" for name, one in model.named_modules()}
    seen: list[tuple[str, Tensor]] = []

    def look(module: nn.Module, given: Any) -> None:
        if not seen and module in names and isinstance(module, WITH_WEIGHTS):
            seen.extend((names[module], one.detach().clone()) for one in list(tensors_in(given))[:1])

    handle = register_module_forward_pre_hook(look)
    try:
        yield seen
    finally:
        handle.remove()


def check_scale(layer: str, given: Tensor) -> Iterator[Finding]:
    """Yield a finding if the numbers that reach a layer are so large that it learns badly from them.

    >>> [found.what for found in check_scale("0 (Linear)", torch.tensor([[3.0, 0.0], [255.0, 0.0]]))]
    ['bytes from 0 to 255 reach the first layer as they are']
    """
    values = given.float() if given.numel() else torch.zeros(1)
    low, high = values.aminmax()
    size = high
    if 0 <= low <= LARGE < high <= 255 and bool((values == values.round()).all()):
        what, cure = "bytes from 0 to 255 reach the first layer as they are", "scale them: x.float() / 255"
    else:
        # The root mean square of the largest feature; features are the columns of a matrix.
        size = values.square().mean(0).sqrt().max() if values.dim() == 2 and len(values) > 1 else values.abs().max()
        what = f"numbers of a scale of {float(size):.3g} reach the first layer"
        cure = "standardise the features: (x - mean) / std, of the training data"
    if size > LARGE:
        yield Finding(CHECK, "warning", what, layer, cure, {"scale": float(size)}, code="unscaled-input")


def check_labels(batches: Sequence[Tensor]) -> Iterator[Finding]:
    """Yield a finding if each of some batches of labels has one class only.

    >>> [found.what for found in check_labels([torch.zeros(8).long(), torch.ones(8).long()])]
    ['each of the first 2 batches has one class only']
    """
    if batches and all(one.numel() >= ROWS and one.unique().numel() == 1 for one in batches):
        each = "the first batch" if len(batches) == 1 else f"each of the first {len(batches)} batches"
        cure = "are the data sorted by class? shuffle them"
        yield Finding(CHECK, "warning", f"{each} has one class only", "targets", cure, code="one-class-in-batch")


def check_answers(call: Callable[[Any], Any], batch: Any, paths: Sequence[Path], covered: str) -> Findings:
    """Find out whether the outputs of the model depend on its inputs.

    Args:
        call: returns the outputs of the model for a batch.
        batch: a batch with several examples.
        paths: the paths of the inputs in the batch.
        covered: the text about the coverage.
    """
    inputs = {path: one for path, one in _at(paths, batch).items() if one.dim() and len(one) > 1}
    if not inputs:
        return Findings.not_looked(CHECK, "the batch has one example only, so that outputs cannot be compared")
    # Each example gets the input of the one before it: real values, where noise may be invalid for the model.
    rolled = {path: one.roll(1, 0) for path, one in inputs.items()}
    differ = [path for path, one in inputs.items() if not torch.equal(one, rolled[path])]
    base, size = _outputs(call, batch), len(next(iter(inputs.values())))
    of_rows = [one for one in base if one.dim() and len(one) == size]
    found: list[Finding] = []
    if differ and of_rows and all(torch.allclose(one, one[:1].expand_as(one), rtol=1e-5) for one in of_rows):
        cure = "is an input used? do all units of a layer give 0? are the first weights 0?"
        what = f"the outputs are the same for all {size} examples"
        found.append(Finding(CHECK, "warning", what, "", cure, code="constant-output"))
        differ = []  # one finding is enough: no single input can matter then
    for path in differ:
        other = _outputs(call, put_together(batch, {path: rolled[path]}))
        if len(other) == len(base) and all(map(torch.equal, other, base)):
            cure = "does the model use it? else leave it out of the inputs"
            what = "no output depends on an input"
            found.append(Finding(CHECK, "warning", what, _in_batch(path), cure, code="unused-input"))
    return Findings(found, [Coverage(CHECK, covered)])


def _outputs(call: Callable[[Any], Any], batch: Any) -> list[Tensor]:
    with preserve_random_state(), torch.no_grad():
        outputs = _dense_in(call(batch)).values()
        return [torch.view_as_real(one) if one.is_complex() else one.float() for one in outputs]
