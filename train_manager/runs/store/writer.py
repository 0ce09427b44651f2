"""The fixture ``writer``: what hooks of users write, on its way into ``metrics.sqlite``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from train_manager.files.atomic import quote_path, replace_file
from train_manager.files.secrets import redacted
from train_manager.model.sharding import as_whole
from train_manager.runs.store.rows import BinnedCounts, Metric, StoredFile, Vector, storable
from train_manager.runs.store.schema import Series
from train_manager.runs.store.thread import Take
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

if TYPE_CHECKING:
    from torch import Tensor

    from train_manager.metrics.host_numbers import HostNumbers

BINS: Final = 64
MOST: Final = 2**63 - 1  # the largest whole number of SQLite
PLOTS: Final = "plots"  # the folder of pictures in a train_dir


class TrainingPosition(NamedTuple):
    """The position of the training."""

    step: int
    epoch: int
    phase: str


class ArrayForm(NamedTuple):
    """The properties that all arrays of a series share."""

    shape: tuple[int, ...]
    labels: tuple[str, ...] | None  # None until labels are given


class MetricTarget(Protocol):
    """What the metrics of hooks go to."""

    @property
    def numbers(self) -> HostNumbers:
        """What keeps tensors as they are now until they are written."""

    @property
    def train_dir(self) -> Path:
        """The folder of the training, to which paths of files are relative if they are in it."""

    def place(self) -> TrainingPosition:
        """Return where the training is."""

    def write(self, metric: Metric) -> None:
        """Take a metric."""

    def follow(self, take: Take) -> Callable[[], None]:
        """Hand rows to a function as they are written, and return what ends that."""


class MetricWriter:
    """What hooks write with: ``writer.scalar("grad_norm", norm)``.

    >>> import tempfile
    >>> from train_manager import Extension
    >>> from train_manager.extensions import MetricStore
    >>> from train_manager.runs.store.reader import MetricReader
    >>> from train_manager.testing import tiny_manager
    >>> class WeightNorm(Extension):
    ...     def post_train_step_batch(self, model, writer):
    ...         writer.scalar("weight_norm", sum(weight.norm() for weight in model.parameters()))
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), WeightNorm(), train_dir=folder).train()
    >>> [norms] = MetricReader(folder).scalars("weight_norm").values()
    >>> norms.steps
    [1, 2, 3]

    Every method takes the ``step`` that the metric belongs to, by default the step in which it is written.

    Where several processes train together, hooks ask for it in each: all take part in making sharded tensors whole,
    and rank 0 writes.

    Args:
        store: takes what the file will get; None in another process than rank 0.
    """

    def __init__(self, store: MetricTarget | None) -> None:
        self._store = store
        self._forms: dict[Series, ArrayForm] = {}  # of arrays

    def scalar(self, name: str, value: Any, step: int | None = None) -> None:
        """Write a number; a tensor with one element is read later, so that nothing waits for the device.

        Raises:
            InputError: it is not one number.
        """
        value = as_whole(value)
        if self._store is not None:
            self._write(self._store, name, require_number(name, self._store.numbers.keep(value)), step)

    def scalars(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write several numbers by their names, each as ``scalar`` does.

        Raises:
            InputError: one is not one number.
        """
        for name, value in values.items():
            self.scalar(name, value, step)

    def array(self, name: str, values: Any, labels: Sequence[str] | None = None, step: int | None = None) -> None:
        """Write several numbers as one row: one for each layer, or a matrix such as a confusion matrix.

        They are stored as float32, which costs a sixth of as many scalars; a tensor is read later, so that nothing
        waits for the device.

        Args:
            name: of the series, whose arrays all have the same shape.
            values: a tensor, an array, numbers, or a list of scalars.
            labels: the names of the values, or of the rows of a matrix; by default the labels that were given before.
            step: the step that the array belongs to.

        Raises:
            InputError: they are not numbers, or only one; their shape is not that of the array before, or not as many
                labels were given.
        """
        values = each_whole(values)
        if self._store is None:
            return
        try:
            kept = self._store.numbers.keep_floats(values)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            what = f"{name!r} must be numbers of one shape, but is {values!r:.60}"
            raise InputError(what, name=name, asked_by="writer.array", cure="give a tensor or numbers") from error
        series = Series(require_name(name), phase=self._store.place().phase)
        form = self._forms[series] = require_form(name, tuple(kept.shape), labels, self._forms.get(series))
        self._write(self._store, name, Vector(kept, form.shape, form.labels or ()), step)

    def histogram(self, name: str, values: Any, step: int | None = None, bins: int = BINS) -> tuple[Tensor, Tensor]:
        """Write how values are distributed: a tensor, an array, numbers, or lists of these; return edges and counts.

        Those of a tensor are counted on its device, and the counts are read later, so that nothing waits.

        Values that are not finite are left out.

        Raises:
            InputError: they are not numbers, or ``bins`` is not a number of bins.
        """
        from train_manager.metrics.histogram import histogram_of

        values = each_whole(values)
        require_count(bins, "bins", at_least=1)
        try:
            edges, counts = histogram_of(values, bins)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            what = f"{name!r} must be numbers, but is {values!r:.60}"
            raise InputError(what, name=name, asked_by="writer.histogram", cure="give a tensor or numbers") from error
        if self._store is not None:
            self._write(self._store, name, BinnedCounts(edges, counts), step)
        return edges, counts

    def text(self, name: str, text: str, step: int | None = None) -> None:
        """Write a text, such as the output of a model; values that look like secrets are replaced by ``***``."""
        if self._store is not None:
            self._write(self._store, name, storable(redacted(str(text))), step)

    def image(self, name: str, image: Any, step: int | None = None) -> None:
        """Write a picture as a PNG file below ``plots/`` of the ``train_dir``, and where it is, as ``file`` does.

        Args:
            name: of the series; the file is called by it and the step.
            image: a tensor with the channels first, an array with the channels last, one of these without channels, or
                a figure of matplotlib. Channels are grey, RGB or RGBA; numbers are bytes, bools, or floats from 0 to 1,
                beyond which they are cut. It is read now, which waits for the device.
            step: the step that the picture belongs to.

        Raises:
            InputError: it is not a picture, or the file cannot be written.
        """
        from train_manager.reporting.pictures import png_of

        image = as_whole(image)
        if self._store is None:
            return
        place = self._store.place()
        own_step = place.step if step is None else require_step(name, step)
        path = self._store.train_dir / PLOTS / picture_name(require_name(name), place.phase, own_step)
        try:
            replace_file(path, png_of(image))
        except ValueError as error:
            cure = "give one picture: a tensor with the channels first, an array with them last, or a figure"
            raise InputError(f"{name!r} {error}", name=name, asked_by="writer.image", cure=cure) from error
        except OSError as error:
            what = f"{quote_path(path)} cannot be written: {error.strerror}"
            raise InputError(what, name=name, asked_by="writer.image") from error
        self.file(name, path, step)

    def file(self, name: str, path: str | PathLike[str], step: int | None = None) -> None:
        """Write where a file is, how large it is and its hash; the file itself stays where it is.

        Raises:
            InputError: there is no such file.
        """
        if self._store is None:
            return
        given = Path(path)
        try:
            with given.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = given.stat().st_size
        except OSError as error:
            what = f"{quote_path(given)} cannot be recorded: {error.strerror}"
            raise InputError(what, name=name, asked_by="writer.file", cure="write the file before") from error
        whole, folder = given.absolute(), self._store.train_dir.absolute()
        inside = whole.relative_to(folder) if whole.is_relative_to(folder) else whole
        self._write(self._store, name, StoredFile(storable(str(inside)), size, sha256), step)

    def follow(self, take: Take) -> Callable[[], None]:
        """Hand the rows of the run to a function as they are written, half a second later; return what ends that.

        The thread that writes calls it, so it must return at once; after an error it is not called any more.
        """
        return (lambda: None) if self._store is None else self._store.follow(take)

    def _write(self, store: MetricTarget, name: str, value: Any, step: int | None) -> None:
        place = store.place()
        own_step = None if step is None else require_step(name, step)
        store.write((Series(require_name(name), phase=place.phase), place.step, own_step, place.epoch, time(), value))


def each_whole(values: Any) -> Any:
    """Return sharded tensors whole: one, or each of a list."""
    return [*map(as_whole, values)] if isinstance(values, list | tuple) else as_whole(values)


def require_name(name: str) -> str:
    """Return the name of a series, with ``***`` in place of values that look like secrets.

    Raises:
        InputError: it is empty, or not a text.
    """
    if not isinstance(name, str) or not name:
        what = f"a metric must have a name, but it is {name!r:.60}"
        raise InputError(what, name="name", asked_by="writer", cure='give a text: writer.scalar("grad_norm", value)')
    return _redact_name(name)


@lru_cache(10_000)
def _redact_name(name: str) -> str:
    return redacted(name)


def require_number(name: str, value: Any) -> Any:
    """Return a number, or a tensor that has one.

    Raises:
        InputError: it is another value, or a tensor of several.
    """
    if hasattr(value, "numel"):
        if value.numel() == 1 and not value.is_complex():
            return value
        what = f"{name!r} must be one number, but is a tensor of shape {tuple(value.shape)}"
        if value.is_complex():
            what = f"{name!r} must be one real number, but is {value!r:.60}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            what = f"{name!r} must be a number, but is {value!r:.60}"
    cure = "give a number, or writer.histogram for several"
    raise InputError(what, name=name, asked_by="writer.scalar", cure=cure)


def require_step(name: str, step: Any) -> int:
    """Return the step of a metric, which SQLite can store."""
    found = require_count(step, f"the step of {name!r}", cure="leave it out for the present step")
    return max(-MOST, min(MOST, found))


def require_form(
    name: str, shape: tuple[int, ...], labels: Sequence[str] | None, before: ArrayForm | None
) -> ArrayForm:
    """Return the shape and the labels of an array.

    Raises:
        InputError: it is one number or none, its shape is not that of the array before, or not as many labels were
            given.
    """
    what, cure = "", "give another name to what has another shape"
    if not shape or 0 in shape:
        what = f"{name!r} must be several numbers, but is of shape {shape}"
        cure = "give a vector or a matrix, or writer.scalar for one number"
    elif before is not None and shape != before.shape:
        is_vector = len(shape) == len(before.shape) == 1
        now, then = (shape[0], before.shape[0]) if is_vector else (f"shape {shape}", f"shape {before.shape}")
        what = (
            f"{name!r} has {now} values, but had {then} before"
            if is_vector
            else f"{name!r} is of {now}, but was of {then} before"
        )
    elif labels is None:
        return ArrayForm(shape, None) if before is None else before
    else:
        names = (labels,) if isinstance(labels, str) else tuple(map(str, labels))
        if len(names) == shape[0]:
            return ArrayForm(shape, names)
        what = f"{name!r} has {len(names)} labels for {shape[0]} {'values' if len(shape) == 1 else 'rows'}"
        cure = "give a label for each"
    raise InputError(what, name=name, asked_by="writer.array", cure=cure)


def picture_name(name: str, phase: str, step: int) -> str:
    """Return the name of a picture's file, which no other series has.

    >>> picture_name("samples", "", 7), picture_name("Sampled/ü", "head", 7)
    ('samples-7.png', 'head-sampled-b6aa0d4c-7.png')
    """
    whole = f"{phase}-{name}" if phase else name
    plain = re.sub(r"[^a-z0-9_]+", "-", whole.lower()).strip("-")[:80]
    if plain != name or phase:  # several names may become the same file, as on disks that ignore case
        found = hashlib.sha256(repr((phase, name)).encode("utf-8", "backslashreplace")).hexdigest()
        plain = f"{plain}-{found[:8]}".strip("-")
    return f"{plain}-{step}.png"
