"""Progress bars in a terminal: for the epochs, for the batches of an epoch, and for each evaluation."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from tqdm import tqdm
from tqdm.utils import disp_len

from train_manager.core.calls import sometimes, with_parameters
from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.data.readable import length_of
from train_manager.loop.losses import display_values
from train_manager.manager import TrainManager
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.lines import NotebookOutput, PrintedAbove, is_notebook
from train_manager.reporting.pace import Pace
from train_manager.reporting.values import texts_of

LEAST_BAR = 10  # columns of a bar below which texts beside it are left out
NOTEBOOK_COLUMNS = 90  # the width of a bar in a notebook, which has no terminal to ask
# Formats of tqdm, the longest first: `__str__` takes the first one that fits into the line.
FORMS = (
    "{l_bar}{bar}{r_bar}",  # with the rate, and the time of a step
    "{l_bar}{bar}| {n_fmt}/{total_fmt} [{remaining}{postfix}]",
    "{desc}: |{bar}| {n_fmt}/{total_fmt}{postfix}",
)
# A bar that is closed before its total, as by an early stop, has no time left.
CLOSED_FORMS = ("{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]", FORMS[-1])
UNSIZED_FORMS = ("{desc}: {n_fmt}{unit} [{elapsed}, {rate_fmt}{postfix}]", "{desc}: {n_fmt}{unit}{postfix}")


@recorded
class ProgressBar(Extension):
    """Draw bars for the epochs, for the batches of an epoch, and for each evaluation, with the fixtures that you name.

    In a terminal the bars stand below the lines that ``Log`` or a hook of yours prints meanwhile; in a notebook they
    are an output that is updated in place; into a file or a pipe nothing is printed. A fixture that is a tensor is read
    when the bar is drawn, not in each step, so a step seldom waits for the GPU. The bar of the batches also has the
    median time of a step, without the time of hooks. If the line is too short, times and numbers are left out before
    the bar is.

    >>> import io
    >>> from train_manager.testing import tiny_manager
    >>> terminal = io.StringIO()
    >>> bar = ProgressBar(show=["loss", "step_num"], force=True, interval=0, file=terminal)
    >>> result = tiny_manager(bar, epochs=2).train()
    >>> "loss=0.7" in terminal.getvalue(), "step_num=6" in terminal.getvalue()
    (True, True)

    *Runs at:* the start and the end of ``train``, ``train_step_epoch``, ``train_step_batch``, ``eval_step_epoch`` and
    ``eval_step_batch``.

    *Asks for:* the fixtures that ``show`` names, at the end of ``train_step_batch``; ``epoch_num``,
    ``batches_done``, ``datasource_name`` and ``exc_value``.

    *Leaves behind:* the finished bar of the epochs; after an error or Ctrl-C nothing.

    Args:
        show: names of fixtures for the bar of the batches; a dict, such as ``metrics``, is shown entry by entry, and a
            name that comes twice is shown once. In a batch without the fixture, its last text stays.
        force: draw the bars even if the output is not a terminal: a thousand times, and then once in three seconds.
        interval: the seconds between two drawings of a bar.
        file: where to draw; None is ``sys.stderr`` at the time when a bar opens.
    """

    sole = True
    ranks = 0

    def __init__(
        self,
        show: Iterable[str] = ("loss",),
        *,
        force: bool = False,
        interval: float = 0.1,
        file: TextIO | None = None,
    ) -> None:
        self.force = force
        self.interval = interval
        self.file = file
        self._unwatched = Pace()  # limits the drawings of forced bars, which nobody watches
        self._bars: dict[str, _Bar] = {}  # stage name -> the bar that lives as long as the stage
        self._printed: PrintedAbove | None = None  # moves prints above the bars, while a terminal has any
        self._notebook = NotebookOutput()
        self._show = [show] if isinstance(show, str) else list(show)
        # The hook asks for the fixtures of `show`, which are known only here. `sometimes`: a fixture that is not alive
        # is left out.
        self.post_train_step_batch = with_parameters(map(sometimes, self._show), self._end_batch)

    def pre_train(self, train_manager: TrainManager, epoch_num: int) -> None:
        end = train_manager._progress.call.end_epoch
        if end is not None:  # train_steps(n) has no number of epochs
            # train_epochs(n) may train more epochs than the manager was made for.
            total = max(end, train_manager.epochs)
            self._open("train", desc="epochs", unit="epoch", total=total, initial=epoch_num)

    def pre_train_step_epoch(self, train_manager: TrainManager, epoch_num: int, batches_done: int) -> None:
        total = train_manager.steps_per_epoch or length_of(train_manager.train_data)
        place = {"desc": f"epoch {epoch_num + 1}", "total": total, "initial": batches_done}
        self._open("train_step_epoch", train_manager=train_manager, **place)

    def _end_batch(self, shown: Mapping[str, Any]) -> None:  # the hook post_train_step_batch: see __init__
        bar = self._bars.get("train_step_epoch")
        if bar is not None:
            bar.advance(shown)

    # @always here and below: after an error the bars must be closed too, or they would stay in the terminal.
    @always
    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._close("train_step_epoch")
        if "train" in self._bars:
            self._bars["train"].move_to(epoch_num)

    @always
    def post_train(self, exc_value: BaseException | None, train_manager: TrainManager) -> None:
        self._close("train", leave=exc_value is None and train_manager._asked_from_outside is None)

    def pre_eval_step_epoch(self, train_manager: TrainManager, datasource_name: str) -> None:
        total = length_of(train_manager.eval_data.get(datasource_name, ()))
        self._open("eval_step_epoch", desc=f"eval {datasource_name:.30}", total=total)

    def pre_eval_step_batch(self) -> None:
        if "eval_step_epoch" in self._bars:
            # Counted as it begins, because a batch that a hook skips has no post hook.
            self._bars["eval_step_epoch"].begun += 1

    def post_eval_step_batch(self) -> None:
        bar = self._bars.get("eval_step_epoch")
        if bar is not None:
            bar.advance({})

    @always
    def post_eval_step_epoch(self) -> None:
        self._close("eval_step_epoch")

    # ---- bars ------------------------------------------------------------------------------------------------------

    def _open(self, stage: str, **options: Any) -> None:
        file = self.file or sys.stderr
        options = {"unit": "batch", "interval": self.interval, **options}
        if is_notebook(self.file):
            self._bars[stage] = _NotebookBar(output=self._notebook, ncols=NOTEBOOK_COLUMNS, **options)
        elif file.isatty():
            if self._printed is None:
                self._printed = PrintedAbove(file)
            self._bars[stage] = _Bar(file=self._printed.bars, **options)
        elif self.force:
            self._bars[stage] = _Bar(file=file, pace=self._unwatched, **options)

    def _close(self, stage: str, *, leave: bool = False) -> None:
        bar = self._bars.pop(stage, None)  # None: a hook has skipped the stage, or bars are not drawn here
        if bar is not None:
            bar.leave = leave and bar.n > bar.initial  # tqdm reads `leave` in close(): whether the last drawing stays
            bar.close()
        if self._printed is not None and not self._bars:
            self._printed.end()
            self._printed = None


class _Bar(tqdm):  # type: ignore[type-arg]  # it is not used as an iterator
    """Bar of tqdm that reads the fixtures it shows only when it draws, and leaves out what does not fit beside it."""

    monitor_interval = 0  # tqdm's monitor thread would redraw between two steps, when nothing has changed

    def __init__(
        self,
        *,
        interval: float,
        train_manager: TrainManager | None = None,
        pace: Pace | None = None,
        **options: Any,
    ) -> None:
        self._pace = pace or Pace(most=math.inf)  # limits the drawings of a forced bar only
        self._was_drawn = False  # a bar that was never drawn must not appear as it closes
        self._texts: dict[str, str] = {}  # of each fixture, from the last drawing at which it was alive
        self._step_text = ""  # the median time of a step
        # mininterval and miniters let tqdm draw at every update, because `advance` decides when to update.
        super().__init__(**{"dynamic_ncols": True, **options}, mininterval=0, miniters=1)
        self._train_manager = train_manager  # None for a bar of epochs, or of an evaluation
        self.begun = int(self.n)  # batches of an evaluation that have begun, skipped batches included
        self._interval = interval
        self._drawn_at = time.monotonic()

    def advance(self, shown: Mapping[str, Any]) -> None:
        """Move to the batch that has begun last, if it is time to draw again."""
        if time.monotonic() - self._drawn_at < self._interval or not self._pace.allows():
            return
        if self._train_manager is not None:
            texts = texts_of(display_values(shown, self._train_manager.losses_by_optimizer))
            # A table of epochs above the bar has another loss: the mean over the epoch.
            self._texts |= {"batch_loss" if name == "loss" else name: text for name, text in texts.items()}
            self._step_text = f"{1000 * self._train_manager.median_step_seconds:.3g} ms/step"
        self.move_to_last()
        self._drawn_at = time.monotonic()

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draw the bar, and return whether it was drawn; tqdm gives ``pos`` as it closes the bar."""
        is_end = pos is not None and (self.leave or self._was_drawn)
        if not (is_end or self._pace.allows()):
            return False
        self._was_drawn = True
        if not is_end:
            self._pace.drew()
        return bool(super().display(msg, pos))

    def move_to_last(self) -> None:
        """Draw the bar with the batch that has begun last; a bar of epochs stays where it is."""
        last = self.begun if self._train_manager is None else self._train_manager.batch_num
        self.move_to(max(last, int(self.n)))

    def move_to(self, done: int) -> None:
        """Draw the bar with ``done`` units done."""
        if self.total is not None and done > self.total:  # more than expected: draw no total
            self.total = None
        self.update(done - self.n)

    def __str__(self) -> str:
        settings = self.format_dict
        # Ctrl-C makes the terminal print "^C" behind the bar. If that wrapped,
        # tqdm would erase the second line only, and the bar would stay above it.
        if self.dynamic_ncols and settings["ncols"]:
            settings["ncols"] -= len("^C")
        for form, texts in self._forms():
            meter = {**settings, "postfix": ", ".join(texts), "bar_format": form}
            without_bar = self.format_meter(**{**meter, "bar_format": form.replace("{bar}", "")})
            if settings["ncols"] is None or disp_len(without_bar) + LEAST_BAR <= settings["ncols"]:
                break
        return str(self.format_meter(**meter))

    def _forms(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the formats of the bar with the texts beside it, the shortest last."""
        texts = [f"{name}={text}" for name, text in self._texts.items()]
        # tqdm disables a bar as it closes it, before the last drawing.
        forms = UNSIZED_FORMS if self.total is None else CLOSED_FORMS if self.disable and self.n < self.total else FORMS
        yield forms[0], [*texts, self._step_text] if self._step_text else texts
        # First the formats get shorter, then texts are left out from the end.
        for form in forms[1:]:
            yield form, texts
        for count in reversed(range(len(texts))):
            yield forms[-1], texts[:count]


class _NotebookBar(_Bar):
    """Bar in the output of a notebook, which shows those that are open below each other."""

    def __init__(self, *, output: NotebookOutput, **options: Any) -> None:
        self._output = output
        super().__init__(**options, file=io.StringIO(), dynamic_ncols=False, ascii=False)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        self._output.lines[id(self)] = str(self) if msg is None else msg
        self._output.show("\n".join(filter(None, self._output.lines.values())))

    def close(self) -> None:
        # The output below a cell cannot be taken away, so the last bar stays in it.
        self.leave = len(self._output.lines) == 1
        if self.leave:
            self.move_to_last()
        super().close()
        self._output.lines.pop(id(self), None)
