"""The methods that a subclass overrides, and how the loss is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import At, Batch, at_rate, make_batches, skip_stage
from train_manager import Extension, InputError, Objective, TrainManager, add_loss, fixture
from train_manager.errors import FixtureNotFound, StageError
from train_manager.testing import tiny_manager

# ---- the loss ---------------------------------------------------------------------------------------------------


def final_loss(**options: Any) -> float:
    tm = tiny_manager(seed=0, **options)
    tm.train()
    return tm.eval()["valid"]["loss"]


def by_names(targets: Tensor, batch: Batch, prediction: Tensor, scale: float = 1.0) -> Tensor:
    return F.cross_entropy(prediction, targets) * scale + 0 * batch[0].sum()


def test_a_loss_gets_the_fixtures_that_it_names_in_any_order() -> None:
    assert final_loss(loss=by_names) == final_loss(loss=F.cross_entropy)


def test_a_loss_module_is_called_as_pytorchs_are() -> None:
    assert final_loss(loss=nn.CrossEntropyLoss()) == final_loss(loss=F.cross_entropy)


def test_a_loss_module_whose_forward_names_the_prediction_gets_fixtures() -> None:
    class Loss(nn.Module):
        def forward(self, targets: Tensor, prediction: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets)

    assert final_loss(loss=Loss()) == final_loss(loss=F.cross_entropy)


def test_a_loss_written_in_c_is_called_as_pytorchs_are() -> None:
    x, ones = torch.ones(3, 2), torch.ones(3)
    tm = tiny_manager(model=nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), loss=torch.dot, eval_data=[(x, ones)])

    assert tm.eval()["eval"]["loss"] == pytest.approx(tm.model(x).sum().item())


def test_a_loss_that_names_what_is_not_there_gets_the_near_match() -> None:
    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        return prediction.sum()

    tm = tiny_manager(loss=loss)
    with pytest.raises(FixtureNotFound) as caught:
        tm.train()

    assert str(caught.value).startswith(
        "loss test_a_loss_that_names_what_is_not_there_gets_the_near_match.<locals>.loss "
        "wants 'target', which no open stage provides\n"
    )
    assert str(caught.value).endswith("\n  did you mean 'targets'?")


@pytest.mark.parametrize("later", [F.cross_entropy, by_names, nn.CrossEntropyLoss()])
def test_a_loss_that_is_replaced_later_is_the_one_that_is_called(later: Any) -> None:
    tm = tiny_manager(seed=0, loss=lambda prediction: prediction.sum())
    tm.loss = later
    tm.train()

    assert tm.eval()["valid"]["loss"] == final_loss(loss=F.cross_entropy)


def test_a_loss_that_would_take_the_targets_for_a_fixture_of_an_extension_is_refused_at_its_first_call() -> None:
    class Masks(Extension):
        @fixture("train_step_batch")
        def mask(self) -> Tensor:
            return torch.ones(1)

    def loss(output: Tensor, mask: Tensor) -> Tensor:
        return output.sum()

    tm = tiny_manager(Masks(), loss=loss, eval_data=None)
    with pytest.raises(InputError, match=r"loss\(output, mask\) would be given the targets as 'mask'"):
        tm.train()


def test_an_own_loss_forward_calls_the_loss_as_it_likes() -> None:
    class Own(TrainManager):
        def loss_forward(self, prediction: Tensor, inputs: Tensor) -> Tensor:
            return self.loss(prediction, inputs)  # type: ignore[no-any-return]

    def loss(output: Tensor, inputs: Tensor) -> Tensor:
        return F.mse_loss(output, inputs)

    tm = Own(model=nn.Linear(2, 2), loss=loss, optimizer=SGD, train_data=make_batches(2))
    tm.train()

    assert tm.step_num == 2


def test_no_loss_is_needed_if_loss_forward_is_overridden() -> None:
    class Own(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets)

    tm = Own(model=nn.Linear(2, 2), optimizer=SGD, train_data=make_batches(2))
    tm.train()

    assert tm.step_num == 2


# ---- what can be overridden -------------------------------------------------------------------------------------


class Own(TrainManager):
    """Records the calls of its methods."""

    def __init__(self, **options: Any) -> None:
        self.called: list[str] = []
        given = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "optimizer": SGD, "train_data": make_batches(1)}
        super().__init__(**{**given, **options})


def test_the_common_forward_methods_serve_training_and_evaluation() -> None:
    class Common(Own):
        def model_forward(self, inputs: Tensor) -> Tensor:
            self.called.append(self.fixtures["stage"].name)
            return self.model(inputs)  # type: ignore[no-any-return]

        def loss_forward(self, prediction: Tensor) -> Tensor:
            self.called.append(self.fixtures["stage"].name)
            return prediction.sum()

    tm = Common(eval_data=make_batches(1))
    tm.eval()
    tm.train_epochs(1)

    assert tm.called[:4] == ["eval_model_forward", "eval_loss_forward"] * 2
    assert tm.called[4:6] == ["train_model_forward", "train_loss_forward"]


def test_the_train_methods_are_for_training_only() -> None:
    class Special(Own):
        def train_model_forward(self, inputs: Tensor) -> Tensor:
            self.called.append("train_model_forward")
            return self.model(inputs)  # type: ignore[no-any-return]

        def train_loss_forward(self, prediction: Tensor) -> Tensor:
            self.called.append("train_loss_forward")
            return prediction.sum()

    tm = Special(eval_data=make_batches(1))
    tm.train()

    assert tm.called == ["train_model_forward", "train_loss_forward"]


def test_the_eval_methods_are_for_evaluation_only() -> None:
    class Special(Own):
        def eval_model_forward(self, inputs: Tensor) -> Tensor:
            self.called.append("eval_model_forward")
            return self.model(inputs)  # type: ignore[no-any-return]

        def eval_loss_forward(self, prediction: Tensor) -> Tensor:
            self.called.append("eval_loss_forward")
            return torch.tensor(7.0)

    tm = Special(eval_data=make_batches(1))
    tm.train()

    assert tm.called == ["eval_model_forward", "eval_loss_forward"] * 2
    assert tm.eval() == {"eval": {"loss": 7.0}}


def test_a_batch_of_another_form_is_unpacked_by_an_overridden_method() -> None:
    class Dicts(Own):
        def unpack_batch(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            return batch["x"], batch["y"]

    tm = Dicts(train_data=[{"x": x, "y": y} for x, y in make_batches(3)])
    tm.train()

    assert tm.step_num == 3


def test_other_parts_of_a_batch_are_fixtures_of_their_own() -> None:
    class Masked(Own):
        def unpack_batch(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            return batch[0], batch[1]

        @fixture("train_step_batch")
        def mask(self, batch: tuple[Tensor, ...]) -> Tensor:
            return batch[2]

        def train_model_forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
            self.called.append(f"mask of {len(mask)}")
            return self.model(inputs) * mask  # type: ignore[no-any-return]

    tm = Masked(train_data=[(x, y, torch.ones(4, 1)) for x, y in make_batches(2)])
    tm.train()

    assert tm.called == ["mask of 4"] * 2


def test_a_part_of_a_batch_with_another_name_is_refused() -> None:
    class Pixels(Own):
        def unpack_batch(self, batch: Batch) -> dict[str, Tensor]:
            return {"inputs": batch[0], "pixels": batch[0]}

    with pytest.raises(InputError) as caught:
        Pixels().train()

    assert str(caught.value) == (
        "unpack_batch must return inputs and targets only, but returned 'pixels' too\n"
        '  write a fixture of its own: @fixture("train_step_batch") def pixels(self, batch): ...'
    )


def test_a_batch_that_is_not_a_pair_is_the_inputs() -> None:
    def loss(prediction: Tensor, inputs: Tensor) -> Tensor:
        return F.mse_loss(prediction, inputs)

    tm = Own(loss=loss, train_data=[x for x, _ in make_batches(3)])
    tm.train()

    assert tm.step_num == 3


def test_an_overridden_batch_size_is_the_weight_in_the_mean() -> None:
    class Masked(Own):
        def get_true_batch_size(self, targets: Tensor) -> int:
            return int(targets[0])

        def loss_forward(self, targets: Tensor) -> Tensor:
            return targets[0].float()

    tm = Masked(eval_data=[(torch.zeros(2, 2), torch.tensor([n, 0])) for n in (1, 3)])

    assert tm.eval() == {"eval": {"loss": (1 * 1 + 3 * 3) / 4}}


def test_training_and_evaluation_may_count_the_examples_of_a_batch_each_in_its_own_way() -> None:
    class Counts(Own):
        def train_get_true_batch_size(self, targets: Tensor) -> int:
            return 10 * len(targets)

        def eval_get_true_batch_size(self, inputs: Tensor) -> int:
            return 100 * len(inputs)

    tm, sizes = Counts(eval_data=[(torch.zeros(2, 2), torch.tensor([0, 1]))]), []
    tm.add_extension(
        post_train_step_batch=lambda true_batch_size: sizes.append(true_batch_size),
        post_eval_step_batch=lambda true_batch_size: sizes.append(true_batch_size),
    )
    tm.train_steps(1)

    assert sizes == [200, 40, 200]  # evaluations before and after a training batch of four examples


def test_of_one_form_alone_the_other_counts_as_the_common_method_does() -> None:
    class Counts(Own):
        def get_true_batch_size(self) -> int:
            return 5

        def eval_get_true_batch_size(self) -> int:
            return 7

    tm, sizes = Counts(), []
    tm.add_extension(post_train_step_batch=lambda true_batch_size: sizes.append(true_batch_size))
    tm.train_steps(1)
    assert sizes == [5]


def test_parameters_are_initialised_once_by_fixture_names() -> None:
    class Xavier(Own):
        def initialize_params(self, epoch_num: int, train_manager: TrainManager) -> None:
            self.called.append(f"epoch {epoch_num}")
            nn.init.xavier_uniform_(self.model.weight, generator=torch.Generator().manual_seed(5))

    tm = Xavier(epochs=1)
    tm.train_epochs(0)
    expected = nn.init.xavier_uniform_(torch.empty(2, 2), generator=torch.Generator().manual_seed(5))
    assert torch.equal(tm.model.weight, expected)

    tm.train()
    assert tm.called == ["epoch 0"]


def test_forward_methods_can_be_called_again_by_a_hook() -> None:
    """As sharpness-aware minimisation does: they open no stages."""
    losses: list[tuple[float, float]] = []

    def again(train_manager: TrainManager, fixtures: Any, loss: Tensor) -> None:
        prediction = train_manager.call_by_name(train_manager.train_model_forward)
        fixtures.modify("prediction", prediction)
        second = train_manager.call_by_name(train_manager.train_loss_forward)
        assert second is not None
        losses.append((loss.item(), second.item()))

    tiny_manager(At("post_train_backward", again)).train()

    assert len(losses) == 3
    assert all(first == second for first, second in losses)


# ---- losses that a model adds ------------------------------------------------------------------------------------


class Sparse(nn.Linear):
    """Adds a penalty on its weights while it computes."""

    def forward(self, input: Tensor) -> Tensor:
        add_loss(self.weight.square().sum(), "penalty")
        return super().forward(input)


def zero_loss(prediction: Tensor) -> Tensor:
    return 0 * prediction.sum()


def test_what_a_batch_has_added_is_not_in_the_next() -> None:
    seen: list[float] = []
    tm = tiny_manager(
        At("post_train_step_batch", lambda losses, loss: seen.append((losses["penalty"] - loss).item())),
        At("pre_train_optimizer_step", skip_stage),
        model=Sparse(2, 2),
        loss=zero_loss,
    )
    tm.train()

    assert seen == [0, 0, 0]


def test_a_model_that_is_used_elsewhere_adds_nothing() -> None:
    tm = tiny_manager(model=Sparse(2, 2), loss=zero_loss, eval_data=[torch.ones(1, 2)])
    tm.add_extension(pre_eval_loss_forward=lambda inputs: (tm.model(inputs), None)[1])
    penalty = tm.model.weight.square().sum().item()

    assert tm.eval()["eval"]["loss"] == pytest.approx(penalty)


# ---- an objective ------------------------------------------------------------------------------------------------


class Autoencode(Objective):
    """Doubles the prediction of the model, and compares it with the inputs."""

    def predict(self, model: nn.Module, inputs: Tensor) -> Any:
        return 2 * model(inputs)

    def loss(self, prediction: Tensor, inputs: Tensor) -> Tensor:
        return F.mse_loss(prediction, inputs)

    def metrics(self, prediction: Tensor) -> dict[str, Tensor | float]:
        return {"largest": prediction.max()}


def test_an_objective_is_an_extension_of_this_name() -> None:
    objective = Autoencode()
    tm = TrainManager(model=nn.Linear(2, 2), loss=objective, optimizer=SGD)

    assert tm["objective"] is objective


# ---- inputs, targets and a prediction from elsewhere -------------------------------------------------------------


class Parts(Extension):
    """Computes targets that are not in the batch, as a lazy fixture."""

    @fixture("train_step_batch")
    def targets(self, batch: Tensor) -> Tensor:
        return batch.sum(dim=1, keepdim=True)


def test_targets_may_be_a_lazy_fixture() -> None:
    options: dict[str, Any] = {"model": nn.Linear(2, 1), "loss": F.mse_loss, "eval_data": None, "epochs": 1}
    batches = [torch.ones(4, 2)] * 30
    tm = tiny_manager(Parts(), **options, optimizer=at_rate(0.1), train_data=batches)
    tm.train()
    torch.testing.assert_close(tm.model(torch.ones(1, 2)), torch.tensor([[2.0]]))


def test_inputs_may_be_a_lazy_fixture() -> None:
    class Inputs(Extension):
        @fixture("train_step_batch")
        def inputs(self, batch: dict[str, Tensor]) -> Tensor:
            return batch["x"]

    class OnlyTargets(TrainManager):
        def unpack_batch(self, batch: dict[str, Tensor]) -> dict[str, Any]:
            return {"targets": batch["y"]}

    x, y = make_batches(1)[0]
    parts: dict[str, Any] = {"loss": F.cross_entropy, "optimizer": at_rate(0.1), "model": nn.Linear(x.shape[1], 2)}
    tm = OnlyTargets(**parts, train_data=[{"x": x, "y": y}], extensions=[Inputs()])
    assert tm.train().steps == 1


def test_a_hook_may_predict_in_place_of_the_model() -> None:
    class Predicts(Extension):
        def pre_train_model_forward(self, fixtures: Any, inputs: Tensor, train_manager: TrainManager) -> None:
            fixtures.define("prediction", train_manager.model(inputs), stage="train_step_batch")
            skip_stage()

    assert final_loss(extensions=[Predicts()]) == final_loss()


def test_a_forward_pass_that_is_skipped_without_a_prediction_is_an_error() -> None:
    with pytest.raises(FixtureNotFound, match="reads 'prediction', which no open stage provides"):
        tiny_manager(At("pre_train_model_forward", skip_stage), eval_data=None).train()


# ---- what is replaced on the object ------------------------------------------------------------------------------


def forward_of(tm: TrainManager) -> Callable[[Any], Tensor]:
    return lambda inputs: tm.model(2 * inputs)


def test_a_method_that_is_replaced_on_the_object_works_like_one_of_a_class() -> None:
    class Doubling(TrainManager):
        def model_forward(self, inputs: Any) -> Any:
            return self.model(2 * inputs)

    of_class, of_object = tiny_manager(seed=0), tiny_manager(seed=0)
    of_class.__class__ = Doubling
    of_object.model_forward = forward_of(of_object)  # type: ignore[method-assign]
    assert of_class.train().metrics == of_object.train().metrics
    assert of_class.train_epochs(1).metrics != tiny_manager(seed=0, epochs=2).train().metrics


def test_a_method_that_is_replaced_while_it_trains_is_refused() -> None:
    tm = tiny_manager(At("post_train_step_epoch", lambda: setattr(tm, "model_forward", forward_of(tm))))

    with pytest.raises(StageError) as error:
        tm.train()

    assert str(error.value) == (
        "TrainManager.model_forward was replaced while a call that uses it runs\n"
        "  open stages  run > train > train_step_epoch\n"
        "  override it in a class, or replace it before the call"
    )
    assert "model_forward" not in vars(tm)


def test_a_method_can_be_replaced_between_two_calls_in_a_held_run() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.train_steps(1)
        tm.model_forward = forward_of(tm)  # type: ignore[method-assign]
        tm.train_steps(1)
    assert tm.step_num == 2


@pytest.mark.parametrize("method", ["unpack_batch", "get_true_batch_size", "loss_forward", "train_loss_forward"])
def test_each_method_of_a_step_can_be_replaced_on_the_object(method: str) -> None:
    tm = tiny_manager(eval_data=None)
    calls: list[str] = []
    default = getattr(tm, method)

    def replaced(**fixtures: Any) -> Any:
        calls.append(method)
        return default(fixtures["batch"]) if "batch" in method else default()

    setattr(tm, method, replaced)
    tm.train()
    assert len(calls) == tm.step_num


def test_a_loss_that_is_set_while_it_trains_is_used_from_the_next_step_on() -> None:
    class Later(Extension):
        def post_train_step_batch(self, train_manager: TrainManager, loss: Tensor, step_num: int) -> None:
            self.last = loss.item()
            train_manager.loss = lambda prediction, targets: 0 * prediction.sum() + 7

    later = Later()
    tiny_manager(later, eval_data=None).train()
    assert later.last == 7


def sevens(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch[0], 7 + 0 * batch[1]


@pytest.mark.parametrize("of_class", [True, False])
def test_what_is_replaced_between_a_training_and_an_evaluation_is_evaluated_with(of_class: bool) -> None:
    class Own(TrainManager):
        pass

    tm = tiny_manager(loss=lambda prediction, targets: targets.float().mean())
    tm.__class__ = Own
    (Own if of_class else tm).unpack_batch = staticmethod(sevens) if of_class else sevens  # type: ignore[method-assign]
    assert tm.eval()["valid"]["loss"] == 7
    assert tm.eval_on_batch(make_batches(1)[0]) == {"loss": 7}


def test_the_method_of_another_manager_is_no_default() -> None:
    teacher, tm = tiny_manager(seed=0), tiny_manager(seed=1, eval_data=None)
    tm.model_forward = teacher.model_forward  # type: ignore[method-assign]
    teacher.model.requires_grad_(False)
    with pytest.raises(InputError, match="the loss does not require grad"):  # as it is the teacher's
        tm.train()
