"""The fixture ``writer``: figures, texts and files of a user's hooks, on their way into ``metrics.sqlite``."""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, final

from train_manager.files.atomic import shown_path
from train_manager.runs.record.metric_items import Item, Other
from train_manager.runs.record.metric_rows import storable
from train_manager.runs.record.metric_schema import Series
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

BINS: Final = 64
MOST: Final = 2**63 - 1


class Place(NamedTuple):
    """Where the training is."""

    step: int
    epoch: int
    phase: str


@final
class FigureWriter:
    """What hooks write with: ``writer.scalar("grad_norm", norm)``.

    >>> import tempfile
    >>> from train_manager import Extension
    >>> from train_manager.extensions import MetricStore
    >>> from train_manager.runs.record.metric_reader import MetricReader
    >>> from train_manager.testing import tiny_manager
    >>> class WeightNorm(Extension):
    ...     def post_train_step_batch(self, model, writer):
    ...         writer.scalar("weight_norm", sum(weight.norm() for weight in model.parameters()))
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), WeightNorm(), train_dir=folder).train()
    >>> [norms] = MetricReader(folder).scalars("weight_norm").values()
    >>> norms.steps
    [1, 2, 3]

    Every method takes the ``step`` that the figure is of, by default that which it is written in.

    Args:
        number: returns the number of a series.
        append: takes what the file will get.
        place: returns where the training is.
        kept: returns what of a value is kept until it is written: a tensor that nobody changes.
        train_dir: the folder of the training, to which paths of files are relative if they are in it.
    """

    def __init__(
        self,
        number: Callable[[Series], int],
        append: Callable[[Item], None],
        place: Callable[[], Place],
        kept: Callable[[Any], Any],
        train_dir: Path,
    ) -> None:
        self._number, self._append, self._place, self._kept = number, append, place, kept
        self._train_dir = train_dir

    def scalar(self, name: str, value: Any, step: int | None = None) -> None:
        """Write a number; a tensor with one element is read later, so that nothing waits for the device.

        Raises:
            InputError: it is not one number.
        """
        place = self._place()
        value = require_number(name, self._kept(value))
        number = self._number(Series(require_name(name), phase=place.phase))
        if step is None:
            self._append((number, place.step, place.epoch, time(), value))
        else:
            own_step = require_step(name, step)
            self._append(Other("scalars", number, place.step, place.epoch, time(), (value,), own_step))

    def histogram(self, name: str, values: Any, step: int | None = None, bins: int = BINS) -> None:
        """Write how values are distributed: a tensor, an array or numbers. It is read now, which waits for the device.

        Values that are not finite are left out.

        Raises:
            InputError: they are not numbers, or ``bins`` is not a number of bins.
        """
        require_count(bins, "bins", at_least=1)
        try:
            edges, counts = histogram_of(values.tolist() if hasattr(values, "tolist") else values, bins)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{name!r} must be numbers, but is {values!r:.60}"
            raise InputError(what, name=name, asked_by="writer.histogram", cure="give a tensor or numbers") from error
        self._other("histograms", name, step, (packed("d", edges), packed("q", counts)))

    def text(self, name: str, text: str, step: int | None = None) -> None:
        """Write a text, such as what a model has generated."""
        self._other("texts", name, step, (storable(str(text)),))

    def file(self, name: str, path: str | PathLike[str], step: int | None = None) -> None:
        """Write where a file is, how large it is and its hash; the file itself stays where it is.

        Raises:
            InputError: there is no such file.
        """
        given = Path(path)
        try:
            with given.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = given.stat().st_size
        except OSError as error:
            what = f"{shown_path(given)} cannot be recorded: {error.strerror}"
            raise InputError(what, name=name, asked_by="writer.file", cure="write the file before") from error
        whole, folder = given.absolute(), self._train_dir.absolute()
        inside = whole.relative_to(folder) if whole.is_relative_to(folder) else whole
        self._other("files", name, step, (storable(str(inside)), size, sha256))

    def _other(self, table: str, name: str, step: int | None, values: tuple[Any, ...]) -> None:
        place = self._place()
        number = self._number(Series(require_name(name), phase=place.phase))
        own_step = None if step is None else require_step(name, step)
        self._append(Other(table, number, place.step, place.epoch, time(), values, own_step))


def require_name(name: str) -> str:
    """Return the name of a series.

    Raises:
        InputError: it is empty, or not a text.
    """
    if not isinstance(name, str) or not name:
        what = f"a figure must have a name, but it is {name!r:.60}"
        raise InputError(what, name="name", asked_by="writer", cure='give a text: writer.scalar("grad_norm", value)')
    return name


def require_number(name: str, value: Any) -> Any:
    """Return a number, or a tensor that has one.

    Raises:
        InputError: it is another value, or a tensor of several.
    """
    if hasattr(value, "numel"):
        if value.numel() == 1:
            return value
        what = f"{name!r} must be one number, but is a tensor of shape {tuple(value.shape)}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            what = f"{name!r} must be a number, but is {value!r:.60}"
    cure = "give a number, or writer.histogram for several"
    raise InputError(what, name=name, asked_by="writer.scalar", cure=cure)


def require_step(name: str, step: Any) -> int:
    """Return the step of a figure, which SQLite can store."""
    found = require_count(step, f"the step of {name!r}", cure="leave it out for the present step")
    return max(-MOST, min(MOST, found))


def histogram_of(values: Iterable[Any], bins: int) -> tuple[list[float], list[int]]:
    """Return the edges of bins of equal width, and how many finite values are in each; the last has its upper edge.

    >>> histogram_of([0, .1, .6, 1.], bins=2)
    ([0.0, 0.5, 1.0], [2, 2])
    """
    finite = [value for value in flat(values) if value - value == 0]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    top = low + 1.0 if low == high else high
    width = top / bins - low / bins  # top - low could be infinite
    edges = [min(low + width * (number / 2) + width * (number / 2), top) for number in range(bins)] + [top]
    counts = [0] * bins
    for value in finite:
        counts[min(bisect_right(edges, value), bins) - 1] += 1
    return edges, counts


def flat(values: Any) -> Iterable[float]:
    """Yield the numbers in lists of lists."""
    if isinstance(values, int | float):
        yield float(values)
    elif isinstance(values, str | bytes | Mapping):
        raise TypeError("these are not numbers")
    else:
        for value in values:
            yield from flat(value)


def packed(kind: str, values: Iterable[Any]) -> bytes:
    """Return numbers as bytes, the lowest byte first."""
    found = array(kind, values)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()
