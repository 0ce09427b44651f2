"""What is wrong with the data as the model gets them: their numbers, their labels, and rows that are in two sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from train_manager.data.batch import parts_of, tensors_in
from train_manager.data.randomness import preserved_random_state
from train_manager.diagnosis.batch_leaves import Path, leaves_of, name_of, put_together
from train_manager.telling.findings import Coverage, Finding, Findings, Level

CHECK: Final = "input"
LARGE: Final = 100.0  # features of a larger scale are told
ROWS: Final = 8  # of fewer labels, all may be the same by chance
WITH_WEIGHTS: Final = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase)


def _dense_in(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in a batch or in outputs that are neither sparse nor nested."""
    tensors = {path: one for path, one in leaves_of(value) if isinstance(one, Tensor)}
    return {path: one for path, one in tensors.items() if one.layout == torch.strided and not one.is_nested}


def paths_of_inputs(batch: Any, inputs: Any, targets: Any = None) -> list[Path]:
    """Return where the tensors lie in a batch that the model gets; all tensors but the targets if it gets others.

    The targets are among them only if it gets nothing else, as an autoencoder: a model that is given the whole batch
    need not use them.
    """
    wanted, others = {id(one) for one in tensors_in(inputs)}, {id(one) for one in tensors_in(targets)}
    tensors = {path: id(one) for path, one in _dense_in(batch).items()}
    same = [path for path, key in tensors.items() if key in wanted]
    besides = [path for path, key in tensors.items() if key not in others]
    return [path for path in same if path in besides] or same or besides


def _at(paths: Sequence[Path], batch: Any) -> dict[Path, Tensor]:
    return {path: one for path, one in _dense_in(batch).items() if path in paths}


def _in_batch(path: Path) -> str:
    return f"batch.{name_of(path)}" if path else "batch"


# ---- rows ------------------------------------------------------------------------------------------------------------


@final
class Rows:
    """What the rows of a set are, batch by batch: their hashes, and the numbers that tell nothing.

    >>> x = torch.tensor([[1.0, 2.0], [1.0, float("nan")], [1.0, 2.0]])
    >>> rows = Rows([{"x": x}], [("x",)])
    >>> rows.count, len(rows.distinct), [found.what for found in rows.found()]
    (3, 2, ['1 of 6 numbers in the inputs is nan or infinite', '1 of 2 features is the same in all 3 rows'])

    Args:
        batches: with an example along the first axis of each tensor.
        paths: where the inputs are in them.

    Attributes:
        count: how many there are.
        distinct: the hashes of their inputs.
    """

    def __init__(self, batches: Iterable[Any], paths: Sequence[Path]) -> None:
        self.count, self.distinct = 0, set[int]()
        self._numbers, self._bad = Counter[str](), Counter[str]()
        self._same: dict[Path, tuple[Tensor, Tensor]] = {}  # the first row, and which features are as in it
        for batch in batches:
            inputs = _at(paths, batch)
            hashes = _hashes(list(inputs.values()))
            self.count += len(hashes)
            self.distinct.update(hashes)
            for path, values in inputs.items():
                self._count(_in_batch(path), values)
                self._compare(path, values.detach())
            for values in tensors_in(parts_of(batch).get("targets")):
                self._count("targets", values)

    def found(self) -> Iterator[Finding]:
        """Yield what is wrong with the numbers: nan, features that are the same in all rows."""
        for place, bad in self._bad.items():
            kind, are = "targets" if place == "targets" else "inputs", "is" if bad == 1 else "are"
            what = f"{bad:,} of {self._numbers[place]:,} numbers in the {kind} {are} nan or infinite"
            yield Finding(CHECK, "error", what, place, "leave these rows out, or fill them in", {"count": bad})
        for path, (_, is_same) in self._same.items():
            same, count = int(is_same.sum()), len(is_same)
            if same and self.count > 1:
                what = f"{same} of {count} features {'is' if same == 1 else 'are'} the same in all {self.count} rows"
                level: Level = "warning" if same == count else "note"
                cure = "they tell the model nothing: were they read as meant?"
                yield Finding(CHECK, level, what, _in_batch(path), cure)

    def _count(self, place: str, values: Tensor) -> None:
        bad = int((~values.isfinite()).sum()) if values.is_floating_point() else 0
        self._numbers[place] += values.numel()
        self._bad += Counter({place: bad})  # which drops those with none

    def _compare(self, path: Path, values: Tensor) -> None:
        if values.dim() == 2 and len(values):
            first, is_same = self._same.get(path, (values[0].clone(), torch.ones_like(values[0], dtype=torch.bool)))
            has_same_width = first.shape == values.shape[1:]
            same_here = (values == first).all(0) if has_same_width else torch.zeros_like(is_same)
            self._same[path] = first, is_same & same_here


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
    rows = "rows" if count == evaluated.count else "distinct rows"
    what = f"{shared:,} of the {count:,} {rows} of evaluation set {name!r} are in train_data"
    numbers = {"shared": shared, "compared": evaluated.count}
    if is_itself or name.startswith("train"):
        yield Finding(CHECK, "note", what + (" itself" if is_itself else ""), name, "", numbers)
    else:
        cure = "split the data before they are repeated or augmented, and by what belongs together"
        yield Finding(CHECK, "warning", what, name, cure, numbers)


def _hashes(tensors: Sequence[Tensor]) -> list[int]:
    """Return a hash of each row, over all tensors that have as many rows as the first one."""
    tensors = [one for one in tensors if one.dim() and len(one) == len(tensors[0]) and one.numel()]
    columns = [one.detach().cpu().contiguous().reshape(len(one), -1).view(torch.uint8).numpy() for one in tensors]
    return [hash(tuple(row.tobytes() for row in rows)) for rows in zip(*columns, strict=True)]


# ---- scale and labels ------------------------------------------------------------------------------------------------


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
    """Yield whether the numbers that reach a layer are of a scale that it does not learn well from.

    >>> [found.what for found in check_scale("0 (Linear)", torch.tensor([[3.0, 0.0], [255.0, 0.0]]))]
    ['bytes from 0 to 255 reach the first layer as they are']
    """
    values = given.float() if given.numel() else torch.zeros(1)
    low, high = values.aminmax()
    size = high
    if 0 <= low <= LARGE < high <= 255 and bool((values == values.round()).all()):
        what, cure = "bytes from 0 to 255 reach the first layer as they are", "scale them: x.float() / 255"
    else:
        size = values.square().mean(0).sqrt().max() if values.dim() == 2 and len(values) > 1 else values.abs().max()
        what = f"numbers of a scale of {float(size):.3g} reach the first layer"
        cure = "standardise the features: (x - mean) / std, of the training data"
    if size > LARGE:
        yield Finding(CHECK, "warning", what, layer, cure, {"scale": float(size)})


def check_labels(batches: Sequence[Tensor]) -> Iterator[Finding]:
    """Yield whether each of some batches of labels has one class only.

    >>> [found.what for found in check_labels([torch.zeros(8).long(), torch.ones(8).long()])]
    ['each of the first 2 batches has one class only']
    """
    if batches and all(one.numel() >= ROWS and one.unique().numel() == 1 for one in batches):
        each = "the first batch" if len(batches) == 1 else f"each of the first {len(batches)} batches"
        cure = "are the data sorted by class? shuffle them"
        yield Finding(CHECK, "warning", f"{each} has one class only", "targets", cure)


# ---- answers of the model --------------------------------------------------------------------------------------------


def check_answers(call: Callable[[Any], Any], batch: Any, paths: Sequence[Path], covered: str) -> Findings:
    """Find out whether what the model returns depends on its inputs.

    Args:
        call: returns what the model gives for a batch.
        batch: with several examples.
        paths: where its inputs are.
        covered: what is compared.
    """
    inputs = {path: one for path, one in _at(paths, batch).items() if one.dim() and len(one) > 1}
    if not inputs:
        return Findings.not_looked(CHECK, "the batch has one example only, so that outputs cannot be compared")
    rolled = {path: one.roll(1, 0) for path, one in inputs.items()}
    differ = [path for path, one in inputs.items() if not torch.equal(one, rolled[path])]
    base, size = _outputs(call, batch), len(next(iter(inputs.values())))
    of_rows = [one for one in base if one.dim() and len(one) == size]
    found: list[Finding] = []
    if differ and of_rows and all(torch.allclose(one, one[:1].expand_as(one), rtol=1e-5) for one in of_rows):
        cure = "is an input used? do all units of a layer give 0? are the first weights 0?"
        found.append(Finding(CHECK, "warning", f"the outputs are the same for all {size} examples", "", cure))
        differ = []
    for path in differ:
        other = _outputs(call, put_together(batch, {path: rolled[path]}))
        if len(other) == len(base) and all(map(torch.equal, other, base)):
            cure = "does the model use it? else leave it out of the inputs"
            found.append(Finding(CHECK, "warning", "no output depends on an input", _in_batch(path), cure))
    return Findings(found, [Coverage(CHECK, covered)])


def _outputs(call: Callable[[Any], Any], batch: Any) -> list[Tensor]:
    with preserved_random_state(), torch.no_grad():
        outputs = _dense_in(call(batch)).values()
        return [torch.view_as_real(one) if one.is_complex() else one.float() for one in outputs]
