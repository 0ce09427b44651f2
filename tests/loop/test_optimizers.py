"""Optimizers and schedules: several by name, the parameters of a loss, and what was replaced since it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, StepLR

from tests.support.training import At, make_batches, refusal
from train_manager import Objective, TrainManager, WeightedLosses
from train_manager.errors import StageError
from train_manager.extensions import LRSchedule
from train_manager.loop.arguments import require_loss
from train_manager.loop.optimizers import find_rates_below_zero, require_optimizer
from train_manager.loop.schedulers import require_lr_schedule
from train_manager.model.optimizers import parameters_in
from train_manager.testing import tiny_manager


def sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.5)


def numbers_in(optimizer: Any) -> int:
    """How many numbers an optimizer trains."""
    return sum(parameter.numel() for parameter in parameters_in(optimizer))


class Temperature(nn.Module):
    """A loss with three parameters, one of them a number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction * self.scale + self.shift, targets)


class Tempered(Objective):
    """Its loss is a module of its own; its teacher is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.criterion = Temperature()
        self.teacher = nn.Linear(2, 2).requires_grad_(False).eval()

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return self.criterion(prediction, targets)  # type: ignore[no-any-return]


# ---- the parameters of a loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (Temperature, "Temperature"),
        (lambda: WeightedLosses({"digit": Temperature()}), "WeightedLosses"),
        (lambda: Tempered().loss, "Tempered"),
    ],
    ids=["module", "weighted", "objective"],
)
def test_the_parameters_of_a_loss_are_trained_too_and_said(make: Callable[[], Any], named: str) -> None:
    with pytest.warns(UserWarning, match="parameters") as said:
        optimizer = require_optimizer(AdamW, nn.Linear(2, 2), make())

    assert [str(one.message) for one in said] == [f"the loss ({named}) has 3 parameters, which are trained too"]
    assert numbers_in(optimizer) == 6 + 3


@pytest.mark.parametrize("make", [Temperature, Tempered])
def test_a_training_changes_the_parameters_of_its_loss(make: Callable[[], Any]) -> None:
    loss = make()
    with pytest.warns(UserWarning, match="which are trained too"):
        tm = tiny_manager(loss=loss)
    tm.train()

    criterion = loss if isinstance(loss, Temperature) else loss.criterion
    assert criterion.scale != 1
    assert criterion.shift.abs().min() > 0


def test_the_warning_points_at_the_line_that_makes_the_manager() -> None:
    with pytest.warns(UserWarning, match="parameters") as said:
        TrainManager(model=nn.Linear(2, 2), loss=Temperature(), optimizer=AdamW)

    assert said[0].filename == __file__


def test_frozen_parameters_of_a_loss_are_not_said() -> None:
    optimizer = require_optimizer(AdamW, nn.Linear(2, 2), Temperature().requires_grad_(False))

    assert numbers_in(optimizer) == 6 + 3


def test_parameters_that_loss_and_model_share_are_the_models() -> None:
    loss = Temperature()

    assert numbers_in(require_optimizer(AdamW, nn.ModuleList([loss]), loss)) == 3


def test_a_loss_that_is_a_method_of_the_model_adds_no_parameters() -> None:
    class Own(nn.Linear):
        def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return prediction.sum()

    model = Own(2, 2)

    assert numbers_in(require_optimizer(AdamW, model, model.loss)) == 6


@pytest.mark.parametrize(("stage", "mode"), [("train", True), ("eval", False)])
def test_the_modules_of_an_objective_have_the_mode_of_the_model_but_a_frozen_teacher_keeps_its_own(
    stage: str, mode: bool
) -> None:
    objective, modes = Tempered(), set()
    note = At(
        f"post_{stage}_loss_forward", lambda: modes.add((objective.criterion.training, objective.teacher.training))
    )
    with pytest.warns(UserWarning, match="which are trained too"):
        tm = tiny_manager(note, loss=objective)
    tm.train()

    assert modes == {(mode, False)}


def test_the_modules_of_an_objective_go_to_the_device() -> None:
    objective = Tempered()
    require_loss(objective.loss, torch.device("meta"))

    assert objective.criterion.scale.device.type == "meta"


def test_a_ready_optimizer_that_lacks_parameters_of_the_loss_is_said() -> None:
    model = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="parameters") as said:
        tm = TrainManager(model=model, loss=Temperature(), optimizer=sgd(model.parameters()))

    assert [str(one.message) for one in said] == [
        "the optimizer lacks 3 parameters of the loss (Temperature), so they are not trained "
        "(give them to it, or set requires_grad=False)"
    ]
    assert said[0].filename == __file__
    assert numbers_in(tm.optimizer) == 6


def test_a_ready_optimizer_with_all_parameters_says_nothing() -> None:
    model, loss = nn.Linear(2, 2), Temperature()
    optimizer = sgd([*model.parameters(), *loss.parameters()])

    assert require_optimizer(optimizer, model, loss) is optimizer


def test_a_ready_optimizer_may_lack_frozen_parameters_of_the_loss() -> None:
    model = nn.Linear(2, 2)
    optimizer = sgd(model.parameters())

    assert require_optimizer(optimizer, model, Temperature().requires_grad_(False)) is optimizer


def test_parameters_of_a_loss_that_is_given_later_are_said_once_as_a_training_begins() -> None:
    tm = tiny_manager()
    tm.loss = Temperature()
    with pytest.warns(UserWarning, match="parameters") as said:
        tm.train()
    tm.train_epochs(1)

    assert [str(one.message)[:57] for one in said] == [
        "the optimizer lacks 3 parameters of the loss (Temperature)"[:57]
    ]
    assert said[0].filename == __file__


# ---- several optimizers --------------------------------------------------------------------------------------------


class Both(nn.Module):
    """Two parts, and a loss that trains both."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(2, 3), nn.Linear(3, 2)
        self.size = 3

    def forward(self, inputs: Tensor) -> Tensor:
        return self.critic(self.generator(inputs))  # type: ignore[no-any-return]


class UpdatesBoth(TrainManager):
    def train_batch(self) -> None:
        loss = self.forward()
        self.backward(loss, "generator", retain_graph=True)
        self.backward(loss, "critic")
        self.step("generator")
        self.step("critic")


def both(**options: Any) -> TrainManager:
    tiny = tiny_manager()
    given = {"model": Both(), "loss": F.cross_entropy, "train_data": tiny.train_data}
    return UpdatesBoth(**{**given, "optimizer": {"generator": sgd, "critic": AdamW}, **options})


def test_callables_in_a_dict_get_the_parameters_of_the_part_with_their_name() -> None:
    tm = both()

    assert {name: numbers_in(optimizer) for name, optimizer in tm.optimizers.items()} == {"generator": 9, "critic": 8}


def two_groups(model_or_params: Any, lr: float = 0.5) -> Optimizer:
    """As timm's create_optimizer_v2: of a model it makes groups by name, of parameters one group."""
    if not isinstance(model_or_params, nn.Module):
        return SGD(model_or_params, lr=lr)
    named = dict(model_or_params.named_parameters())
    parts = ([one for name, one in named.items() if name.endswith(kind)] for kind in ("weight", "bias"))
    return SGD([{"params": part, "weight_decay": decay} for part, decay in zip(parts, (0.1, 0.0), strict=True)], lr=lr)


@pytest.mark.parametrize(
    "make", [two_groups, partial(two_groups, lr=0.2), lambda model: two_groups(model)], ids=["function", "partial", "λ"]
)
def test_a_callable_of_the_model_makes_groups_by_the_names_of_its_parameters(make: Any) -> None:
    model = nn.Linear(2, 2)

    optimizer = require_optimizer(make, model, None)

    assert isinstance(optimizer, Optimizer)
    assert [group["params"] for group in optimizer.param_groups] == [[model.weight], [model.bias]]


def test_a_callable_of_the_model_trains_as_the_ready_optimizer_of_a_loop_by_hand() -> None:
    tm, other = tiny_manager(optimizer=two_groups), tiny_manager()
    optimizer = two_groups(other.model)
    tm.train()
    for inputs, targets in other.train_data or ():
        optimizer.zero_grad()
        F.cross_entropy(other.model(inputs), targets).backward()
        optimizer.step()

    assert all(one.equal(two) for one, two in zip(tm.model.parameters(), other.model.parameters(), strict=True))


def test_a_phase_with_a_model_of_its_own_gets_the_optimizer_of_that_model() -> None:
    tm, other = tiny_manager(optimizer=two_groups, eval_data=None), nn.Linear(2, 2)
    with tm.run(), tm.phase("other", model=other):
        groups = tm.optimizers["optimizer"].param_groups

    assert [group["params"] for group in groups] == [[other.weight], [other.bias]]


def test_a_ready_optimizer_in_a_dict_may_have_any_name() -> None:
    model = Both()
    ready = sgd(model.parameters())

    assert require_optimizer({"all": ready}, model, None) == {"all": ready}


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("generatr", "did you mean 'generator'?"),
        ("actor", "name it after a part (generator, critic), or give a ready optimizer"),
        ("size", "name it after a part (generator, critic), or give a ready optimizer"),
    ],
)
def test_a_callable_whose_name_is_no_part_of_the_model_is_refused(name: str, cure: str) -> None:
    assert refusal(lambda: require_optimizer({name: sgd}, Both(), None)) == (
        f"optimizer {name!r} is a callable of the parameters of model.{name}, which is not a module\n  {cure}"
    )


@pytest.mark.parametrize("name", ["my part", "generator.0", "", 3])
def test_a_name_that_is_no_identifier_is_refused(name: Any) -> None:
    assert refusal(lambda: require_optimizer({name: sgd}, Both(), None)) == (
        f'an optimizer cannot be called {name!r}\n  take an identifier: {{"generator": torch.optim.AdamW}}'
    )


def test_an_empty_dict_of_optimizers_is_refused() -> None:
    assert refusal(lambda: require_optimizer({}, Both(), None)) == (
        'optimizer is an empty dict\n  name some: {"generator": Adam}'
    )


def test_what_is_no_optimizer_in_a_dict_is_named() -> None:
    assert refusal(lambda: require_optimizer({"critic": None}, Both(), None)) == (  # type: ignore[dict-item]
        "optimizer 'critic' must be a torch optimizer or a callable that makes one, but is a NoneType\n"
        "  give the class: optimizer=torch.optim.AdamW"
    )


def test_a_callable_in_a_dict_that_makes_no_optimizer_is_named() -> None:
    make: Any = {"critic": lambda parameters: 3}

    assert refusal(lambda: require_optimizer(make, Both(), None)).startswith(
        "optimizer 'critic' must make a torch optimizer, but made a int\n"
    )


def test_a_part_without_parameters_is_refused() -> None:
    model = nn.ModuleDict({"generator": nn.ReLU()})

    assert refusal(lambda: require_optimizer({"generator": AdamW}, model, None)).startswith(
        "model.generator has no parameters for an optimizer\n"
    )


def test_an_optimizer_in_a_dict_that_has_no_parameter_of_the_model_is_named() -> None:
    given: Any = {"generator": sgd, "critic": sgd(nn.Linear(1, 1).parameters())}

    assert refusal(lambda: require_optimizer(given, Both(), None)) == (
        "optimizer 'critic' (SGD) has no parameter of the model, so nothing would be trained\n"
        "  make it with the parameters of this model, or give the class: optimizer=torch.optim.AdamW"
    )


def test_an_optimizer_in_a_dict_may_have_the_parameters_of_the_loss() -> None:
    loss = Temperature()
    given: Any = {"generator": sgd, "loss": sgd(loss.parameters())}

    made = require_optimizer(given, Both(), loss)

    assert isinstance(made, dict)
    assert list(made) == ["generator", "loss"]


def test_parameters_of_a_loss_that_no_optimizer_has_are_said() -> None:
    with pytest.warns(UserWarning, match="parameters") as said:
        both(loss=Temperature())

    assert [str(one.message) for one in said] == [
        "no optimizer has 3 parameters of the loss (Temperature), so they are not trained "
        "(give them to it, or set requires_grad=False)"
    ]
    assert said[0].filename.endswith("test_optimizers.py")


def test_optimizers_that_are_given_later_train() -> None:
    tm = both()
    tm.optimizer = {name: sgd(getattr(tm.model, name).parameters()) for name in ("generator", "critic")}
    tm.train()

    assert tm.optimizer_updates == {"generator": 3, "critic": 3}


def test_a_callable_that_is_given_later_is_refused_as_a_training_begins() -> None:
    tm = both()
    tm.optimizer = AdamW  # type: ignore[assignment]

    assert refusal(tm.train) == (
        "the optimizer must be a torch optimizer by now, but is the class AdamW\n"
        "  make it: tm.optimizer = torch.optim.AdamW(tm.model.parameters())"
    )


@pytest.mark.parametrize("empty", [True, False])
def test_an_optimizer_of_no_parameter_of_the_model_is_refused_now_and_later(empty: bool) -> None:
    """Groups without parameters count as those of another model."""
    parameters: Any = [{"params": []}] if empty else nn.Linear(1, 1).parameters()
    optimizer, tm = SGD(parameters, lr=0.1), tiny_manager()
    what = "the optimizer (SGD) has no parameter of the model, so nothing would be trained\n"

    assert refusal(lambda: require_optimizer(optimizer, nn.Linear(2, 2), None)).startswith(what)
    tm.optimizer = optimizer
    assert refusal(tm.train) == (
        f"{what}  was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())"
    )


# ---- parameters that two optimizers share --------------------------------------------------------------------------


def shared(model: nn.Module) -> dict[str, Optimizer]:
    return {"generator": sgd(model.parameters()), "critic": sgd(model.parameters())}


@pytest.mark.filterwarnings("ignore:4 parameters are in several optimizers")
def test_two_optimizers_may_share_parameters_if_their_updates_do_not_overlap() -> None:
    class InTurn(TrainManager):
        def train_batch(self) -> None:
            loss = self.forward()
            self.update(loss, "generator")
            self.update(lambda: self.call_by_name(self.train_again), "critic")

        def train_again(self, model: nn.Module, inputs: Tensor) -> Tensor:
            return model(inputs).square().mean()  # type: ignore[no-any-return]

    model = Both()
    tm = InTurn(model=model, loss=F.cross_entropy, optimizer=shared(model), train_data=tiny_manager().train_data)
    tm.train()

    assert tm.optimizer_updates == {"generator": 3, "critic": 3}


def test_gradients_of_two_optimizers_that_would_mix_are_refused() -> None:
    model = Both()
    with pytest.raises(StageError) as caught:
        both(model=model, optimizer=shared(model)).train()

    assert str(caught.value) == (
        "optimizers 'critic' and 'generator' share parameters, and both gather gradients, which would mix\n"
        "  end the window of one before the backward of the other (update), or give each parameters of its own"
    )


# ---- schedules -----------------------------------------------------------------------------------------------------


def each(optimizer: Optimizer) -> StepLR:
    return StepLR(optimizer, 1, gamma=0.5)


def test_a_dict_of_schedules_may_leave_out_an_optimizer() -> None:
    tm = both(lr_schedule={"generator": each}, epochs=2)
    tm.train()

    assert [tm.optimizers[name].param_groups[0]["lr"] for name in ("generator", "critic")] == [0.5 / 4, 1e-3]


def test_a_schedule_of_an_unknown_optimizer_is_refused() -> None:
    assert refusal(lambda: both(lr_schedule={"actor": each})) == (
        "lr_schedule names 'actor', but the optimizers are 'generator' and 'critic'\n"
        "  give it the names of the optimizers"
    )


@pytest.mark.parametrize("of_several", [True, False])
def test_one_schedule_for_several_optimizers_is_refused_and_so_is_the_reverse(of_several: bool) -> None:
    made: Any = {"a": sgd(nn.Linear(1, 1).parameters())} if of_several else sgd(nn.Linear(1, 1).parameters())

    assert refusal(lambda: require_lr_schedule(each if of_several else {"a": each}, made)) == (
        "lr_schedule and optimizer must both be dicts, or neither\n"
        "  give a dict with the names of the optimizers, or one callable for one optimizer"
    )


def test_a_schedule_of_an_optimizer_that_was_replaced_is_refused_as_a_training_begins() -> None:
    tm = tiny_manager(lr_schedule=each)
    tm.optimizer = sgd(tm.model.parameters())

    assert refusal(tm.train) == (
        "lr_schedule (StepLR) is of another optimizer, so no rate would change\n"
        "  was tm.optimizer replaced? make it anew: tm.lr_schedule = StepLR(tm.optimizer, 10)"
    )
    tm.lr_schedule = each(tm.optimizer)
    tm.train()
    assert tm.optimizer.param_groups[0]["lr"] == 0.25


def test_a_schedule_of_an_optimizer_that_is_wrapped_now_passes() -> None:
    """As accelerate does it: the wrapper has the groups of the optimizer inside."""

    class Wrapped:
        def __init__(self, optimizer: Optimizer) -> None:
            self.inside = optimizer

        def step(self, closure: Any = None) -> None:
            self.inside.step(closure)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

    tm = tiny_manager(lr_schedule=each)
    tm.optimizer = Wrapped(tm.optimizer)  # type: ignore[assignment]  # not derived from torch's
    tm.train()

    assert tm.optimizer.param_groups[0]["lr"] == 0.25


@pytest.fixture(autouse=True)
def same_weights() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_a_schedule_made_for_batches_is_told_that_it_steps_per_epoch() -> None:
    def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=24)

    with pytest.warns(UserWarning, match="steps once per epoch, so OneCycleLR gets to step 3 of its 24") as told:
        tiny_manager(lr_schedule=one_cycle, epochs=3).train()

    assert told[0].filename == __file__


BELOW = "a learning rate is below 0, so steps make the loss larger (end the schedule at 0: max(0.0, rate))"


@pytest.mark.filterwarnings("ignore:a learning rate is below 0")
def test_a_schedule_that_leads_below_zero_is_told_as_the_first_such_epoch_begins() -> None:
    tm = tiny_manager(lr_schedule=lambda optimizer: LambdaLR(optimizer, lambda epoch: 1.0 - epoch), epochs=4)
    tm.train_epochs(2)  # with the rates 0.5 and 0; the next epoch would have -0.5
    before = len(tm.findings)
    tm.train_epochs(2)

    assert (before, [one.in_a_line for one in tm.findings]) == (0, [BELOW])


@pytest.mark.filterwarnings("ignore:a learning rate is below 0")
@pytest.mark.parametrize(("steps", "count"), [(3, 0), (4, 1)])
def test_a_schedule_of_steps_is_told_with_the_first_step_below_zero(steps: int, count: int) -> None:
    make = lambda optimizer: LambdaLR(optimizer, lambda step: 1.0 - step / 2)  # noqa: E731
    tm = tiny_manager(LRSchedule(make, per="step"), train_data=make_batches(9))
    tm.train_steps(steps)

    assert [one.level for one in tm.findings] == ["warning"] * count


def test_a_rate_in_a_tensor_is_not_read() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=torch.tensor(0.1))
    optimizer.param_groups[0]["lr"].fill_(-1.0)

    assert find_rates_below_zero({"optimizer": optimizer}) == []
