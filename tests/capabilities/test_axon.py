"""The rows of Axon's training API (A), in this library's stages."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW
from torch.utils.data import TensorDataset

from tests.support.training import weights
from train_manager import (
    Extensible,
    Extension,
    InMemory,
    InputError,
    Objective,
    Rows,
    TrainManager,
    every,
    modifies,
    once,
    when,
)
from train_manager.errors import CheckError
from train_manager.extensions import ClipGradients, EarlyStopping, Metrics
from train_manager.testing import Recorder, tiny_manager


def ten_batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))] * 10


def test_a01_a_training_is_made_of_a_model_state_an_optimizer_objectives_data_and_options() -> None:
    class Apart(TrainManager):
        def train_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets)

        def eval_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return (prediction.argmax(dim=1) != targets).float().mean()

    model = nn.Linear(2, 2)
    model.load_state_dict({"weight": torch.eye(2), "bias": torch.tensor([0.0, 0.5])})
    result = Apart(
        model=model,
        optimizer=SGD(model.parameters(), lr=1.0),
        train_data=ten_batches(),
        eval_data=ten_batches(),
        epochs=2,
    ).train()

    assert (result.epochs, result.steps, result.updates) == (2, 20, 20)
    assert result.metrics == {"eval": {"loss": 0.0}}


@pytest.mark.parametrize(("options", "updates"), [({"steps_per_epoch": 3}, 6), ({}, 20)])
def test_a02_epochs_have_so_many_steps_or_run_until_the_data_is_empty(options: dict[str, int], updates: int) -> None:
    tm = tiny_manager(train_data=ten_batches(), epochs=2, **options)
    tm.train()

    assert tm.update_num == updates


def test_a03_a_batch_runs_from_before_over_gradients_and_update_to_metrics_and_after() -> None:
    """Metrics are what hooks read of the finished step, in ``post_train_step_batch``."""
    recorder = Recorder()
    tiny_manager(recorder, train_data=ten_batches()[:1], eval_data=None).train()
    forward = ["train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step"]
    inside = [f"{kind}_{stage}" for stage in forward for kind in ("pre", "post")]

    start = recorder.hooks.index("pre_train_step_batch")
    assert recorder.hooks[start : start + 10] == ["pre_train_step_batch", *inside, "post_train_step_batch"]


def test_a04_an_epoch_runs_from_before_over_its_batches_to_after_and_is_then_evaluated() -> None:
    """What needs the evaluation hooks ``post_eval``."""
    recorder = Recorder()
    tiny_manager(recorder, train_data=ten_batches()[:2]).train()
    outer = ("train_step_epoch", "train_step_batch", "eval")
    order = [hook for hook in recorder.hooks if hook.partition("_")[2] in outer]

    batch = ["pre_train_step_batch", "post_train_step_batch"]
    epoch = ["pre_train_step_epoch", *batch, *batch, "post_train_step_epoch"]
    assert order == ["pre_eval", "post_eval", *epoch, "pre_eval", "post_eval"]


def test_a05_the_evaluation_gets_its_own_objective_once_per_epoch() -> None:
    """And once before the first, so that there is something to compare with."""
    training: list[str] = []

    class OwnObjective(TrainManager):
        def train_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            training.append("train objective")
            return F.cross_entropy(prediction, targets)

        def eval_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return (prediction.argmax(dim=1) != targets).float().mean()

    class Errors(Extension):
        rates: list[Any] = []

        def post_eval(self, eval_results: dict[str, dict[str, float]]) -> None:
            self.rates.append(eval_results["valid"]["loss"])

    OwnObjective(
        model=torch.nn.Linear(2, 2),
        train_data=ten_batches(),
        eval_data={"valid": ten_batches()},
        optimizer=torch.optim.SGD,
        epochs=3,
        extensions=[Errors()],
    ).train()

    assert len(Errors.rates) == 1 + 3
    assert set(Errors.rates) <= {0.0, 1.0}
    assert len(training) == 30


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def test_a06_metrics_hold_functions_and_what_they_have_made_until_they_are_reset() -> None:
    metrics = Metrics(accuracy=accuracy)
    tm = tiny_manager(metrics)
    evaluated = tm.eval()["valid"]["accuracy"]
    data: Any = tm.eval_data["valid"]
    with torch.no_grad():
        by_hand = torch.cat([accuracy(tm.model(inputs), targets) for inputs, targets in data]).float().mean()
    assert evaluated == pytest.approx(by_hand.item())
    assert tm.eval()["valid"]["accuracy"] == evaluated  # not on top of the first
    assert metrics.training == {}
    tm.train()
    assert 0 < metrics.training["accuracy"] < 1
    metrics.reset()
    assert metrics.training == {}


def test_a07_what_a_hook_makes_of_the_weights_is_what_the_next_batch_is_trained_with() -> None:
    """A hook returns what it changes, where that is a fixture; weights it changes in place, as torch code does."""
    losses: list[float] = []

    def zero(train_manager: TrainManager, loss: Tensor) -> None:
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in train_manager.model.parameters():
                parameter.zero_()

    tiny_manager(Extension.of(post_train_step_batch=zero)).train()

    assert losses[0] != pytest.approx(math.log(2), abs=1e-4)
    assert losses[1:] == pytest.approx([math.log(2)] * 2)


def test_a07_the_batch_that_a_hook_returns_takes_the_place_of_the_batch() -> None:
    class First(Extension):
        """Keeps one example of each batch."""

        @modifies("batch")
        def pre_train_step_batch(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return batch[0][:1], batch[1][:1]

    tm = tiny_manager(First())
    tm.train()

    assert tm.samples_seen == 3


def test_a08_a_hook_stops_the_training_with_a_reason_that_the_result_carries() -> None:
    class Enough(Extension):
        def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
            if step_num == 2:
                train_manager.stop("enough")

    result = tiny_manager(Enough(), epochs=5).train()

    assert (result.stopped, result.steps) == ("enough", 2)
    assert result.stopped_by == ("Enough.post_train_step_batch at run > train > train_step_epoch > train_step_batch")


def test_a09_an_error_is_an_exception_with_the_path_of_its_stage() -> None:
    def breaks() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        tiny_manager(Extension.of(post_eval_step_batch=breaks)).train()

    assert caught.value.__notes__ == [
        "in hook Hooks.post_eval_step_batch of extension 'hooks', "
        "at stage run > train > eval > eval_step_epoch > eval_step_batch"
    ]


def test_a10_one_batch_is_trained_on_alone_with_hooks() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    before = weights(tm.model)
    loss = tm.train_on_batch(ten_batches()[0])

    assert loss is not None
    assert not loss.requires_grad
    assert (tm.step_num, tm.update_num, tm.epoch_num) == (1, 1, 0)
    assert not before.equal(weights(tm.model))
    assert recorder.stages[:3] == ["run", "load_checkpoint", "train_step_batch"]


def test_a11_a_loop_of_ones_own_around_single_batches_trains_as_train_does_to_the_bit() -> None:
    shelf, own = tiny_manager(ClipGradients(max_norm=0.1), epochs=3), tiny_manager(ClipGradients(max_norm=0.1))
    shelf.train()
    assert own.train_data is not None

    with own.run():
        for _ in range(3):
            for batch in own.train_data:
                own.train_on_batch(batch)
            own.eval()

    assert own.step_num == shelf.step_num == 9
    assert weights(own.model).equal(weights(shelf.model))


class Classify(Objective):
    """Its prediction is sharper than the model's."""

    def predict(self, model: nn.Module, inputs: Tensor) -> Tensor:
        return model(inputs) * 2  # type: ignore[no-any-return]

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> Mapping[str, Tensor | float]:
        return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}


def test_a13_an_objective_predicts_with_the_model_and_its_loss_is_of_that_prediction() -> None:
    losses: list[float] = []
    tm = tiny_manager(Extension.of(post_train_step_batch=lambda loss: losses.append(loss.item())), loss=Classify())
    data: Any = tm.train_data
    by_hand = F.cross_entropy(2 * tm.model(data[0][0]), data[0][1]).item()
    tm.train()

    assert losses[0] == by_hand


def test_a14_the_metrics_of_an_objective_appear_unasked() -> None:
    tm = tiny_manager(loss=Classify(), epochs=20)
    before = tm.eval()["valid"]
    tm.train()

    assert list(before) == ["loss", "accuracy"]
    assert tm.eval()["valid"]["accuracy"] > before["accuracy"]


@pytest.mark.parametrize("kind", ["foreach", "fused"])
@pytest.mark.parametrize("optimizer", [AdamW, SGD])
def test_a15_an_optimizer_that_is_fused_gives_what_the_plain_one_gives(optimizer: Any, kind: str) -> None:
    """The step of the optimizer is a stage of its own, whatever the optimizer makes of it."""

    def trained(**how: bool) -> Tensor:
        tm = tiny_manager(optimizer=lambda parameters: optimizer(parameters, lr=0.01, **how), epochs=5)
        tm.train()
        return weights(tm.model)

    torch.testing.assert_close(trained(**{kind: True}), trained(foreach=False), rtol=0, atol=1e-6)


def test_a17_a_generator_of_batches_is_trained_on() -> None:
    tm = tiny_manager(train_data=(batch for batch in ten_batches()))
    tm.train()

    assert tm.step_num == 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            torch.ones(8, 2),
            "train_data must be an iterable of batches, but is a tensor\n  cut it into batches: InMemory",
        ),
        (3, "train_data must be an iterable of batches, but is of type int"),
        (
            TensorDataset(torch.ones(8, 2)),
            "train_data must be an iterable of batches, but is a TensorDataset of single examples\n  wrap it: Rows",
        ),
    ],
)
def test_a17_what_is_no_stream_of_batches_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(train_data=data)

    assert str(caught.value).startswith(message)


class ByRow:
    """A class without a base: a length, and an example for each number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.ones(2) * row, row % 2


class Stream:
    """A class without a base: batches, one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(ten_batches())


@pytest.mark.parametrize("data", [Rows(ByRow(), batch_size=2), Stream()], ids=["by row", "a stream"])
def test_a18_data_is_anything_that_is_iterable_or_has_rows(data: Any) -> None:
    tm = tiny_manager(train_data=data, eval_data={"valid": data})
    tm.train()

    assert tm.step_num == 10


def test_a19_arrays_in_memory_are_data_without_more_ado() -> None:
    x, y = torch.ones(20, 2), torch.zeros(20, dtype=torch.long)
    tm = tiny_manager(train_data=InMemory(x, y, batch_size=8, shuffle=True, seed=0))
    tm.train()

    assert tm.step_num == 3


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@pytest.mark.parametrize(
    "batch", [dict(zip(("inputs", "targets"), ten_batches()[0], strict=True)), Pair(*ten_batches()[0])]
)
def test_a20_the_columns_of_a_batch_may_have_names(batch: Any) -> None:
    tm = tiny_manager(train_data=[batch], eval_data=[batch])
    tm.train()

    assert (tm.step_num, tm.samples_seen) == (1, 2)


def test_a20_columns_of_numbers_and_of_texts_are_trained_on() -> None:
    seen: list[str] = []

    class WordLength(TrainManager):
        def model_forward(self, batch: dict[str, Any]) -> Tensor:
            seen.extend(batch["name"])
            lengths = torch.tensor([[float(len(name))] for name in batch["name"]])
            return self.model(torch.cat([lengths, batch["age"][:, None].float()], dim=1))  # type: ignore[no-any-return]

        def loss_forward(self, prediction: Tensor, batch: dict[str, Any]) -> Tensor:
            return F.cross_entropy(prediction, batch["label"])

    columns = {"name": ["Ann", "Bo", "Cleo"], "age": [31, 47, 12], "label": [0, 1, 0]}
    WordLength(model=torch.nn.Linear(2, 2), optimizer=torch.optim.SGD, train_data=Rows(columns, batch_size=2)).train()

    assert seen == ["Ann", "Bo", "Cleo"]


def test_a21_early_stopping_is_an_extension_that_receives_the_results_of_the_evaluation() -> None:
    class Worse(Extension):
        """Evaluations that get worse and worse."""

        @modifies("eval_result")
        def post_eval_step_epoch(self, epoch_num: int) -> dict[str, float]:
            return {"loss": float(epoch_num)}

    tm = tiny_manager(EarlyStopping("valid/loss", patience=3), Worse(), epochs=10)
    tm.train()

    assert tm.epoch_num == 4
    assert tm.stop_reason == "EarlyStopping: 'valid/loss' was no better than 1 in 3 evaluations"


def test_a23_a_line_a_step_of_ones_own_and_a_loop_of_ones_own_train_alike() -> None:
    class OwnStep(TrainManager):
        def train_model_forward(self, inputs: Tensor) -> Tensor:
            return self.model(inputs)  # type: ignore[no-any-return]

        def train_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets)

    line, loop, tm = tiny_manager(epochs=2), tiny_manager(), tiny_manager()
    step = OwnStep(model=tm.model, optimizer=tm.optimizer, train_data=tm.train_data, epochs=2)
    line.train()
    step.train()
    with loop.run():
        for batch in [*(loop.train_data or ())] * 2:
            loop.train_on_batch(batch)

    assert weights(line.model).equal(weights(step.model))
    assert weights(line.model).equal(weights(loop.model))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("explanation/side-by-side.md", ["Lightning", "Ignite"]),
        ("reference/coming-from-others.md", ["Axon", "GoMLX", "FluxTraining"]),
    ],
)
def test_a24_the_docs_compare_this_library_with_others(page: str, names: list[str]) -> None:
    """That what they say is so stands in tests/examples and in tests/test_coming_from.py."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()

    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize(
    ("schedule", "at"),
    [
        (lambda hook: hook, [1, 2, 3, 4, 5, 6]),
        (once, [1]),
        (every(2), [2, 4, 6]),
        (when(lambda step_num: step_num == 3), [3]),
        (when(lambda step_num, epoch_num: (step_num + epoch_num) % 3 == 0), [3, 5]),
    ],
    ids=["always", "once", "every n", "only", "a function"],
)
def test_a25_filters_are_always_once_every_n_only_and_a_function(schedule: Callable[..., Any], at: list[int]) -> None:
    seen: list[int] = []
    handler = Extension.of(post_train_step_batch=schedule(lambda step_num: seen.append(step_num)))
    tiny_manager(handler, epochs=2).train()

    assert seen == at


def test_a25_a_handler_with_a_filter_halts_the_epoch() -> None:
    class Halt(Extension):
        @every(4)
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.end_epoch()

    result = tiny_manager(Halt(), epochs=3).train()

    assert (result.epochs, result.steps, result.stopped) == (3, 3 + 1 + 3, None)


def test_a25_a_handler_halts_the_loop() -> None:
    class Halt(Extension):
        @when(lambda step_num: step_num == 4)
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.stop("halted")

    result = tiny_manager(Halt(), epochs=5).train()

    assert (result.epochs, result.steps, result.stopped) == (1, 4, "halted")
    assert result.stopped_by == "Halt.post_train_step_batch at run > train > train_step_epoch > train_step_batch"


class GetsBetterOnce(Extension):
    """Results of evaluations: 3, 2, 2, 2, ..."""

    @modifies("eval_result")
    def post_eval_step_epoch(self, epoch_num: int) -> dict[str, float]:
        return {"loss": 3.0 if epoch_num == 0 else 2.0}


def test_a25_a_monitor_acts_when_a_metric_is_better_than_ever() -> None:
    class Monitor(Extension):
        def __init__(self) -> None:
            self.best, self.acted_in = math.inf, list[int]()

        def post_eval(self, eval_results: Mapping[str, Mapping[str, float]], epoch_num: int) -> None:
            if eval_results["valid"]["loss"] < self.best:
                self.best = eval_results["valid"]["loss"]
                self.acted_in.append(epoch_num)

    monitor = Monitor()
    tiny_manager(GetsBetterOnce(), monitor, epochs=4).train()

    assert monitor.acted_in == [0, 1]


def test_a25_a_loop_resumes_from_the_state_in_which_another_was_left() -> None:
    whole, first = tiny_manager(seed=0, epochs=4), tiny_manager(seed=0, epochs=2)
    whole.train()
    first.train()
    from_state = pickle.loads(pickle.dumps(first))
    from_state.epochs = 4
    result = from_state.train()

    assert (result.epochs, from_state.epoch_num, from_state.step_num) == (2, 4, whole.step_num)
    assert torch.equal(weights(from_state.model), weights(whole.model))


class Loop(Extensible):
    """A loop with an event of its own."""

    def train(self) -> None:
        with self.staged("epoch"):
            with self.staged("my_event", {"x": 1}):
                pass


def test_a26_an_unknown_event_is_refused() -> None:
    with pytest.raises(CheckError, match=r"post_my_evnt names no stage(.|\n)*did you mean 'post_my_event'\?"):
        Loop([Extension.of(post_my_evnt=lambda: None)]).check()


def test_a27_events_of_ones_own_are_stages() -> None:
    seen = []
    loop = Loop([Extension.of(pre_my_event=lambda x: seen.append(x))])
    assert loop.check() == []
    loop.train()
    assert seen == [1]
