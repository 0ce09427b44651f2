"""Rows A02-A05, A17-A21, A26 and A27 of the capabilities: Axon's training API, in this library's stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from train_manager import (
    CheckError,
    Extensible,
    Extension,
    HookError,
    InMemory,
    InputError,
    Rows,
    TrainManager,
    modifies,
    provides,
)
from train_manager.extensions import EarlyStopping
from train_manager.testing import Recorder, tiny_manager


def ten_batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))] * 10


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
    inside = [f"{side}_{stage}" for stage in forward for side in ("pre", "post")]

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


def test_a17_a_generator_of_batches_is_trained_on() -> None:
    tm = tiny_manager(train_data=(batch for batch in ten_batches()))
    tm.train()

    assert tm.step_num == 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.ones(8, 2), "train_data is a tensor\n  give an iterable of batches"),
        (3, "train_data is a int, which cannot be iterated\n  give an iterable of batches"),
        (TensorDataset(torch.ones(8, 2)), "train_data is a TensorDataset of single examples\n  wrap it: Rows"),
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


def test_a20_data_without_labels_is_trained_on() -> None:
    def reconstruction(prediction: Tensor, inputs: Tensor) -> Tensor:
        return F.mse_loss(prediction, inputs)

    tm = tiny_manager(
        model=torch.nn.Linear(2, 2),
        loss=reconstruction,
        train_data=InMemory(torch.ones(20, 2), batch_size=8),
        eval_data=None,
    )
    tm.train()

    assert tm.step_num == 3


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

    assert tm.epoch_num == 3
    assert tm.stop_reason == "EarlyStopping: 'valid/loss' was no better than 0 in 3 evaluations"


class Loop(Extensible):
    """A loop with an event of its own."""

    def train(self) -> None:
        with self.staged("epoch"):
            with self.staged("my_event", {"x": 1}):
                pass


def test_a26_an_unknown_event_is_refused() -> None:
    with pytest.raises(CheckError, match=r"post_my_evnt names no stage(.|\n)*did you mean 'my_event'\?"):
        Loop([Extension.of(post_my_evnt=lambda: None)]).check()


def test_a26_an_event_in_the_words_of_another_tool_is_refused() -> None:
    class Handler(Extension):
        def on_my_event(self) -> None: ...

    with pytest.raises(HookError, match=r"Handler.on_my_event looks like a hook, but would never run"):
        Loop([Handler()])


def test_a26_an_empty_dataset_is_refused() -> None:
    updates: list[int] = []
    tm = tiny_manager(Extension.of(pre_train_step_batch=lambda: updates.append(1)), train_data=[])
    with pytest.raises(InputError, match="train_data gave no batch in epoch 1"):
        tm.train()
    assert (updates, tm.epoch_num) == ([], 0)


def test_a27_events_of_ones_own_are_stages() -> None:
    seen = []
    loop = Loop([Extension.of(pre_my_event=lambda x: seen.append(x))])
    assert loop.check() == []
    loop.train()
    assert seen == [1]


@pytest.mark.parametrize("turned", [False, True])
def test_a27_handlers_may_be_attached_in_any_order(turned: bool) -> None:
    class Metric(Extension):
        @provides("metric")
        def post_my_event(self, x: int) -> int:
            return 10 * x

    seen: list[int] = []
    handlers = [Extension.of(post_my_event=lambda metric: seen.append(metric)), Metric()]
    Loop(handlers[::-1] if turned else handlers).train()
    assert seen == [10]


def test_a27_the_mode_of_a_monitor_is_known_given_or_refused() -> None:
    assert EarlyStopping("valid/loss").patience.mode == "min"
    assert EarlyStopping("valid/accuracy").patience.mode == "max"
    assert EarlyStopping("valid/score", mode="max").patience.mode == "max"
    with pytest.raises(InputError, match="cannot tell from the name 'valid/score'"):
        EarlyStopping("valid/score")
