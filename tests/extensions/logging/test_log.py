from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch
from torch import Tensor

from tests.support.host_reads import HostReads
from train_manager import Extension, InputError, SkipStage, TrainManager, every, exponentially, modifies
from train_manager.core.fixtures import Fixtures
from train_manager.errors import CheckError
from train_manager.extensions import Checkpoints, EarlyStopping, Log, LRSchedule, Metrics, ProgressBar
from train_manager.extensions.logging.log import rate_text
from train_manager.testing import Recorder, tiny_manager

SECONDS = r"(?:\d\.\d\d|\d\d\.\d|\d{3,})"  # below 10, below 100, and more
END = "(?:(?=  best$)|$)"  # of their place in a line of an epoch, which has 7 characters
RATE = re.compile(r", [0-9.]+ \S+$")


def without_ending(file: TextIO | None) -> list[str]:
    """Return the lines before those that say how a training ended."""
    assert isinstance(file, io.StringIO)
    found = file.getvalue().splitlines()
    return found[: next((number for number, line in enumerate(found) if re.match("done|stopped", line)), len(found))]


def lines(log: Log, *others: Extension, **options: Any) -> list[str]:
    """Return the lines of a training, whose rates are left out."""
    log.file = io.StringIO()
    tiny_manager(log, *others, **options).train()
    return [RATE.sub("", line) for line in without_ending(log.file)]


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


class EverySecond(Extension):
    """Provide a fixture in every second step."""

    def post_train_loss_forward(self, step_num: int, fixtures: Fixtures) -> None:
        if step_num % 2 == 0:
            fixtures.define("second", step_num, stage="train_step_batch")


# ---- where a training resumes ----------------------------------------------------------------------------------------


def resumed_lines(train_dir: Path, **options: Any) -> list[str]:
    """Return the lines of a training that resumes after two epochs."""
    tiny_manager(Checkpoints(), epochs=2, train_dir=train_dir).train()
    return lines(Log(), Checkpoints(resume=True), epochs=3, train_dir=train_dir, **options)


def test_a_training_that_resumes_says_from_which_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = resumed_lines(tmp_path / "runs")
    assert told[0] == f"resumes from {tmp_path}/runs/checkpoints/step-000000000006 (2 epochs done)"
    monkeypatch.chdir(tmp_path)
    told = resumed_lines(Path("others"))
    assert told[0] == "resumes from others/checkpoints/step-000000000006 (2 epochs done)"
    assert [line for line in told if line.startswith(("resumes", "3/3"))] == [told[0], told[-1]]


def test_a_training_that_begins_says_nothing_of_checkpoints(tmp_path: Path) -> None:
    log = Log()
    assert "resumes" not in "".join(lines(log, Checkpoints(resume=True), epochs=1, train_dir=tmp_path))


def test_the_last_epoch_of_a_loop_of_ones_own_has_a_line_without_an_evaluation_too() -> None:
    file = io.StringIO()
    tm = tiny_manager(Log(file=file))
    with tm.run():
        with tm.phase("head"):
            own_epoch(tm)
        own_epoch(tm)
    told = [line.split()[:2] for line in file.getvalue().splitlines() if line[0] == "1"]
    assert told == [["1", "0.7001"], ["1", "0.6762"]]


@pytest.mark.parametrize("by_batches", [False, True])
def test_a_loop_of_ones_own_that_resumes_prints_no_line_of_an_earlier_epoch(tmp_path: Path, by_batches: bool) -> None:
    for epochs, expected in ((2, ["1", "2"]), (4, ["3", "4"]), (4, [])):
        file = io.StringIO()
        tm = tiny_manager(Log(file=file), Checkpoints(resume=True), train_dir=tmp_path)
        with tm.run():
            while tm.epoch_num < epochs:
                if by_batches:
                    own_epoch(tm)
                else:
                    tm.train_epoch()
        assert [line.split()[0] for line in file.getvalue().splitlines() if line[0].isdigit()] == expected


def own_epoch(tm: TrainManager) -> None:
    for batch in tm.train_data or ():
        tm.train_on_batch(batch)
    tm.end_epoch()


# ---- a line for each epoch -------------------------------------------------------------------------------------------


def epoch_lines(*others: Extension, log: Log | None = None, **options: Any) -> list[str]:
    """Return the lines of a training, whose seconds are x."""
    log = log or Log()
    log.file = io.StringIO()
    tiny_manager(log, *others, **options).train()
    return [re.sub(rf"(?=.{{7}}{END}) *{SECONDS}{END}", "   x", line) for line in without_ending(log.file)]


def test_an_epoch_is_a_line_with_training_evaluation_metrics_and_seconds() -> None:
    assert epoch_lines(Metrics(accuracy=accuracy), epochs=2) == [
        "             training             valid",
        "epoch      loss  accuracy      loss  accuracy  seconds",
        "start                        0.6979    0.5625",
        "1/2      0.7001    0.5250    0.6867    0.4375     x  best",
        "2/2      0.6762    0.6000    0.6540    0.5938     x  best",
    ]


def test_a_phase_has_a_table_of_its_own() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, epochs=2)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("head", epochs=1):
            tm.train()
        tm.train_epochs(1)
    assert [line.split()[0] for line in without_ending(log.file)] == [
        *("training", "epoch", "start", "1/2"),
        *("training", "epoch", "start", "1"),
        *("training", "epoch", "2/2"),
    ]


class Losses(Extension):
    """Give evaluations these losses, one after the other."""

    def __init__(self, *losses: float) -> None:
        self.losses = iter(losses)

    @modifies("eval_result")
    def post_eval_step_epoch(self) -> dict[str, float]:
        return {"loss": next(self.losses)}


def test_best_is_the_best_of_a_phase_or_of_what_is_around_it() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, Losses(9, 4, 0.5, 0.4, 0.6, 3, 5), epochs=3)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("head", epochs=2):
            tm.train()
        tm.train()
    lines = [line for line in without_ending(log.file) if "/" in line]
    assert [(line.split("/")[0], line.endswith("best")) for line in lines] == [
        ("1", True),
        ("1", True),
        ("2", False),
        ("2", True),
        ("3", False),
    ]


def test_a_second_training_from_the_first_step_has_a_header_of_its_own() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, eval_data=None)
    begun = tm.state_dict()
    tm.train()
    tm.load_state_dict(begun)
    tm.train()
    told = [line.split()[0] for line in log.file.getvalue().splitlines()]  # type: ignore[union-attr]
    assert told == ["training", "epoch", "1", "done", "training", "epoch", "1", "done"]


def test_an_epoch_that_was_printed_is_not_repeated_in_the_line_of_a_later_evaluation() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, eval_at=())
    with tm.run():
        tm.train()
        tm.eval()
    told = [line.split()[:2] for line in log.file.getvalue().splitlines()]  # type: ignore[union-attr]
    assert [words for words in told if words[0] == "1"] == [["1", "0.7001"], ["1", "0.6867"]]


def test_without_evaluation_there_is_only_the_training() -> None:
    assert epoch_lines(epochs=2, eval_data=None) == [
        "        training",
        "epoch       loss  seconds",
        "1/2       0.7001     x",
        "2/2       0.6762     x",
    ]


def test_epochs_without_an_evaluation_have_empty_places_in_their_line() -> None:
    ask = Extension.of(
        post_train_step_epoch=lambda train_manager, epoch_num: epoch_num % 2 or train_manager.eval_soon()
    )
    assert [line[:27].split() for line in epoch_lines(ask, epochs=3, eval_at="start")[2:]] == [
        ["start", "0.6979"],
        ["1/3", "0.7001"],
        ["2/3", "0.6762", "0.6540"],
        ["3/3", "0.6359"],
    ]


def test_an_evaluation_within_an_epoch_begins_with_the_step() -> None:
    found = epoch_lines(epochs=2, eval_at=every(2))
    assert [line[:7].rstrip() for line in found[2:]] == ["step 2", "1/2", "step 4", "2/2"]


def test_an_epoch_that_is_left_begins_with_the_step() -> None:
    stop = Extension.of(post_train_step_batch=lambda train_manager, step_num: step_num == 2 and train_manager.stop("x"))
    assert epoch_lines(stop, eval_data=None)[-1].startswith("step 2")


def test_epochs_of_several_calls_continue_below_one_header() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, eval_data=None)
    for _ in range(3):
        tm.train_epochs(1)
    assert [line.split()[0] for line in log.file.getvalue().splitlines()] == [  # type: ignore[union-attr]
        "training",
        "epoch",
        "1",
        "2",
        "3",
    ]


def test_an_evaluation_alone_has_no_line() -> None:
    log = Log(file=io.StringIO())
    tiny_manager(log).eval()
    assert log.file.getvalue() == ""  # type: ignore[union-attr]


def best_epochs(*values: float, **options: Any) -> list[str]:
    """Return the epochs that are the best so far, if a metric has one value after another."""
    rest = iter(values)
    metrics = Metrics(eval={"score": lambda p, t: next(rest)})
    batch = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]
    log = Log(monitor="valid/score", **options)
    options = {"eval_data": {"valid": batch}, "eval_at": "epoch", "epochs": len(values)}
    return [line.split("/")[0] for line in epoch_lines(metrics, log=log, **options) if line.endswith("best")]


def test_the_best_so_far_is_marked() -> None:
    assert best_epochs(3, 4, 2, 2, 1, mode="min") == ["1", "3", "5"]
    assert best_epochs(3, 4, 2, 5, mode="max") == ["1", "2", "4"]


class Scores(Extension):
    """Give evaluations these losses and values of f1, one pair after the other."""

    def __init__(self, *pairs: tuple[float, float]) -> None:
        self.pairs = iter(pairs)

    @modifies("eval_result")
    def post_eval_step_epoch(self) -> dict[str, float]:
        return dict(zip(("loss", "f1"), next(self.pairs), strict=True))


F1 = "valid/f1"


@pytest.mark.parametrize(
    ("make", "best"),
    [
        (lambda: [], ["1", "2"]),
        (lambda: [EarlyStopping(F1)], ["1", "3"]),
        (lambda: [Checkpoints(monitor=F1)], ["1", "3"]),
        (lambda: [Checkpoints(), EarlyStopping(F1)], ["1", "2"]),
        (lambda: [Checkpoints(), EarlyStopping(F1, restore_best=True)], ["1", "3"]),
        (lambda: [Checkpoints(monitor=F1), EarlyStopping(restore_best=True)], ["1", "2"]),
        (lambda: [LRSchedule(torch.optim.lr_scheduler.ReduceLROnPlateau, monitor=F1)], ["1", "2"]),
    ],
)
def test_best_is_marked_by_the_metric_that_selects_the_kept_weights(
    make: Callable[[], list[Extension]], best: list[str], tmp_path: Path
) -> None:
    scores = Scores((9, 0.0), (5, 0.2), (4, 0.1), (6, 0.3))
    lines = epoch_lines(scores, *make(), epochs=3, train_dir=tmp_path)

    assert [line.split("/")[0] for line in lines if line.endswith("best")] == best


def test_a_paused_extension_does_not_say_which_epoch_is_best() -> None:
    log = Log(file=io.StringIO())
    tm = tiny_manager(log, EarlyStopping(F1), epochs=2)
    with tm.run(), tm.phase("head", without="early_stopping", epochs=1):
        tm.train()
    assert without_ending(log.file)[-1].endswith("best")


def test_what_only_lines_of_batches_have_is_refused_for_epochs() -> None:
    with pytest.raises(InputError) as error:
        Log(show="lr")
    assert str(error.value) == (
        "`show` is for the lines of batches, but every='epoch' prints lines of epochs\n"
        "  say how often: Log(every=50, show=...)"
    )


def test_after_an_error_in_an_evaluation_the_training_of_its_epoch_has_a_line() -> None:
    def fail(epoch_num: int) -> None:
        if epoch_num == 1:
            raise ValueError("on purpose")

    log = Log(file=io.StringIO())
    with pytest.raises(ValueError, match="on purpose"):
        tiny_manager(log, Extension.of(post_eval_step_batch=fail), epochs=2).train()
    assert without_ending(log.file)[-1].startswith("1/2       0.7001")


def test_a_line_stands_above_the_bars_of_a_terminal() -> None:
    terminal = io.StringIO()
    bar = ProgressBar(force=True, interval=0, file=terminal)
    tiny_manager(bar, Log(file=terminal), epochs=2).train()
    lines = terminal.getvalue().replace("\x1b[A", "\r").replace("\n", "\r").split("\r")
    assert [line.split()[0] for line in lines if line.endswith("best")] == ["1/2", "2/2"]


# ---- which lines -----------------------------------------------------------------------------------------------------


def test_there_is_a_line_every_so_many_batches_over_all_epochs() -> None:
    assert lines(Log(2, counts="step", show=()), epochs=3, eval_data=None) == ["step 2", "step 4", "step 6", "step 8"]


def test_a_schedule_may_say_when() -> None:
    log = Log(exponentially(1, 2), counts="step", show=())
    assert lines(log, epochs=3, eval_data=None) == ["step 1", "step 3", "step 7"]


def test_each_evaluation_has_a_line_with_every_set() -> None:
    batches = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]
    found = lines(Log(100), eval_data={"near": batches, "far": batches})
    assert [re.sub(r"0\.\d+", "0", line) for line in found] == [
        "step 0, epoch 0, near: loss 0; far: loss 0",
        "step 3, epoch 1, near: loss 0; far: loss 0",
    ]


def test_an_evaluation_whose_sets_are_all_skipped_has_no_line() -> None:
    def skip() -> None:
        raise SkipStage

    assert lines(Log(100), Extension.of(pre_eval_step_epoch=skip)) == []


def test_an_evaluation_in_the_middle_of_an_epoch_is_of_that_epoch() -> None:
    ask = Extension.of(
        post_train_step_batch=lambda train_manager, step_num: step_num == 4 and train_manager.eval_soon()
    )
    found = lines(Log(100), ask, epochs=2)
    assert [line.partition(", valid")[0] for line in found] == [
        "step 0, epoch 0",
        "step 3, epoch 1",
        "step 4, epoch 2",
        "step 6, epoch 2",
    ]


def test_an_evaluation_as_a_call_leaves_an_epoch_is_of_that_epoch() -> None:
    output = io.StringIO()
    tiny_manager(Log(100, file=output), eval_at="end").train_steps(4)
    assert output.getvalue().startswith("step 4, epoch 2, valid")


def test_lines_are_printed_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_manager(Log(3, show=(), counts="step"), eval_data=None).train()
    assert capsys.readouterr().out.splitlines()[0] == "step 3"


# ---- what a line has -------------------------------------------------------------------------------------------------


def test_the_counts_are_those_that_are_chosen_in_that_order() -> None:
    assert lines(Log(3, show=(), counts=("batch", "epoch")), eval_data=None) == ["batch 3 of 3, epoch 1"]
    assert lines(Log(3, counts=()), eval_data=None)[0].startswith("loss 0.")


def test_the_number_of_batches_is_left_out_if_the_data_has_no_length() -> None:
    class Unsized:
        def __iter__(self) -> Iterator[Any]:
            return iter([(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))] * 2)

    assert lines(Log(2, show=(), counts="batch"), train_data=Unsized(), eval_data=None) == ["batch 2"]


def test_batches_are_counted_anew_in_each_epoch() -> None:
    found = lines(Log(2, show=(), counts="batch"), epochs=2, eval_data=None)
    assert found == ["batch 2 of 3", "batch 1 of 3", "batch 3 of 3"]


def test_a_batch_without_an_epoch_has_neither_a_batch_nor_an_epoch_of_its_own() -> None:
    file = io.StringIO()
    tm = tiny_manager(Log(1, show=(), file=file))
    tm.train_on_batch(tm.train_data[0])  # type: ignore[index]
    assert file.getvalue() == "step 1, epoch 0\n"


def test_dicts_tuples_and_other_fixtures_are_shown_with_their_names() -> None:
    schedule = LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1))
    log = Log(3, show=["metrics", "learning_rates", "true_batch_size"], counts="step")
    (line,) = lines(log, schedule, Metrics(accuracy=accuracy), eval_data=None)
    assert re.sub(r"0\.\d{2,}", "0.x", line) == (
        "step 3, loss 0.x, moving_loss 0.x, accuracy 0.5, learning_rates 0.5, true_batch_size 8"
    )


def test_a_dict_of_names_says_what_the_line_calls_them() -> None:
    (line,) = lines(Log(3, show={"size": "true_batch_size"}, counts="step"), eval_data=None)
    assert line == "step 3, size 8"


def test_a_name_that_comes_twice_is_shown_once() -> None:
    (line,) = lines(Log(3, show=["loss", "metrics"], counts=()), Metrics(), eval_data=None)
    assert re.sub(r"\d\.\d+", "x", line) == "loss x, moving_loss x"


def test_a_fixture_that_is_absent_in_some_steps_is_left_out_of_their_lines() -> None:
    found = lines(Log(1, "second", counts="step"), EverySecond(), eval_data=None)
    assert found == ["step 1, second 0", "step 2", "step 3, second 2"]


def test_a_fixture_that_is_never_alive_is_refused_before_the_first_step_with_the_nearest_name() -> None:
    recorder = Recorder()
    with pytest.raises(CheckError, match=r"Log.post_train_step_batch wants 'lss'") as caught:
        tiny_manager(Log(50, show=["lss"]), recorder).train()
    assert caught.value.mistakes[0].nearest[0] == "loss"
    assert recorder.stages == []


# ---- the rate --------------------------------------------------------------------------------------------------------


def rates(**options: Any) -> list[str]:
    """Return what each line of two trainings ends with."""
    file = io.StringIO()
    tm = tiny_manager(Log(1, show=(), counts=(), file=file, **options), eval_data=None)
    tm.train_epochs(1)
    tm.train_epochs(1)
    return [re.sub(r"[0-9.]+(e[+]\d+)?", "x", line) for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(("rate", "unit"), [("examples", "examples/s"), ("batches", "batches/s"), ("ms", "ms/batch")])
def test_the_first_line_of_a_training_has_no_rate(rate: str, unit: str) -> None:
    assert rates(rate=rate) == ["", f"x {unit}", f"x {unit}"] * 2


def test_the_rate_can_be_left_out() -> None:
    assert rates(rate=None) == [""] * 6


def test_the_line_of_an_evaluation_has_no_rate_and_the_next_has_one_since_then() -> None:
    file = io.StringIO()
    tiny_manager(Log(3, show=(), counts="step", file=file)).train()
    before, line, after = without_ending(file)
    assert (before.startswith("step 0, valid"), after.startswith("step 3, valid")) == (True, True)
    assert RATE.search(line)
    assert not RATE.search(after)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("examples", 0.5, 10, 12345), "24690 examples/s"),
        (("batches", 4, 10, 160), "2.5 batches/s"),
        (("ms", 0.0005, 10, 160), "0.05 ms/batch"),
        (("ms", 1.0, 0, 0), "1000 ms/batch"),
        (("batches", 0.0, 1, 16), "1000000000 batches/s"),
    ],
)
def test_a_rate_is_a_few_characters(arguments: Any, text: str) -> None:
    assert rate_text(*arguments) == text


# ---- cost, copies and arguments --------------------------------------------------------------------------------------


def reads(tm: TrainManager) -> int:
    found = HostReads()
    with found:
        tm.train()
    return found.count


def test_a_tensor_is_read_once_for_each_line() -> None:
    assert reads(tiny_manager(Log(2, file=io.StringIO()), eval_data=None, epochs=2)) == 3


def test_a_number_of_examples_that_is_a_tensor_is_read_for_lines_only() -> None:
    class Tensors(TrainManager):
        def get_true_batch_size(self, targets: Tensor) -> Any:
            return torch.tensor(len(targets))

    plain = tiny_manager()
    log = Log(2, show=(), file=io.StringIO())
    tm = Tensors(
        model=plain.model, loss=plain.loss, optimizer=plain.optimizer, train_data=plain.train_data, extensions=[log]
    )
    assert reads(tm) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
def test_a_copy_continues_by_itself(copied: Any) -> None:
    log = Log(2, counts="step", show=())
    tiny_manager(log, eval_data=None).train()
    assert lines(copied(log), eval_data=None) == ["step 1", "step 3"]  # openings 4 and 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every must be a whole number of at least 1, but is 0"),
        ({"every": 9, "counts": "steps"}, "counts must be 'step', 'epoch' or 'batch', but is 'steps'"),
        ({"rate": "seconds"}, "rate must be 'examples', 'batches' or 'ms', but is 'seconds'"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        Log(**options)
    assert str(error.value) == message
