"""Numbers of the layers of a model over a training: how they are measured, read together, sent and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import numbers
from train_manager.metrics.windows import SeriesWindows, WindowedSeries, width_after
from train_manager.model.sharding import as_whole

FULL: Final = 64  # vectors that one copy brings to the host
NONE: Final = -1.0  # the norm of a missing tensor; nan is the norm of a tensor with a nan


class LayerRow(NamedTuple):
    """A window of steps: its last step, its examples, and for each layer the mean and the largest number."""

    step: int
    weight: float
    mean: Tensor
    largest: Tensor


@final
class LayerSeries:
    """Vectors with a number for each layer, in windows that grow with the training.

    >>> series = LayerSeries(["0 Linear", "2 Linear"])
    >>> for step in (1, 2):
    ...     is_full = series.append(torch.tensor([.5, float("nan")]) * step, step, weight=16)
    >>> series.take()
    >>> [(row.step, row.mean.tolist()) for row in series.rows]
    [(1, [0.5, nan]), (2, [1.0, nan])]

    Args:
        labels: the names of the layers.
        parts_of: the layer of each parameter, if a vector has the norm of each parameter: these norms are joined to the
            norm of the layer, without norms below 0, which stand for a missing gradient. Empty if a vector has a number
            for each layer.
        counts: how many numbers the norm of each layer is taken over.
    """

    def __init__(self, labels: Sequence[str], parts_of: Sequence[int] = (), counts: Sequence[int] = ()) -> None:
        self.labels, self.parts_of, self.counts = list(labels), list(parts_of), list(counts)
        self.sent = 0  # the number of windows that a store has
        self._series = WindowedSeries(len(self.labels))
        self._waiting: list[tuple[Tensor, int, Any]] = []  # vectors on their device, with step and weight

    @property
    def full(self) -> SeriesWindows:
        """The full windows, which never change."""
        return self._series.full

    @property
    def rows(self) -> list[LayerRow]:
        """The full windows, each as a row."""
        return _rows(self.full)

    def append(self, vector: Tensor, step: int, weight: Any) -> bool:
        """Keep a vector that nobody changes, and return whether so many are kept that they should be taken."""
        self._waiting.append((vector.detach(), step, weight))
        return len(self._waiting) >= FULL

    def take(self) -> None:
        """Copy the waiting vectors to the host, all at once, and join steps that fill a window."""
        if not self._waiting:
            return
        vectors, steps, weights = zip(*self._waiting, strict=True)
        self._waiting.clear()
        # In 64 bits, because the squares of large norms overflow 32.
        read = torch.stack(vectors).cpu().double()
        read = norms_by_layer(read, self.parts_of, len(self.labels)) if self.parts_of else read
        self._series.extend(SeriesWindows.single(steps, numbers(weights), read.float().numpy()))

    def send(self, writer: Any, name: str) -> None:
        """Give a store the windows that it does not have."""
        # The counts do not change, so they are written once, before the first window.
        rows = _rows(self._series.since(self.sent))
        if self.counts and not self.sent and rows:
            writer.array(f"{name}_counts", torch.tensor(self.counts, dtype=torch.float), self.labels)
        for number, row in enumerate(rows, start=self.sent):
            writer.array(name, row.mean, self.labels, step=row.step)
            if width_after(number) > 1:  # the largest of a single step is the number itself
                writer.array(f"{name}_largest", row.largest, self.labels, step=row.step)
        self.sent += len(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return all windows, and the vectors of the open one."""
        self.take()
        made = {"labels": [*self.labels], "parts_of": [*self.parts_of], "counts": [*self.counts]}
        full, windows = self._series.state()
        arrays = {name: torch.from_numpy(array) for name, array in windows._asdict().items()}
        return {**made, "sent": self.sent, "full": full, **arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.labels, self.parts_of, self.counts = (list(state[name]) for name in ("labels", "parts_of", "counts"))
        self._waiting, self.sent, self._series = [], state["sent"], WindowedSeries(len(self.labels))
        windows = SeriesWindows(*(state[name].numpy(force=True) for name in SeriesWindows._fields))
        self._series.load(state["full"], windows)


def _rows(windows: SeriesWindows) -> list[LayerRow]:
    vectors = (torch.from_numpy(each).unbind() for each in (windows.means, windows.largest))
    return [*map(LayerRow, windows.steps.tolist(), windows.weights.tolist(), *vectors)]


@final
class LayerSeriesByName(dict[str, LayerSeries]):
    """Series by the name under which a store has them; each begins with its first vector.

    >>> series = LayerSeriesByName()
    >>> series.of("gradient_norms", ["0 Linear"]) is series.of("gradient_norms", ["0 Linear"])
    True
    >>> other = series.of("gradient_norms", ["0 Linear", "1 Linear"])  # of other layers
    >>> list(series)
    ['gradient_norms', 'gradient_norms (2)']
    """

    def of(
        self, name: str, labels: Sequence[str], parts_of: Sequence[int] = (), counts: Sequence[int] = ()
    ) -> LayerSeries:
        """Return the series of a name for these layers."""
        # Vectors of other layers, as after a layer was added, get a series of their own, "name (2)".
        found, number = name, 1
        while found in self and (self[found].labels != list(labels) or self[found].counts != list(counts)):
            number += 1
            found = f"{name} ({number})"
        if found not in self:
            self[found] = LayerSeries(labels, parts_of, counts)
        return self[found]

    def send(self, writer: Any) -> None:
        """Take all vectors, and give a store the windows that it does not have; None takes them only."""
        for name, series in self.items():
            series.take()
            if writer is not None:
                series.send(writer, name)

    def state_dict(self) -> dict[str, Any]:
        """Return all series."""
        return {name: series.state_dict() for name, series in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        for name, saved in state.items():
            self[name] = LayerSeries(())  # its labels come with the state
            self[name].load_state_dict(saved)


# ---- norms of layers, made of the norms of their parameters, without a wait for the device ---------------------------


def norms_of(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the norm of each tensor; below 0 for None. All ranks compute the norms of sharded tensors together.

    >>> norms_of([torch.tensor([3., 4.]), None])
    tensor([ 5., -1.])
    """
    try:
        norms: Tensor = as_whole(torch.stack(torch._foreach_norm(tensors)))  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # a tensor is None or sparse, or they are on several devices: both are rare
        return _norms_of_any(tensors)
    return norms


def _norms_of_any(tensors: Sequence[Tensor | None]) -> Tensor:
    there = [_dense(tensor) for tensor in tensors if tensor is not None]
    device, norms = there[0].device if there else None, iter(torch._foreach_norm(there) if there else ())
    none = torch.full((), NONE, device=device)
    return torch.stack([none if tensor is None else as_whole(next(norms)).to(device) for tensor in tensors])


def _dense(tensor: Tensor) -> Tensor:
    """Return the numbers of a sparse gradient, with equal rows added up; another tensor as it is."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def norms_by_layer(norms: Tensor, parts_of: Sequence[int], count: int) -> Tensor:
    """Return the norms of layers from the norms of their parameters; nan for a layer whose norms are all below 0.

    >>> norms_by_layer(torch.tensor([[3., 4., -1., -1.]]), [0, 0, 1, 1], 2)
    tensor([[5., nan]])
    """
    # ~(norms < 0) and not norms >= 0, because a norm of nan belongs to a tensor that is there.
    index, is_there = torch.tensor(parts_of, device=norms.device), ~(norms < 0)
    zeros = norms.new_zeros(len(norms), count)
    squares = zeros.index_add(1, index, torch.where(is_there, norms**2, 0))
    return torch.where(zeros.index_add(1, index, is_there.to(norms)) > 0, squares.sqrt(), torch.nan)


@torch.no_grad()
def changes_by_layer(
    tensors: Sequence[Tensor], before: Sequence[Tensor], parts_of: Sequence[int], count: int
) -> Tensor:
    """Return the norm of the change of each layer over its norm before; nan where nothing has changed.

    >>> changes_by_layer([torch.tensor([3., 4.5]), torch.ones(1)], [torch.tensor([3., 4.]), torch.ones(1)], [0, 1], 2)
    tensor([0.1000,    nan])
    """
    changes = norms_of(torch._foreach_sub([*tensors], [*before]))
    of_layers = norms_by_layer(torch.stack([changes, norms_of(before)]), parts_of, count)
    return torch.where(of_layers[0] > 0, of_layers[0] / of_layers[1], torch.nan)
