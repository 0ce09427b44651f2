"""The fixture ``writer`` where several processes train together: hooks ask for it in each, and rank 0 writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, final

from train_manager.model.sharding import as_whole
from train_manager.runs.store.thread import Take
from train_manager.runs.store.writer import BINS, MetricWriter

if TYPE_CHECKING:
    from torch import Tensor


@final
class SharedWriter(MetricWriter):
    """Write on rank 0 only; the others take part in making sharded tensors whole.

    Args:
        own: writes on rank 0; None on another rank.
    """

    def __init__(self, own: MetricWriter | None) -> None:
        self._own = own

    def scalar(self, name: str, value: Any, step: int | None = None) -> None:
        value = as_whole(value)
        if self._own is not None:
            self._own.scalar(name, value, step)

    def array(self, name: str, values: Any, labels: Sequence[str] | None = None, step: int | None = None) -> None:
        values = _full(values)
        if self._own is not None:
            self._own.array(name, values, labels, step)

    def histogram(self, name: str, values: Any, step: int | None = None, bins: int = BINS) -> tuple[Tensor, Tensor]:
        from train_manager.metrics.histogram import histogram_of

        values = _full(values)
        return histogram_of(values, bins) if self._own is None else self._own.histogram(name, values, step, bins)

    def text(self, name: str, text: str, step: int | None = None) -> None:
        if self._own is not None:
            self._own.text(name, text, step)

    def image(self, name: str, image: Any, step: int | None = None) -> None:
        image = as_whole(image)
        if self._own is not None:
            self._own.image(name, image, step)

    def file(self, name: str, path: str | PathLike[str], step: int | None = None) -> None:
        if self._own is not None:
            self._own.file(name, path, step)

    def follow(self, take: Take) -> Callable[[], None]:
        return (lambda: None) if self._own is None else self._own.follow(take)


def _full(values: Any) -> Any:
    return [*map(as_whole, values)] if isinstance(values, list | tuple) else as_whole(values)
