"""The loop: it trains as a bare PyTorch loop does, counts right, and leaves nothing behind."""

from __future__ import annotations

import gc
import random
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau, StepLR
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from tests.training import At, Batch, Values, make_batches, shuffled, skip_batch, skip_stage, stop_at, warm_up, weights
from train_manager import (
    CheckError,
    Extension,
    FixtureNotFound,
    InputError,
    NonFiniteLoss,
    SkipBatch,
    SkipStage,
    StageError,
    TrainManager,
    always,
    modifies,
)
from train_manager.testing import Recorder, tiny_manager

TRAINING_STAGES = ["train_step_batch", "train_model_forward", "train_loss_forward"]
TRAINING_STAGES += ["train_backward", "train_optimizer_step"]


class Watcher(Extension):
    """Reads everything, everywhere."""

    def __init__(self) -> None:
        self.values = 0

    def pre_stage(self, **fixtures: Any) -> None:
        self.values += sum(float(value.detach().sum()) for value in fixtures.values() if isinstance(value, Tensor)) != 0

    def post_stage(self, **fixtures: Any) -> None:
        self.pre_stage(**fixtures)

    @always
    def post_run(self, exc_type: object, **fixtures: Any) -> None:
        self.pre_stage(**fixtures)

    def around_train_step_batch(self, step_num: int) -> Iterator[None]:
        yield


class Tagged(Watcher):
    """A second one, which looks at the gradients too."""

    def post_train_backward(self, train_manager: TrainManager) -> None:
        self.norms = [p.grad.norm().item() for p in train_manager.model.parameters() if p.grad is not None]


def fail() -> None:
    raise ValueError("in a hook")


@always
def fail_always() -> None:
    raise ValueError("in an always hook")


class Own(TrainManager):
    """Notes which of its methods were called."""

    def __init__(self, **options: Any) -> None:
        self.called: list[str] = []
        given = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "optimizer": SGD, "train_data": make_batches(1)}
        super().__init__(**{**given, **options})


# ---- bit for bit ------------------------------------------------------------------------------------------------


def make_model(dropout: float) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))


class Augmented:
    """Data that draws from all the global random states."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Batch]:
        for inputs, targets in make_batches(5):
            yield inputs + torch.randn_like(inputs) * random.random() + float(np.random.rand()), targets


def sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return AdamW(parameters, lr=0.01, weight_decay=0.1)


OPTIMIZERS = pytest.mark.parametrize("optimizer", [sgd, adamw])


DATA = pytest.mark.parametrize(
    "data", [lambda: make_batches(5), shuffled, Augmented], ids=["list", "shuffled", "drawn"]
)


SCHEDULES = pytest.mark.parametrize("schedule", [None, warm_up], ids=["constant", "schedule"])


DROPOUTS = pytest.mark.parametrize("dropout", [0.0, 0.5])


MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


MakeSchedule = Callable[[Optimizer], LRScheduler] | None


def bare_loop(optimizer: MakeOptimizer, data: Iterable[Batch], schedule: MakeSchedule, dropout: float) -> Tensor:
    """What a TrainManager is to do, without it."""
    model = make_model(dropout)
    opt = optimizer(model.parameters())
    scheduler = schedule(opt) if schedule else None
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    model.train()
    for _ in range(3):
        for inputs, targets in data:
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            opt.step()
            opt.zero_grad()
        if scheduler:
            scheduler.step()
    return weights(model)


def managed(
    optimizer: MakeOptimizer, data: Iterable[Batch], schedule: MakeSchedule, dropout: float, *extensions: Extension
) -> Tensor:
    tm = TrainManager(
        model=make_model(dropout),
        loss=F.cross_entropy,
        optimizer=optimizer,
        train_data=data,
        eval_data={"valid": shuffled(), "noisy": Augmented()},
        lr_schedule=schedule,
        epochs=3,
        seed=3,
        extensions=extensions,
    )
    tm.train()
    return weights(tm.model)


@OPTIMIZERS
@DATA
@SCHEDULES
@DROPOUTS
def test_the_weights_are_those_of_a_bare_loop_bit_for_bit(
    optimizer: MakeOptimizer, data: Callable[[], Iterable[Batch]], schedule: MakeSchedule, dropout: float
) -> None:
    assert torch.equal(managed(optimizer, data(), schedule, dropout), bare_loop(optimizer, data(), schedule, dropout))


@OPTIMIZERS
@DATA
def test_watching_extensions_leave_the_weights_bit_for_bit(
    optimizer: MakeOptimizer, data: Callable[[], Iterable[Batch]]
) -> None:
    watched = managed(optimizer, data(), warm_up, 0.5, Watcher(), Tagged(), Recorder())

    assert torch.equal(watched, bare_loop(optimizer, data(), warm_up, 0.5))


def test_evaluating_less_often_leaves_the_weights_bit_for_bit() -> None:
    no_eval = At("pre_eval", skip_stage)

    assert torch.equal(managed(sgd, Augmented(), None, 0.5, no_eval), managed(sgd, Augmented(), None, 0.5))


def test_evaluating_after_every_step_leaves_the_weights_bit_for_bit() -> None:
    soon = At("post_train_step_batch", lambda train_manager: train_manager.eval_soon())

    assert torch.equal(managed(sgd, Augmented(), None, 0.5, soon), managed(sgd, Augmented(), None, 0.5))


def test_epochs_in_several_runs_are_those_of_one_run() -> None:
    at_once, in_turn = (tiny_manager(train_data=shuffled(), seed=0, epochs=3) for _ in range(2))
    at_once.train()
    in_turn.train_epochs(1)
    in_turn.eval()
    in_turn.train()

    assert torch.equal(weights(in_turn.model), weights(at_once.model))


# ---- data cut into epochs, and the last batch -------------------------------------------------------------------


def endless() -> Iterator[Batch]:
    while True:
        yield from make_batches(4)


class Again:
    """Four batches, without a length, again and again; counts how many were made."""

    made = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in make_batches(4):
            self.made += 1
            yield batch


def test_a_generator_without_end_is_cut_into_epochs() -> None:
    tm = tiny_manager(train_data=endless(), steps_per_epoch=3, epochs=2)
    tm.train()

    assert (tm.epoch_num, tm.step_num) == (2, 6)


@pytest.mark.parametrize("data", [endless, lambda: make_batches(4), Again])
def test_an_epoch_continues_where_the_last_one_stopped(data: Callable[[], Iterable[Batch]]) -> None:
    batches = Values("post_train_step_batch", "inputs")
    tm = tiny_manager(batches, train_data=data(), steps_per_epoch=3)
    tm.train_epochs(1)
    tm.train_epochs(1)
    expected = [make_batches(4)[n % 4][0] for n in range(6)]

    assert all(torch.equal(a, b) for a, b in zip(batches.seen, expected, strict=True))


def test_the_last_batch_of_so_many_steps_is_known() -> None:
    last = Values("pre_train_step_batch", "last_batch")
    tiny_manager(last, train_data=endless(), steps_per_epoch=3, epochs=2).train()

    assert last.seen == [False, False, True] * 2


def test_an_epoch_that_ends_before_so_many_steps_warns() -> None:
    message = "train_data ended after 1 of 3 batches of an epoch, so `last_batch` was wrong"
    tm = tiny_manager(train_data=iter(make_batches(1)), steps_per_epoch=3)
    with pytest.warns(RuntimeWarning, match=message):
        tm.train()

    assert (tm.step_num, tm.epoch_num) == (1, 1)


def test_nothing_is_read_ahead_of_so_many_steps() -> None:
    data = Again()
    tiny_manager(train_data=data, steps_per_epoch=3).train()

    assert data.made == 3


def test_a_stream_that_failed_is_started_anew() -> None:
    class FailsOnce:
        has_failed = False

        def __iter__(self) -> Iterator[Batch]:
            yield make_batches(1)[0]
            if not self.has_failed:
                self.has_failed = True
                raise OSError("no disk")

    tm = tiny_manager(train_data=FailsOnce(), steps_per_epoch=2)
    with pytest.raises(OSError, match="no disk"):
        tm.train()
    tm.train()

    assert tm.step_num == 3


@pytest.mark.parametrize("data", [lambda: make_batches(3), Again])
def test_the_last_batch_of_an_epoch_is_known(data: Callable[[], Iterable[Batch]]) -> None:
    last = Values("pre_train_step_batch", "last_batch")
    tm = tiny_manager(last, train_data=data())
    tm.train()

    assert last.seen == [False] * (tm.step_num - 1) + [True]


def test_a_wrong_length_of_the_training_data_warns() -> None:
    class Wrong(Again):
        def __len__(self) -> int:
            return 5

    message = r"train_data says len\(\) = 5 but gave 4 batches, so `last_batch` was wrong"
    with pytest.warns(RuntimeWarning, match=message):
        tiny_manager(train_data=Wrong()).train()


def test_no_batch_is_made_ahead_of_its_turn_where_the_length_is_known() -> None:
    class Known(Again):
        def __len__(self) -> int:
            return 4

    data = Known()
    made: list[int] = []
    tiny_manager(At("post_train_step_batch", lambda: made.append(data.made)), train_data=data).train()

    assert made == [1, 2, 3, 4]


# ---- the loss ---------------------------------------------------------------------------------------------------


def test_the_backward_loss_is_the_loss_until_a_hook_changes_it() -> None:
    def halve(fixtures: Any) -> None:
        fixtures.modify("backward_loss", fixtures["backward_loss"] / 2)

    losses = Values("post_train_step_batch", "loss", "backward_loss")
    tiny_manager(At("pre_train_backward", halve), losses).train()

    assert all(torch.equal(loss / 2, backward_loss) for loss, backward_loss in losses.seen)


def test_what_a_hook_makes_of_the_backward_loss_is_what_is_learnt_from() -> None:
    def double(fixtures: Any) -> None:
        fixtures.modify("backward_loss", 2 * fixtures["backward_loss"])

    doubled, twice_the_rate = tiny_manager(At("pre_train_backward", double)), tiny_manager(optimizer=at_rate(1.0))
    doubled.train()
    twice_the_rate.train()

    assert torch.equal(weights(doubled.model), weights(twice_the_rate.model))


def at_rate(rate: float) -> MakeOptimizer:
    return lambda parameters: SGD(parameters, lr=rate)


# ---- what hooks can do to a step --------------------------------------------------------------------------------


def test_what_a_hook_makes_of_the_batch_is_what_is_trained_on() -> None:
    def only_first(fixtures: Any) -> None:
        inputs, targets = fixtures["batch"]
        fixtures.modify("batch", (inputs[:1], targets[:1]))

    seen = Values("post_train_step_batch", "inputs", "targets", "prediction", "true_batch_size")
    tiny_manager(At("pre_train_step_batch", only_first), seen).train()

    assert [(len(x), len(y), len(p), size) for x, y, p, size in seen.seen] == [(1, 1, 1, 1)] * 3


def test_what_a_hook_makes_of_the_inputs_is_what_the_model_gets() -> None:
    def zero(fixtures: Any) -> None:
        fixtures.modify("inputs", torch.zeros_like(fixtures["inputs"]))

    predictions = Values("post_train_step_batch", "prediction")
    tiny_manager(At("pre_train_model_forward", zero), predictions).train()

    assert all((prediction == prediction[0]).all() for prediction in predictions.seen)


def test_a_hook_that_fills_in_the_prediction_may_skip_the_model() -> None:
    def constant(fixtures: Any, inputs: Tensor) -> None:
        logits = torch.zeros(len(inputs), 2, requires_grad=True)
        fixtures.define("prediction", logits, stage="train_step_batch")
        raise SkipStage

    losses = Values("post_train_step_batch", "loss")
    tiny_manager(At("pre_train_model_forward", constant), losses).train()

    assert [loss.item() for loss in losses.seen] == [pytest.approx(0.6931472)] * 3


def test_a_hook_between_backward_and_step_sees_the_gradients() -> None:
    norms: list[float] = []
    tiny_manager(
        At(
            "pre_train_optimizer_step",
            lambda train_manager: norms.append(float(train_manager.model[0].weight.grad.norm())),
        )
    ).train()

    assert all(norm > 0 for norm in norms)
    assert len(norms) == 3


def test_a_hook_between_backward_and_step_changes_the_gradients() -> None:
    def clear(train_manager: TrainManager) -> None:
        for parameter in train_manager.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    tm = tiny_manager(At("post_train_backward", clear))
    before = weights(tm.model)
    tm.train()

    assert torch.equal(weights(tm.model), before)


def test_gradients_are_zeroed_when_the_optimizer_has_stepped() -> None:
    grads: list[list[Tensor | None]] = []
    tiny_manager(
        At(
            "post_train_optimizer_step",
            lambda train_manager: grads.append([p.grad for p in train_manager.model.parameters()]),
        )
    ).train()

    assert grads == [[None] * 4] * 3


def test_gradients_that_were_there_before_a_run_are_not_learnt_from() -> None:
    clean, stained = tiny_manager(), tiny_manager()
    stained.model(torch.ones(1, 2)).sum().backward()
    clean.train()
    stained.train()

    assert torch.equal(weights(clean.model), weights(stained.model))


def test_gradients_that_were_made_in_a_run_before_train_are_not_learnt_from() -> None:
    clean, stained = tiny_manager(), tiny_manager()
    clean.train()
    with stained.run():
        stained.model(torch.ones(1, 2)).sum().backward()
        stained.train()

    assert torch.equal(weights(clean.model), weights(stained.model))


def test_evaluation_leaves_gradients_alone() -> None:
    tm = tiny_manager()
    tm.model(torch.ones(1, 2)).sum().backward()
    before = [parameter.grad for parameter in tm.model.parameters()]
    tm.eval()

    assert all(parameter.grad is grad for parameter, grad in zip(tm.model.parameters(), before, strict=True))


def test_gradients_gather_where_the_update_is_left_out() -> None:
    """Three batches of one example give the update of one batch of three."""
    x, y = make_batches(1, size=3)[0]
    gathered = tiny_manager(
        At("pre_train_optimizer_step", lambda last_batch: None if last_batch else skip_stage()),
        At("pre_train_backward", lambda fixtures: fixtures.modify("backward_loss", fixtures["loss"] / 3)),
        train_data=[(x[n : n + 1], y[n : n + 1]) for n in range(3)],
    )
    at_once = tiny_manager(train_data=[(x, y)])
    gathered.train()
    at_once.train()

    assert gathered.update_num == 1
    torch.testing.assert_close(weights(gathered.model), weights(at_once.model))


# ---- skipping ---------------------------------------------------------------------------------------------------


class SkipAndNote(Extension):
    """Skips one stage, the first time it opens or each time; notes what else it sees of it."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.notes: list[str] = []
        self.inner: list[str] = []
        self.is_skipping = True
        setattr(self, f"pre_{stage}", self.skip)

    def skip(self) -> None:
        if self.is_skipping:
            raise SkipStage

    @always
    def post_stage(self, stage: Any, exc_type: type[BaseException] | None) -> None:
        if stage.name == self.stage:
            self.notes.append(exc_type.__name__ if exc_type else "ran")
        elif self.stage in stage.path:
            self.inner.append(stage.name)


SKIPPABLE = ["run", "load_checkpoint", "train", "eval", "eval_step_epoch", "train_step_epoch", "train_step_batch"]


@pytest.mark.parametrize("stage", [*SKIPPABLE, "train_backward", "train_optimizer_step"])
def test_a_stage_of_the_loop_can_be_skipped(stage: str) -> None:
    skip = SkipAndNote(stage)
    tm = tiny_manager(skip, epochs=2)
    tm.train()

    assert set(skip.notes) == {"SkipStage"}
    assert skip.inner == []
    assert tm.fixtures.path == ()


@pytest.mark.parametrize("stage", SKIPPABLE)
def test_the_training_is_as_ever_once_nothing_is_skipped_any_more(stage: str) -> None:
    skip = SkipAndNote(stage)
    tm, other = tiny_manager(skip), tiny_manager()
    tm.train_epochs(0)
    skip.is_skipping = False
    tm.train_epochs(1)
    other.train_epochs(1)

    assert torch.equal(weights(tm.model), weights(other.model))


def test_skipping_evaluation_batches_leaves_them_out_of_the_mean() -> None:
    first = At("pre_eval_step_batch", lambda batch: skip_stage() if len(batch[0]) == 3 else None)
    tm = tiny_manager(first, eval_data=[*make_batches(1, size=3), *make_batches(1, size=4)])
    alone = tiny_manager(eval_data=make_batches(1, size=4))

    assert tm.eval() == alone.eval()


def test_a_skipped_evaluation_set_is_left_out_of_the_results() -> None:
    skip = At("pre_eval_step_epoch", lambda datasource_name: skip_stage() if datasource_name == "a" else None)
    tm = tiny_manager(skip, eval_data={"a": make_batches(1), "b": make_batches(1)})

    assert list(tm.eval()) == ["b"]


@pytest.mark.parametrize("stage", ["run", "eval"])
def test_an_evaluation_that_is_skipped_has_no_results(stage: str) -> None:
    assert tiny_manager(At(f"pre_{stage}", skip_stage)).eval() == {}


@pytest.mark.parametrize("stage", ["train_model_forward", "train_loss_forward"])
def test_a_skipped_forward_stage_leaves_what_comes_after_without_its_fixture(stage: str) -> None:
    tm = tiny_manager(At(f"pre_{stage}", skip_stage))
    with pytest.raises(FixtureNotFound, match=r"'prediction'|'loss'"):
        tm.train()


def test_a_skipped_epoch_is_not_counted_and_ends() -> None:
    starts: list[int] = []

    def note_and_skip(epoch_num: int) -> None:
        starts.append(epoch_num)
        raise SkipStage

    tm = tiny_manager(At("pre_train_step_epoch", note_and_skip), epochs=3)
    tm.train()

    assert (starts, tm.epoch_num) == ([0, 0, 0], 0)


def test_a_wish_to_skip_outside_a_pre_hook_comes_out() -> None:
    tm = tiny_manager(At("post_train_step_batch", skip_stage))
    with pytest.raises(SkipStage):
        tm.train()

    assert tm.fixtures.path == ()


def test_the_block_of_a_run_cannot_be_skipped() -> None:
    with pytest.raises(SkipStage), tiny_manager(At("pre_run", skip_stage)).run():
        pytest.fail("the block was entered")


@pytest.mark.parametrize("stage", TRAINING_STAGES)
@pytest.mark.parametrize("side", ["pre", "post"])
def test_a_batch_can_be_skipped_from_any_stage_in_it(side: str, stage: str) -> None:
    tm = tiny_manager(At(f"{side}_{stage}", skip_batch), epochs=2)
    tm.train()

    assert tm.epoch_num == 2
    assert all(parameter.grad is None for parameter in tm.model.parameters())


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_loss_forward", "post_train_backward"])
def test_a_model_whose_batches_are_all_skipped_learns_nothing(hook: str) -> None:
    tm = tiny_manager(At(hook, skip_batch))
    before = weights(tm.model)
    tm.train()

    assert torch.equal(weights(tm.model), before)
    assert (tm.step_num, tm.update_num) == (0, 0)


def test_a_batch_skipped_after_backward_leaves_no_gradients_to_the_next() -> None:
    skip_first = At("post_train_backward", lambda fixtures: skip_batch() if fixtures["batch"] is batches[0] else None)
    batches = make_batches(3)
    skipping, without = tiny_manager(skip_first, train_data=batches), tiny_manager(train_data=batches[1:])
    skipping.train()
    without.train()

    assert torch.equal(weights(skipping.model), weights(without.model))


def test_a_batch_skipped_before_backward_leaves_gathered_gradients_alone() -> None:
    batches = make_batches(3)
    gather = At("pre_train_optimizer_step", lambda last_batch: None if last_batch else skip_stage())
    skip_second = At(
        "post_train_loss_forward", lambda fixtures: skip_batch() if fixtures["batch"] is batches[1] else None
    )
    skipping = tiny_manager(gather, skip_second, train_data=batches)
    without = tiny_manager(gather, train_data=[batches[0], batches[2]])
    skipping.train()
    without.train()

    assert torch.equal(weights(skipping.model), weights(without.model))


def test_a_wish_to_skip_after_the_step_leaves_gathered_gradients_alone() -> None:
    """The batch is trained and counted by then."""
    batches = make_batches(3)
    gather = At("pre_train_optimizer_step", lambda last_batch: None if last_batch else skip_stage())
    late = At("post_train_step_batch", skip_batch)
    skipping, without = tiny_manager(gather, late, train_data=batches), tiny_manager(gather, train_data=batches)
    skipping.train()
    without.train()

    assert skipping.step_num == 3
    assert torch.equal(weights(skipping.model), weights(without.model))


def test_always_hooks_run_while_a_batch_is_skipped() -> None:
    class Note(Extension):
        wishes: list[object] = []

        @always
        def post_train_step_batch(self, exc_type: object) -> None:
            self.wishes.append(exc_type)

    tiny_manager(Note(), At("pre_train_backward", skip_batch)).train()

    assert Note.wishes == [SkipBatch] * 3


@pytest.mark.parametrize("stage", ["train_backward", "train_step_batch"])
def test_an_error_in_an_always_hook_while_a_batch_is_skipped_is_not_lost(stage: str) -> None:
    tm = tiny_manager(At("pre_train_backward", skip_batch), At(f"post_{stage}", fail_always))
    with pytest.raises(ValueError, match="in an always hook"):
        tm.train()


def test_a_wish_to_skip_a_batch_in_evaluation_comes_out() -> None:
    with pytest.raises(SkipBatch):
        tiny_manager(At("pre_eval_step_batch", skip_batch)).eval()


# ---- evaluation -------------------------------------------------------------------------------------------------


def test_means_are_over_examples_not_over_batches() -> None:
    x, y = make_batches(1, size=5)[0]
    cut = tiny_manager(eval_data=[(x[:4], y[:4]), (x[4:], y[4:])])
    whole = tiny_manager(eval_data=[(x, y)])

    assert cut.eval()["eval"]["loss"] == pytest.approx(whole.eval()["eval"]["loss"])


def test_evaluation_alone_gives_the_figures_of_a_run() -> None:
    results = Values("post_eval", "eval_results", "standalone_eval")
    tm = tiny_manager(results)
    tm.train()

    assert tm.eval() == results.seen[-2][0]
    assert [alone for _, alone in results.seen] == [False, False, True]


def test_a_result_is_a_fixture_of_its_sets_pass() -> None:
    result = Values("post_eval_step_epoch", "datasource_name", "eval_result")
    results = tiny_manager(result).eval()

    assert dict(result.seen) == results


def test_an_evaluation_that_is_asked_for_comes_before_the_next_step() -> None:
    soon = At(
        "post_train_step_batch", lambda train_manager, step_num: train_manager.eval_soon() if step_num == 1 else None
    )
    evals = Values("pre_eval", "step_num")
    tiny_manager(soon, evals).train()

    assert evals.seen == [0, 1, 3]


def test_an_evaluation_that_is_asked_for_in_the_last_step_is_that_of_the_epoch() -> None:
    soon = At(
        "post_train_step_batch", lambda train_manager, last_batch: train_manager.eval_soon() if last_batch else None
    )
    evals = Values("pre_eval", "step_num")
    tiny_manager(soon, evals, epochs=2).train()

    assert evals.seen == [0, 3, 6]


def test_an_evaluation_that_was_asked_for_in_a_run_that_failed_is_forgotten() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_train_step_batch(self, train_manager: TrainManager, epoch_num: int) -> None:
            if epoch_num == 1 and not self.has_failed:
                self.has_failed = True
                train_manager.eval_soon()
                raise ValueError("in a hook")

    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(FailOnce(), evals, epochs=2)
    with pytest.raises(ValueError, match="in a hook"):
        tm.train()
    tm.train()

    assert evals.seen == [0, 3, 7]


def refused(hook_body: Callable[[TrainManager], object]) -> str:
    """What is said when a forward method calls this while a batch is alive."""

    class Impatient(Own):
        def model_forward(self, inputs: Tensor) -> Tensor:
            hook_body(self)
            raise AssertionError("it was not refused")

    with pytest.raises(StageError) as caught:
        Impatient(eval_data=make_batches(1)).train_epochs(1)
    return str(caught.value)


def test_evaluation_is_refused_while_a_batch_is_alive() -> None:
    class Impatient(Own):
        def train_model_forward(self) -> Tensor:
            self.eval()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError) as caught:
        Impatient(eval_data=make_batches(1)).train()
    assert str(caught.value) == (
        "eval() cannot be called inside stage 'train_step_batch'\n"
        "  open stages  run > train > train_step_epoch > train_step_batch > train_model_forward\n"
        "  in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)"
    )


def test_evaluation_inside_an_evaluation_is_refused() -> None:
    assert refused(lambda tm: tm.eval()).startswith("eval() cannot be called inside stage 'eval'\n")


def test_training_inside_an_evaluation_is_refused() -> None:
    assert refused(lambda tm: tm.train_epochs(1)).startswith("train_epochs() cannot be called inside stage 'train'\n")


def test_training_inside_a_standalone_evaluation_is_refused() -> None:
    class Impatient(Own):
        def eval_model_forward(self) -> Tensor:
            self.train()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError, match="cannot be called inside stage 'eval'"):
        Impatient(eval_data=make_batches(1)).eval()


def test_training_inside_training_is_refused() -> None:
    class Impatient(Own):
        def train_model_forward(self) -> Tensor:
            self.train()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError, match="cannot be called inside stage 'train'"):
        Impatient().train()


def test_a_hook_that_evaluates_is_told_what_to_do() -> None:
    tm = tiny_manager(At("post_train_step_batch", lambda train_manager: train_manager.eval()))
    with pytest.raises(StageError, match=r"ask for it: train_manager\.eval_soon\(\)"):
        tm.train()


def test_evaluation_in_a_run_between_trainings_is_allowed() -> None:
    tm = tiny_manager()
    with tm.run():
        assert list(tm.eval()) == ["valid"]


# ---- modes ------------------------------------------------------------------------------------------------------


def frozen_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_training_is_in_train_mode_with_gradients_and_evaluation_in_eval_mode_without() -> None:
    class Modes(Extension):
        seen: set[tuple[str, bool, bool]] = set()

        def pre_stage(self, stage: Any, train_manager: TrainManager) -> None:
            self.seen.add((stage.name, train_manager.model.training, torch.is_grad_enabled()))

    with torch.no_grad():
        tiny_manager(Modes()).train()

    assert {mode[1:] for mode in Modes.seen if mode[0].startswith("train")} == {(True, True)}
    assert {mode[1:] for mode in Modes.seen if mode[0].startswith("eval")} == {(False, False)}


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("hook", ["pre_train_backward", "post_eval_step_batch", "pre_run", "post_train"])
def test_modes_are_restored_per_submodule_on_any_exit(error: type[BaseException] | None, hook: str) -> None:
    def leave() -> None:
        if error:
            raise error

    tm = tiny_manager(At(hook, leave), model=frozen_model())
    if error:
        with pytest.raises(error):
            tm.train()
    else:
        tm.train()

    assert modes(tm.model) == [True, True, False]
    assert torch.is_grad_enabled()


def test_no_grad_around_training_is_restored() -> None:
    with torch.no_grad():
        tiny_manager().train()
        assert not torch.is_grad_enabled()


def test_a_frozen_batch_norm_is_in_train_mode_while_training() -> None:
    """Training calls ``model.train()``, as bare loops do: freeze in a hook, or override the model's ``train``."""
    during: list[bool] = []
    tm = tiny_manager(
        At("post_train_model_forward", lambda train_manager: during.append(train_manager.model[1].training)),
        model=frozen_model(),
    )
    tm.train()

    assert during == [True] * 3


def test_a_part_that_a_hook_freezes_stays_frozen_across_evaluations() -> None:
    during: list[bool] = []
    tm = tiny_manager(
        At("pre_train", lambda train_manager: train_manager.model[1].eval()),
        At("post_train_model_forward", lambda train_manager: during.append(train_manager.model[1].training)),
        model=nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        epochs=2,
    )
    tm.train()

    assert during == [False] * 6
    assert modes(tm.model) == [True, True, True]


def test_a_model_in_eval_mode_is_trained_in_train_mode_and_left_in_eval_mode() -> None:
    tm = tiny_manager()
    tm.model.eval()
    tm.train()

    assert not any(modes(tm.model))


def test_a_loss_that_is_a_module_is_in_the_mode_of_the_model() -> None:
    class Loss(nn.Module):
        modes: list[bool] = []

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            self.modes.append(self.training)
            return F.cross_entropy(output, target)

    tm = tiny_manager(loss=Loss().eval())
    tm.train()

    assert Loss.modes == [False] * 2 + [True] * 3 + [False] * 2
    assert modes(tm.loss) == [False]


def test_mode_is_for_a_with_block() -> None:
    tm = tiny_manager()
    with tm.mode(training=False):
        assert not tm.model.training
    assert tm.model.training


# ---- bad input --------------------------------------------------------------------------------------------------


def rejected(**options: Any) -> str:
    """What is said when a manager is made with these options."""
    with pytest.raises(InputError) as caught:
        tiny_manager(**options)
    return str(caught.value)


def refused_run(call: Callable[[TrainManager], object] = TrainManager.train, **options: Any) -> str:
    """What a run says; nothing else may have happened: weights, stages and modes are as before."""
    tm = tiny_manager(**options)
    before = weights(tm.model)
    with pytest.raises(InputError) as caught:
        call(tm)

    assert torch.equal(weights(tm.model), before)
    assert (tm.fixtures.path, tm.step_num, tm.epoch_num) == ((), 0, 0)
    assert modes(tm.model) == [True] * len(modes(tm.model))
    still_good = tiny_manager()
    tm.model, tm.optimizer, tm.train_data = still_good.model, still_good.optimizer, still_good.train_data
    tm.eval_data, tm.loss = still_good.eval_data, still_good.loss
    tm.train_epochs(1)
    assert tm.epoch_num == 1
    return str(caught.value)


def test_no_training_data_is_refused() -> None:
    assert refused_run(train_data=None) == "there is no train_data to train on\n  pass train_data=batches"


def test_no_optimizer_is_refused() -> None:
    assert refused_run(optimizer=None) == ("there is no optimizer to train with\n  pass optimizer=torch.optim.AdamW")


def test_empty_training_data_is_refused() -> None:
    assert refused_run(train_data=[]) == (
        "train_data gave no batch in epoch 1\n"
        "  it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    )


def test_a_data_loader_that_drops_its_only_batch_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(3, 2)), batch_size=4, drop_last=True)

    assert refused_run(train_data=loader).startswith("train_data gave no batch in epoch 1\n")


def test_a_generator_for_several_epochs_is_refused() -> None:
    assert refused_run(train_data=iter(make_batches(3)), epochs=2) == (
        "train_data is a list_iterator, which can be read once, but 2 passes are due\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_an_iterator_of_a_data_loader_for_several_epochs_is_refused() -> None:
    assert refused_run(train_data=iter(shuffled()), epochs=2) == (
        "train_data is a _SingleProcessDataLoaderIter, which can be read once, but 2 passes are due\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_a_generator_for_one_epoch_is_trained_on() -> None:
    tm = tiny_manager(train_data=iter(make_batches(3)))
    tm.train()

    assert tm.step_num == 3


def test_no_evaluation_data_is_refused_by_eval_only() -> None:
    tiny_manager(eval_data=None).train()

    assert refused_run(TrainManager.eval, eval_data=None) == (
        'there is no eval_data to evaluate\n  pass eval_data={"valid": batches}'
    )


def test_evaluation_data_that_is_used_up_is_refused() -> None:
    used_up = iter(make_batches(1))
    next(used_up)

    assert refused_run(TrainManager.eval, eval_data={"valid": used_up}) == (
        "eval_data['valid'] gave no batch after epoch 0\n"
        "  a list_iterator can be read once; give a list, a DataLoader, or a class with __iter__"
    )


def test_evaluation_data_that_can_be_read_once_is_refused_by_train() -> None:
    assert refused_run(eval_data={"valid": iter(make_batches(1))}) == (
        "eval_data['valid'] is a list_iterator, which can be read once, but 2 passes are due\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_an_empty_evaluation_set_is_refused() -> None:
    assert refused_run(eval_data={"valid": make_batches(1), "test": []}) == (
        "eval_data['test'] gave no batch after epoch 0\n"
        "  it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    )


def test_no_loss_is_refused() -> None:
    assert refused_run(loss=None) == (
        "there is no loss: none was returned, and the model has added none\n"
        "  pass loss=F.cross_entropy, return one from loss_forward(self, ...), "
        "or call add_loss(value) in the model's forward"
    )


def test_a_model_that_returns_nothing_is_refused() -> None:
    class Forgetful(nn.Linear):
        def forward(self, input: Tensor) -> None:  # type: ignore[override]
            super().forward(input)

    assert refused_run(model=Forgetful(2, 2)) == (
        "Forgetful returned a NoneType without a tensor in it\n  does its forward() end with `return`?"
    )


def loss_of(value: Callable[[Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
    return lambda output, target: value(F.cross_entropy(output, target, reduction="none"))


@pytest.mark.parametrize("eval_data", [None, make_batches(1)])
def test_a_loss_per_example_is_refused(eval_data: Any) -> None:
    assert refused_run(loss=loss_of(lambda losses: losses), eval_data=eval_data, train_data=make_batches(1)) == (
        "the loss has the shape (4,), not that of one number\n  reduce it: loss.mean()"
    )


def test_a_loss_that_is_a_plain_number_is_refused() -> None:
    assert refused_run(loss=loss_of(lambda losses: losses.mean().item())) == (
        "the loss is a float, not a tensor\n  return the tensor itself"
    )


def test_a_loss_without_gradient_is_refused() -> None:
    assert refused_run(loss=loss_of(lambda losses: losses.mean().detach())) == (
        "the loss does not require grad, so nothing can be learnt from it\n"
        "  is it computed under no_grad or from detached tensors, or are all parameters frozen?"
    )


def test_a_model_all_of_whose_parameters_are_frozen_is_refused() -> None:
    assert refused_run(model=nn.Linear(2, 2).requires_grad_(False)).startswith("the loss does not require grad")


@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), ("3", "'3'"), (True, "True"), (1.5, "1.5")])
def test_epochs_that_are_no_number_of_epochs_are_refused(value: Any, shown: str) -> None:
    assert rejected(epochs=value) == f"epochs is {shown}\n  give a whole number, 0 or more"


def test_epochs_may_be_numpys() -> None:
    tm = tiny_manager(epochs=np.int64(2))
    tm.train()

    assert (tm.epoch_num, type(tm.epochs)) == (2, int)


def test_a_seed_that_is_no_whole_number_is_refused() -> None:
    assert rejected(seed=1.5) == "seed is 1.5\n  give a whole number, 0 or more"


def test_no_steps_per_epoch_are_refused() -> None:
    assert rejected(steps_per_epoch=0) == "steps_per_epoch is 0\n  give a whole number, 1 or more"


def test_a_number_of_epochs_to_add_is_refused_if_negative() -> None:
    assert refused_run(lambda tm: tm.train_epochs(-1)) == "n is -1\n  give a whole number, 0 or more"


def test_an_optimizer_of_another_model_is_refused() -> None:
    assert rejected(optimizer=SGD(nn.Linear(1, 1).parameters(), lr=0.1)) == (
        "the optimizer (SGD) holds no parameter of the model, so nothing would be trained\n"
        "  make it of this model's parameters, or give the class: optimizer=torch.optim.AdamW"
    )


@pytest.mark.parametrize("name", ["train_data", "eval_data"])
def test_a_dataset_instead_of_a_loader_is_refused(name: str) -> None:
    shown = "eval_data['eval']" if name == "eval_data" else name

    assert rejected(**{name: TensorDataset(torch.zeros(4, 2))}) == (
        f"{shown} is a TensorDataset of single examples\n"
        "  wrap it: Rows(data, batch_size=64, shuffle=True), or a DataLoader"
    )


def test_a_tensor_instead_of_batches_is_refused() -> None:
    assert rejected(train_data=torch.zeros(4, 2)) == (
        "train_data is a tensor\n  give an iterable of batches, such as InMemory(x, y, batch_size=64)"
    )


def test_a_dict_instead_of_batches_is_refused() -> None:
    assert rejected(train_data={"train": make_batches(1)}) == (
        "train_data is a dict, whose keys would be the batches\n  give the iterable of batches itself"
    )


def test_a_model_class_is_refused() -> None:
    assert rejected(model=nn.Linear) == "model is a type, not a torch.nn.Module\n  give an instance: model=Net()"


def test_a_loss_class_is_refused() -> None:
    assert rejected(loss=nn.CrossEntropyLoss) == (
        "loss is the class CrossEntropyLoss\n  give a function or an instance: loss=nn.CrossEntropyLoss()"
    )


def test_a_schedule_that_wants_a_metric_is_refused() -> None:
    assert rejected(lr_schedule=ReduceLROnPlateau) == (
        "lr_schedule made a ReduceLROnPlateau, which is stepped with a metric, not per epoch\n"
        "  step it in a hook: `def post_eval(self, eval_results)`"
    )


def test_a_schedule_without_an_optimizer_is_refused() -> None:
    text = rejected(lr_schedule=lambda optimizer: StepLR(optimizer, 1), optimizer=None)

    assert text == "lr_schedule needs an optimizer, and there is none"


def test_a_batch_without_tensors_is_refused() -> None:
    assert refused_run(train_data=[("text", "label")]) == (
        "a batch (tuple) holds no tensor whose rows could be counted\n  override get_true_batch_size(self, batch)"
    )


def test_a_batch_without_targets_is_refused_where_the_loss_wants_some() -> None:
    assert refused_run(train_data=[x for x, _ in make_batches(2)], eval_data=None) == (
        "the loss wants targets, and a batch (Tensor) has none: it is no pair\n"
        "  override unpack_batch(self, batch), or name fixtures in the loss: loss(prediction, inputs)"
    )


# ---- losses that are not finite ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_is_an_error_at_the_end_of_the_epoch(value: str) -> None:
    batches = make_batches(4)

    def loss(batch: Batch, prediction: Tensor, targets: Tensor) -> Tensor:
        factor = float(value) if batch is batches[1] else 1.0
        return F.cross_entropy(prediction, targets) * factor

    recorder = Recorder()
    tm = tiny_manager(recorder, loss=loss, train_data=batches)
    with pytest.raises(NonFiniteLoss) as caught:
        tm.train()

    assert str(caught.value).splitlines()[0].startswith(f"the loss was {value} in step 2, epoch 1, and not finite in ")
    assert (caught.value.epoch, caught.value.step) == (1, 2)
    assert (recorder.stages.count("train_step_batch"), tm.epoch_num, tm.fixtures.path) == (4, 0, ())


def test_a_loss_that_is_not_finite_is_an_error_also_where_the_run_is_stopped() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch"), loss=loss_of(lambda losses: losses.mean() * float("nan")))
    with pytest.raises(NonFiniteLoss, match="in step 1, epoch 1"):
        tm.train()


def test_a_batch_whose_loss_is_not_finite_can_be_skipped() -> None:
    def only_finite(loss: Tensor) -> None:
        if not loss.isfinite():
            raise SkipBatch

    batches = make_batches(3)
    batches[1] = (batches[1][0] * float("nan"), batches[1][1])
    tm = tiny_manager(At("post_train_loss_forward", only_finite), train_data=batches)
    tm.train()

    assert (tm.epoch_num, tm.step_num) == (1, 2)


class HostReads(TorchDispatchMode):
    """In which stages a scalar was read on the host."""

    def __init__(self, tm: TrainManager) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tm = tm
        self.stages: list[tuple[str, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.stages.append(self.tm.fixtures.path)
        return func(*args, **(kwargs or {}))


def test_no_step_reads_a_scalar_on_the_host() -> None:
    tm = tiny_manager(epochs=2)
    with HostReads(tm) as reads:
        tm.train()

    assert reads.stages == []


def test_a_read_on_the_host_would_be_seen() -> None:
    tm = tiny_manager(At("post_train_step_batch", lambda loss: (loss.item(), None)[1]))
    with HostReads(tm) as reads:
        tm.train()

    assert ("run", "train", "train_step_epoch", "train_step_batch") in reads.stages


# ---- nothing is left behind -------------------------------------------------------------------------------------


def test_an_error_leaves_a_manager_that_trains_as_a_new_one() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_train_backward(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise ValueError("in a hook")

    failed, fresh = tiny_manager(FailOnce()), tiny_manager()
    with pytest.raises(ValueError, match="in a hook"):
        failed.train()
    failed.train()
    fresh.train()

    assert torch.equal(weights(failed.model), weights(fresh.model))


def test_an_interruption_stays_one_and_leaves_the_manager_usable() -> None:
    class Interrupt(Extension):
        is_on = True

        def post_train_backward(self) -> None:
            if self.is_on:
                raise KeyboardInterrupt

    interrupt = Interrupt()
    tm = tiny_manager(interrupt)
    with pytest.raises(KeyboardInterrupt):
        tm.train()
    interrupt.is_on = False
    tm.train()

    assert tm.epoch_num == 1


class Living(Extension):
    """Which of a step's values are alive at a later hook."""

    def __init__(self, hook: str) -> None:
        self.values: dict[str, weakref.ref[Tensor]] = {}
        self.alive: list[set[str]] = []
        setattr(self, hook, self.look)

    def post_train_step_batch(self, inputs: Tensor, prediction: Tensor, loss: Tensor, backward_loss: Tensor) -> None:
        step = {"inputs": inputs, "prediction": prediction, "loss": loss, "backward_loss": backward_loss}
        self.values = {name: weakref.ref(value) for name, value in step.items()}

    def look(self) -> None:
        self.alive.append({name for name, value in self.values.items() if value() is not None})


class Fresh:
    """Makes each batch when its turn comes, and keeps none."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Batch]:
        return ((x.clone(), y.clone()) for x, y in make_batches(4))


class FreshSized(Fresh):
    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "pre_train_model_forward", "pre_eval"])
@pytest.mark.parametrize("data", [Fresh(), FreshSized()])
def test_no_value_of_a_step_is_alive_in_the_next_step_or_evaluation(hook: str, data: Iterable[Batch]) -> None:
    living = Living(hook)
    tiny_manager(living, train_data=data, epochs=2).train()

    assert set().union(*living.alive) == set()


@pytest.mark.parametrize("data", [Fresh(), FreshSized()])
def test_no_value_of_a_step_is_alive_at_the_end_of_an_epoch(data: Iterable[Batch]) -> None:
    """Not even the last batch, unlike after a ``for`` loop."""
    living = Living("post_train_step_epoch")
    tiny_manager(living, train_data=data).train()

    assert living.alive == [set()]


def test_no_value_of_a_step_is_alive_after_the_run() -> None:
    living = Living("post_train")
    tiny_manager(living, train_data=Fresh()).train()
    living.look()

    assert living.alive[-1] == set()


def test_a_manager_that_is_dropped_is_collected() -> None:
    tm = tiny_manager(Recorder())
    tm.train()
    gone = weakref.ref(tm)
    del tm
    gc.collect()

    assert gone() is None


def test_the_data_is_closed_when_a_run_stops() -> None:
    closed: list[bool] = []

    class Closing:
        def __iter__(self) -> Iterator[Batch]:
            try:
                yield from make_batches(3)
            finally:
                closed.append(True)

    tiny_manager(stop_at("post_train_step_batch"), train_data=Closing()).train()

    assert closed == [True]


def test_the_data_is_closed_when_a_step_fails_also_while_the_error_is_kept() -> None:
    closed: list[bool] = []

    class Closing:
        def __iter__(self) -> Iterator[Batch]:
            try:
                yield from make_batches(3)
            finally:
                closed.append(True)

    with pytest.raises(ValueError, match="in a hook") as kept:
        tiny_manager(At("post_train_step_batch", fail), train_data=Closing()).train()

    assert closed == [True], kept


def test_training_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_manager(lr_schedule=warm_up, epochs=2).train()


# ---- the rest ---------------------------------------------------------------------------------------------------


def test_the_schedule_is_stepped_after_each_epoch() -> None:
    rates = Values("pre_train_step_epoch", "epoch_num", "rate")

    class Rate(TrainManager):
        def pre_train_step_epoch(self) -> None:
            assert self.optimizer is not None
            self.fixtures["rate"] = self.optimizer.param_groups[0]["lr"]

    tm = Rate(
        model=nn.Linear(2, 2),
        loss=F.cross_entropy,
        optimizer=at_rate(1.0),
        train_data=make_batches(2),
        lr_schedule=lambda optimizer: StepLR(optimizer, 1, gamma=0.5),
        epochs=3,
        extensions=[rates],
    )
    tm.train()

    assert rates.seen == [(0, 1.0), (1, 0.5), (2, 0.25)]


def test_the_model_and_the_batches_go_to_the_device() -> None:
    devices: list[str] = []
    tm = tiny_manager(
        At(
            "pre_train_model_forward", lambda inputs, targets: devices.extend([inputs.device.type, targets.device.type])
        ),
        At("pre_train_loss_forward", skip_batch),
        device="meta",
        optimizer=sgd,
        eval_data=None,
    )
    tm.train()

    assert set(devices) == {"meta"}
    assert {parameter.device.type for parameter in tm.model.parameters()} == {"meta"}


def test_all_mistakes_in_hooks_are_told_before_the_first_step() -> None:
    recorder = Recorder()
    tm = tiny_manager(
        recorder, At("post_train_step_bacth", lambda: None), At("post_train_step_batch", lambda epoch_nun: None)
    )
    with pytest.raises(CheckError, match=r"^2 mistakes") as caught:
        tm.train()

    assert recorder.stages == []
    assert [mistake.nearest[0] for mistake in caught.value.mistakes] == ["train_step_batch", "epoch_num"]


def test_nothing_in_the_loop_is_hidden_from_the_check() -> None:
    """What it cannot read it lets pass, so there must be nothing."""
    assert tiny_manager().check() == []


def test_all_arguments_are_keywords() -> None:
    with pytest.raises(TypeError, match="positional"):
        TrainManager(nn.Linear(1, 1))  # type: ignore[call-arg]


def test_the_manager_is_a_fixture_by_two_names() -> None:
    seen: list[tuple[object, object]] = []
    tm = tiny_manager(At("pre_run", lambda extensible, train_manager: seen.append((extensible, train_manager))))
    tm.eval()

    assert seen == [(tm, tm)]


def test_what_hooks_make_of_the_results_of_an_evaluation_is_what_eval_returns() -> None:
    class Doubled(Extension):
        @modifies("eval_result")
        def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
            return {"loss": 1.0, "accuracy": 0.5}

        @modifies("eval_results")
        def post_eval(self, eval_results: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
            return {**eval_results, "copy": eval_results["valid"]}

    expected = {"loss": 1.0, "accuracy": 0.5}
    assert tiny_manager(Doubled()).eval() == {"valid": expected, "copy": expected}


@pytest.mark.parametrize("name", ["loss", "backward_loss"])
def test_a_loss_that_a_hook_made_a_number_is_refused_before_backward(name: str) -> None:
    stage = "post_train_loss_forward" if name == "loss" else "pre_train_backward"
    with pytest.raises(InputError) as error:
        tiny_manager(At(stage, modifies(name)(lambda: 0.5))).train()
    assert str(error.value) == f"{name} is a float, not a tensor: the hook that modified it must return a tensor"
