"""Try tricks that may make the steps of a training faster, alone and together, and say which of them do.

Each trial is the training itself on its own data, put back afterwards. The trials take turns, so that a machine that
becomes slower meanwhile slows all of them.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager, redirect_stdout
from functools import cached_property
from io import StringIO
from itertools import combinations, count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from train_manager.core.extension import Extension
from train_manager.data.named_sets import Endless
from train_manager.data.passes import Passes
from train_manager.extensions.reproducibility.checkpoints import Checkpoints
from train_manager.loop.progress import EVALUATIONS
from train_manager.loop.ranks import require_whole_model
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, TrainManagerError
from train_manager.trials.first_batches import FirstBatches
from train_manager.trials.rehearse import finding_of
from train_manager.trials.resumed_runs import script_as_function
from train_manager.trials.trial import TRAIN_DATA, Trial, data_of, in_a_line, require_manager, working
from train_manager.trials.tricks import Trick, require_kinds, tricks_for
from train_manager.trials.tune_report import HELPS, ROUNDS, WARM_UP, Tricks, Tried, TuneReport
from train_manager.validation import require_count

STEPS: Final = 20
"""The timed steps of a round; and the steps after which losses and weights are compared."""
MOST: Final = 12  # trials, beside the training as it is

Outcome = tuple[list[Tensor], list[Tensor]]
"""The losses of some steps, and the weights after them."""
Clock = Callable[[], float]


def tune(
    train_manager: TrainManager,
    *,
    steps: int = STEPS,
    without: str | Iterable[str] = (),
    quiet: bool = False,
    clock: Clock = perf_counter,
) -> TuneReport:
    """Try what may make the steps of a training faster, on its own model and data, and put everything back.

    Tried are, as far as they suit the training and it does not use them: a fused optimizer, ``channels_last`` for
    images, ``MixedPrecision`` (bf16), ``Compile``, ``InMemory`` in place of a DataLoader over tensors, and other
    numbers of workers and pinned memory for other DataLoaders. First each alone; then those that make a step faster by
    3 %, in those combinations that promise most; twelve trials at most.

    Each trial trains five rounds in turn with the others. The time of a step is the mean of a round, since workers
    deliver in bursts; its ratio to the training as it is in the same round, as the median of the rounds. Batches of a
    DataLoader, ``InMemory`` or ``Rows`` are read meanwhile; of other data the first ones are kept in memory. Losses and
    weights are compared on the same first batches. Extensions work as in ``rehearse``, but for ``Checkpoints``. Each
    round with ``Compile`` compiles anew.

    A training after it equals, to the bit, a training without it. ``print(tune(tm))`` shows a table, and the lines to
    paste. ``train-manager tune`` does the same to a script.

    Args:
        train_manager: the manager that will train; no run of it may be open.
        steps: the timed steps of a round.
        without: the tricks that are left out: "fused", "channels_last", "bf16", "Compile", "InMemory", "workers",
            "pinned".
        quiet: print no line for each trial on the standard error.
        clock: returns the seconds now.

    Raises:
        InputError: a trick that is left out is unknown, there is no optimizer, the data can be read only once, there
            are none, or the model has lazy parameters.
        StageError: a run is open.
    """
    tm = require_manager(train_manager, "tune")
    require_whole_model(tm.ranks, "tune")
    if not tm.optimizers:
        raise InputError("there is no optimizer to tune", name="optimizer", cure="pass optimizer=torch.optim.AdamW")
    data_of(tm, "tune on")
    left_out = require_kinds(without)
    return Tuning(tm, require_count(steps, "steps", at_least=1), clock, left_out, quiet=quiet).report()


@final
class Tuning:
    """The trials of a training.

    Args:
        train_manager: the manager of the training.
        steps: the timed steps of a round.
        clock: returns the seconds now.
        without: the kinds of tricks that are left out.
        quiet: print no line for each trial.
    """

    def __init__(
        self, train_manager: TrainManager, steps: int, clock: Clock, without: Set[str], *, quiet: bool
    ) -> None:
        self._tm, self._steps, self._clock, self._quiet = train_manager, steps, clock, quiet
        self._without = without
        with Trial(train_manager, "tune"):
            self._first = FirstBatches(data_of(train_manager, "tune on")[TRAIN_DATA], TRAIN_DATA, STEPS)
        self._notes: dict[str, None] = {}
        self._failed: dict[Tricks, str] = {}  # the errors that have ended trials

    def report(self) -> TuneReport:
        """Try each trick alone, and then combinations of those that help."""
        singles = [(one,) for one in tricks_for(self._tm, self._first.batches[0]) if one.kind not in self._without]
        tried, plain = self._try(singles)
        more = promising([one for one in tried[1:] if one.ratio <= HELPS], MOST - len(singles))
        tried += self._try(more)[0][1:] if more else []
        notes = dict.fromkeys(note for one in tried for trick in one.tricks if (note := trick.note))
        notes |= dict.fromkeys(noise_in(plain))
        return TuneReport(tried, median(plain), self._steps, len(self._first), [*self._notes, *notes])

    def _try(self, trials: Sequence[Tricks]) -> tuple[list[Tried], list[float]]:
        """Return what the training as it is has shown, and each of some trials; and the times of its rounds."""
        every = [(), *trials]
        differences = {tricks: self._attempt(tricks, self._differences) for tricks in every}
        rounds = []
        for number in range(ROUNDS):
            self._say(f"round {number + 1} of {ROUNDS}")
            rounds.append({tricks: self._attempt(tricks, self._seconds) for tricks in every})
        tried = []
        for tricks in every:
            if tricks in self._failed:
                tried.append(Tried(tricks, failed=self._failed[tricks]))
            else:
                # The times of a round are those of the same minute, so that their ratio has less noise than they.
                ratio = median(one[tricks] / one[()] for one in rounds)
                tried.append(Tried(tricks, ratio, *differences[tricks]))
        return tried, [one[()] for one in rounds]

    def _attempt(self, tricks: Tricks, trial: Callable[[Tricks], Any]) -> Any:
        """Return the result of a trial; None if it fails, or has failed before."""
        if tricks in self._failed:
            return None
        try:
            return trial(tricks)
        except Exception as error:  # a trick that does not suit the model may raise anything
            if not tricks:
                raise
            self._failed[tricks] = in_a_line(error)

    @cached_property
    def _plain(self) -> Outcome:
        return self._outcome(())

    def _differences(self, tricks: Tricks) -> tuple[float, float]:
        """Return the largest differences of the losses and of the weights from the training as it is."""
        self._say(Tried(tricks).name)
        losses, weights = map(largest_difference, self._plain, self._outcome(tricks))
        return losses, weights

    def _outcome(self, tricks: Tricks) -> Outcome:
        """Train on the first batches, and return the losses and the weights."""
        losses = list[Tensor]()
        # How batches are read changes neither, as all trials train on the same ones.
        with self._trying([one for one in tricks if not one.reads]):
            self._tm.train_data = self._first
            with self._tm._adding([Extension.of(post_train_step_batch=lambda loss: losses.append(loss.detach()))]):
                self._tm.train_steps(len(self._first))
            return losses, [one.detach().clone() for one in self._tm._setup.parameters()]

    def _seconds(self, tricks: Tricks) -> float:
        """Return the time of a step, as the mean of a round."""
        with self._trying(tricks):
            data = self._tm.train_data
            clocked = Clocked(data if is_read_anew(data) else self._first, self._now, (WARM_UP, WARM_UP + self._steps))
            self._tm.train_data = clocked
            self._tm.train_steps(WARM_UP + self._steps + 1)  # the clock is read before the last batch is
        if len(clocked.times) < 2:
            what = f"a hook has ended the training within {WARM_UP + self._steps} steps, so they cannot be timed"
            raise InputError(what, name="steps", cure="tune(tm, steps=...) takes fewer steps")
        return (clocked.times[1] - clocked.times[0]) / self._steps

    @contextmanager
    def _trying(self, tricks: Iterable[Trick]) -> Iterator[None]:
        """Put tricks in place, for a ``with`` block that leaves the training as it was."""
        tm = self._tm
        # A checkpoint is written between two steps, and takes its time and its room on the disk.
        names = [name for name in working(tm) if not isinstance(tm[name], Checkpoints)]
        with Trial(tm, "tune", copied=names) as trial, redirect_stdout(io.StringIO()):
            self._notes |= {f"extension {name!r} was left out: {why}": None for name, why in trial.left_out.items()}
            trial.move_files()
            data = tm.train_data
            trial.shorten(1, {TRAIN_DATA: self._first})
            tm.train_data = data
            for one in tricks:
                one.apply(tm)
            with tm._adding([_silent(one.extension) for one in tricks if one.extension is not None]):
                yield

    def _now(self) -> float:
        self._tm._setup.wait()
        return self._clock()

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(f"tune: {text}", file=sys.stderr, flush=True)


def promising(helpful: Sequence[Tried], most: int) -> list[Tricks]:
    """Return combinations of single tricks, those first whose ratios have the smallest product.

    Args:
        helpful: the trials of single tricks that help.
        most: how many combinations to return at most.
    """
    best: dict[str, Tried] = {}
    for one in sorted(helpful, key=lambda one: one.ratio):
        (trick,) = one.tricks
        best.setdefault(trick.reads or trick.name, one)  # two numbers of workers exclude each other
    chosen = [one for one in helpful if one in best.values()]  # in their order
    found = [some for size in range(2, len(chosen) + 1) for some in combinations(chosen, size)]
    found.sort(key=lambda some: math.prod(one.ratio for one in some))
    return [tuple(trick for one in some for trick in one.tricks) for some in found[:most]]


def _silent(extension: Callable[..., Extension]) -> Extension:
    """Return an extension of a trial; the line that `Compile` prints of each graph would stand above the table."""
    return extension(file=StringIO()) if getattr(extension, "compiles", False) else extension()


def largest_difference(ones: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    """Return the largest difference of two lists of tensors; nan if there is a nan."""
    pairs = zip(ones, others, strict=True)
    found = [(one.double() - other.double()).abs().max().item() for one, other in pairs if one.numel()]
    return torch.tensor([0.0, *found]).max().item()  # Python's max() would pass over a nan


def noise_in(seconds: Sequence[float]) -> Iterator[str]:
    """Yield a note if the times of rounds that do the same differ by more than a tenth."""
    least, most = min(seconds), max(seconds)
    if most > 1.1 * least:
        took = f"{1000 * least:.3g} to {1000 * most:.3g} ms"
        yield f"as it is, a step took {took}: the machine is busy, and small gains are noise"


def is_read_anew(data: Any) -> bool:
    """Return whether the batches of data are made as they are read, so that no hook can change the user's own."""
    return isinstance(data, Passes) or (isinstance(data, DataLoader) and data.batch_sampler is not None)


@final
class Clocked:
    """Data, pass after pass without an end, with the time at which some of their batches were asked for.

    Args:
        data: the data that are read.
        clock: returns the seconds now.
        at: the numbers of these batches, from 0.

    Attributes:
        data: the data.
        times: the times.
    """

    endless = True

    def __init__(self, data: Any, clock: Clock, at: Sequence[int]) -> None:
        self.data, self._clock, self._at = data, clock, at
        self.times: list[float] = []

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch that was given last."""
        return self.data.example_index

    def __iter__(self) -> Iterator[Any]:
        endless: Any = iter(Endless(self.data))
        with closing(endless) as batches:
            for number in count():
                if number in self._at:
                    self.times.append(self._clock())
                yield next(batches)


# ---- a script --------------------------------------------------------------------------------------------------------


@final
class Tuned(BaseException):
    """Ends a script at its first training; not an Exception, which the script might catch.

    Attributes:
        outcome: the report, or the error of the training.
    """

    def __init__(self, outcome: TuneReport | Exception) -> None:
        super().__init__()
        self.outcome = outcome


def tune_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    steps: int = STEPS,
    without: str | Iterable[str] = (),
    quiet: bool = False,
) -> TuneReport:
    """Run a script, as ``python script.py arguments...`` would, up to its first training, and tune that one.

    Args:
        script: the file.
        arguments: the arguments of the script.
        steps: as in ``tune``.
        without: as in ``tune``.
        quiet: as in ``tune``.

    Raises:
        InputError: the script is not there, fails, or does not train; or as in ``tune``.
    """
    left_out = require_kinds(without)  # before the script runs
    if not script.is_file():
        raise InputError(f"there is no script {script}", name=str(script), cure="give the path of a Python file")
    in_run = TrainManager._in_run

    def tuned_in_run(manager: TrainManager, entry: str | None) -> Any:
        if entry in EVALUATIONS:
            return in_run(manager, entry)
        setattr(TrainManager, "_in_run", in_run)  # noqa: B010  # type checkers know methods only
        try:
            raise Tuned(tune(manager, steps=steps, without=left_out, quiet=quiet))
        except Exception as error:
            raise Tuned(error) from None

    setattr(TrainManager, "_in_run", tuned_in_run)  # noqa: B010
    try:
        script_as_function(script, arguments)()
    except Tuned as ended:
        outcome = ended.outcome
    except SystemExit as end:  # of argparse, if the script lacks an argument
        what = f"{script.name} has called sys.exit({end.code!r}) before its first training"
        raise InputError(what, cure="its own arguments follow --: train-manager tune SCRIPT -- arguments") from None
    except Exception as error:
        outcome = error
    else:
        what = f"{script.name} has ended, and no TrainManager in it has trained"
        raise InputError(what, cure="give a script that calls tm.train()")
    finally:
        setattr(TrainManager, "_in_run", in_run)  # noqa: B010
    if isinstance(outcome, TuneReport):
        return outcome
    if isinstance(outcome, TrainManagerError):
        raise outcome
    found = finding_of("tune", outcome, before=f"{script.name} fails: ")
    raise InputError(f"{found.what}, {found.where}") from outcome
