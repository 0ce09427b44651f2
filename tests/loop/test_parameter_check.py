"""What the loop tells by itself of parameters that a training leaves out, and what it must not take for that."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.support.training import make_batches, sgd
from train_manager import TrainManager
from train_manager.core.outcome import SkipStage
from train_manager.extensions import Accumulate, FreezeModules, MixedPrecision
from train_manager.model.parameters import places
from train_manager.testing import Recorder, tiny_manager

GIVE = "give them to one, or freeze them: requires_grad_(False)"


class Net(nn.Module):
    """A trunk and a head, and a second head that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.unused = nn.Linear(2, 4), nn.Linear(4, 2), nn.Linear(4, 3)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.trunk(input).relu())  # type: ignore[no-any-return]


def without_unused() -> Net:
    net = Net()
    del net.unused
    return net


def of(*names: str) -> Callable[..., Optimizer]:
    """Make an optimizer of parts of a model."""
    return lambda model: SGD([p for name in names for p in model.get_submodule(name).parameters()], lr=0.1)


def groups_of(model: Net) -> list[dict[str, Any]]:
    return [{"params": model.trunk.parameters(), "lr": 0.01}, {"params": model.head.parameters()}]


def manager(model: nn.Module, optimizer: Any = sgd, *extensions: Any, **options: Any) -> TrainManager:
    given = optimizer(model) if optimizer is not sgd and callable(optimizer) else optimizer
    return tiny_manager(*extensions, **{"model": model, "optimizer": given, "eval_data": {}, "epochs": 7, **options})


def list_warnings(tm: TrainManager, train: Callable[[TrainManager], object] = TrainManager.train) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tm)
    return [str(one.message) for one in caught]


# ---- found -----------------------------------------------------------------------------------------------------------


def test_parameters_without_a_gradient_in_ten_windows_are_told_once() -> None:
    tm = manager(Net())

    assert list_warnings(tm) == [
        "2 parameters of the optimizer have no gradient after a backward pass: unused.weight, unused.bias (does the "
        "loss depend on them, without detach() or no_grad()? else freeze them: requires_grad_(False))"
    ]
    assert [(one.check, one.level, one.where) for one in tm.findings] == [
        ("parameters", "warning", "unused.weight, unused.bias")
    ]


def test_parameters_that_have_a_gradient_and_are_in_no_optimizer_are_told() -> None:
    tm = manager(Net(), of("trunk"))

    assert list_warnings(tm) == [
        f"2 parameters have a gradient and are in no optimizer: head.weight, head.bias ({GIVE})"
    ]


def test_a_group_of_an_optimizer_that_is_frozen_is_told() -> None:
    model = without_unused()
    model.trunk.requires_grad_(False)

    assert list_warnings(manager(model, SGD(groups_of(model), lr=0.1))) == [
        "2 parameters are frozen, and a group of the optimizer has no other: trunk.weight, trunk.bias "
        "(leave the group out, or train it: requires_grad_(True))"
    ]


class Parts(nn.ModuleDict):
    def forward(self, input: Tensor) -> Tensor:
        return self["head"](self["trunk"](input))  # type: ignore[no-any-return]


class InTurn(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        for name in self.optimizers:
            self.update(F.cross_entropy(model(inputs), targets), name)


def two(make: Callable[[nn.Module], dict[str, Optimizer]], **options: Any) -> InTurn:
    model = Parts({"trunk": nn.Linear(2, 4), "head": nn.Linear(4, 2)})
    given: dict[str, Any] = {"optimizer": make(model), "train_data": make_batches(3), **options}
    return InTurn(model=model, loss=F.cross_entropy, **given)


def test_parameters_in_two_optimizers_are_told() -> None:
    tm = two(lambda model: {"trunk": SGD(model.parameters(), lr=0.1), "head": of("head")(model)})

    assert list_warnings(tm) == [
        "2 parameters are in several optimizers: head.weight, head.bias (give them to one: each would step them)"
    ]


def test_all_that_one_step_can_know_is_one_warning_with_all_names() -> None:
    model = without_unused()
    model.trunk.weight.requires_grad_(False)
    optimizer = SGD([{"params": [model.trunk.weight]}, {"params": [model.head.weight]}], lr=0.1)
    tm = manager(model, optimizer, steps_per_epoch=1, epochs=1)

    assert list_warnings(tm) == [
        f"2 parameters have a gradient and are in no optimizer: trunk.bias, head.bias ({GIVE}); "
        "1 parameter is frozen, and a group of the optimizer has no other: trunk.weight "
        "(leave the group out, or train it: requires_grad_(True))"
    ]
    assert len(tm.findings) == 2


def test_a_branch_that_is_detached_is_told_of_one_of_several_optimizers() -> None:
    class Detached(Parts):
        def forward(self, input: Tensor) -> Tensor:
            hidden = self["first"](input).detach() if "first" in self else input
            return self["head"](self["trunk"](hidden))  # type: ignore[no-any-return]

    model = Detached({"first": nn.Linear(2, 2), "trunk": nn.Linear(2, 4), "head": nn.Linear(4, 2)})
    optimizers = {"body": of("first", "trunk")(model), "head": of("head")(model)}
    tm = InTurn(model=model, loss=F.cross_entropy, optimizer=optimizers, train_data=make_batches(10))

    assert [text.partition(" (")[0] for text in list_warnings(tm)] == [
        "2 parameters of optimizer 'body' have no gradient after a backward pass: first.weight, first.bias"
    ]


@pytest.mark.parametrize("extensions", [(), (Accumulate(2),), (MixedPrecision(),), (Recorder(),)])
def test_it_looks_as_a_window_is_complete_whatever_opens_the_stages(extensions: tuple[Any, ...]) -> None:
    tm = manager(Net(), sgd, *map(copy.deepcopy, extensions))

    assert len(list_warnings(tm)) == 1


def test_parameters_that_the_second_batch_of_a_window_uses_are_not_told() -> None:
    class ByTurns(Net):
        calls = 0

        def forward(self, input: Tensor) -> Tensor:
            self.calls += 1
            head = self.head if self.calls % 2 else self.unused
            return head(self.trunk(input))[:, :2]  # type: ignore[no-any-return]

    assert list_warnings(manager(ByTurns(), sgd, Accumulate(2))) == []


def test_the_stages_inside_a_batch_stay_closed_once_the_check_knows() -> None:
    tm = manager(Net())
    list_warnings(tm)

    assert "train_backward  (stays closed: nothing looks into it)" in tm.explain()


def steps_with_the_check(tm: TrainManager, steps: int = 12) -> list[int]:
    """Train, and return the steps at whose end the check was among the extensions."""
    seen: list[int] = []

    def note(step_num: int) -> None:
        if "parameter_check" in tm.extensions:
            seen.append(step_num)

    tm.add_extension(post_train_step_batch=note)
    list_warnings(tm, lambda tm: tm.train_steps(steps))
    return seen


def test_the_check_leaves_in_the_first_window_if_all_parameters_have_a_gradient() -> None:
    assert steps_with_the_check(manager(without_unused())) == []


def test_the_check_leaves_in_the_tenth_window_if_a_parameter_has_none() -> None:
    assert steps_with_the_check(manager(Net())) == [*range(1, 10)]


def test_the_check_is_no_extension_between_two_runs() -> None:
    tm = manager(Net())
    tm.train_steps(2)

    assert "parameter_check" not in tm.extensions


def test_the_windows_of_several_runs_are_counted_together() -> None:
    tm = manager(Net())

    assert len(list_warnings(tm, lambda tm: [tm.train_steps(1) for _ in range(10)])) == 1


def test_an_optimizer_that_takes_the_place_of_another_is_looked_at_anew() -> None:
    tm = manager(without_unused())
    tm.train_steps(1)
    tm.optimizer = of("trunk")(tm.model)

    assert list_warnings(tm, lambda tm: tm.train_steps(1)) == [
        f"2 parameters have a gradient and are in no optimizer: head.weight, head.bias ({GIVE})"
    ]


def test_an_optimizer_that_a_hook_replaces_is_looked_at_from_the_next_training_call_on() -> None:
    tm = manager(Net(), steps_per_epoch=3)

    def replace(step_num: int) -> None:
        if step_num == 2:
            tm.optimizer = of("trunk")(tm.model)

    tm.add_extension(post_train_step_batch=replace)

    assert list_warnings(tm, lambda tm: tm.train_steps(12)) == []
    assert len(list_warnings(tm, lambda tm: tm.train_steps(1))) == 1


def test_a_copy_looks_for_itself() -> None:
    tm = manager(Net())
    tm.train_steps(1)

    assert steps_with_the_check(copy.deepcopy(tm)) == [*range(2, 11)]


def test_an_own_hook_that_skips_a_step_hides_no_finding() -> None:
    class Skips(TrainManager):
        def pre_train_optimizer_step(self, step_num: int) -> None:
            if step_num < 2:
                raise SkipStage

    model = without_unused()
    tm = Skips(model=model, loss=F.cross_entropy, optimizer=of("trunk")(model), train_data=make_batches(3))

    assert len(list_warnings(tm)) == 1


def test_after_a_phase_the_check_of_the_training_around_it_is_back() -> None:
    tm = manager(Net())
    with tm.run():
        tm.train_steps(1)
        outer = tm["parameter_check"]
        with tm.phase("other", model=(model := Net()), optimizer=sgd(model.parameters())):
            tm.train_steps(1)
            assert tm["parameter_check"] is not outer

        assert tm["parameter_check"] is outer


def test_an_own_train_batch_that_makes_no_step_of_the_loop_is_not_refused() -> None:
    class ByHand(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            F.cross_entropy(model(inputs), targets).backward()
            self.optimizer.step()

    model = Net()
    tm = ByHand(model=model, loss=F.cross_entropy, optimizer=sgd, train_data=make_batches(3))

    assert [text.partition(" in ")[0] for text in list_warnings(tm)] == ["train_batch has not called self.update(loss)"]


def test_a_phase_with_parts_of_its_own_is_looked_at_anew() -> None:
    tm = manager(without_unused())
    model = Net()

    def train(tm: TrainManager) -> None:
        with tm.run():
            tm.train_epochs(1)
            with tm.phase("same"):
                tm.train_epochs(1)
            with tm.phase("other", model=model, optimizer=sgd(model.parameters())):
                tm.train_epochs(4)

    assert [text.partition(":")[0] for text in list_warnings(tm, train)] == [
        "2 parameters of the optimizer have no gradient after a backward pass"
    ]


def test_a_loop_of_ones_own_is_looked_at_too() -> None:
    tm = manager(Net())

    assert len(list_warnings(tm, lambda tm: [tm.train_on_batch(batch) for batch in make_batches(10)])) == 1


# ---- not found -------------------------------------------------------------------------------------------------------


def test_a_frozen_teacher_in_no_optimizer_is_no_finding() -> None:
    class Taught(Net):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + self.unused(self.trunk(input))[:, :2]  # type: ignore[no-any-return]

    model = Taught()
    model.unused.requires_grad_(False)
    model.unused.bias.grad = torch.ones(3)  # of before it was frozen

    assert list_warnings(manager(model, of("trunk", "head"))) == []


def test_frozen_parameters_among_others_in_a_group_are_no_finding() -> None:
    model = without_unused()
    model.trunk.requires_grad_(False)

    assert list_warnings(manager(model)) == []


def test_a_group_that_an_extension_will_train_later_is_no_finding() -> None:
    model = without_unused()

    assert list_warnings(manager(model, SGD(groups_of(model), lr=0.1), FreezeModules("trunk", until=1), epochs=2)) == []


def test_a_phase_that_trains_the_head_alone_is_no_finding() -> None:
    tm = manager(without_unused())

    def train(tm: TrainManager) -> None:
        with tm.run(), tm.phase("head", optimizer=of("head")(tm.model)):
            tm.train_epochs(1)

    assert list_warnings(tm, train) == []


def test_optimizers_of_which_each_loss_trains_one_part_are_no_finding() -> None:
    tm = two(lambda model: {name: of(name)(model) for name in ("trunk", "head")})

    assert list_warnings(tm) == []


def test_parts_of_a_model_for_another_set_of_data_are_no_finding() -> None:
    from train_manager.data.interleaved import Interleaved

    tm = manager(Net(), train_data=Interleaved({"one": make_batches(2), "other": make_batches(2)}))

    assert list_warnings(tm) == []


class ByTurns(nn.Module):
    """Uses one of several layers in each batch."""

    def __init__(self, layers: int, order: Callable[[int], int]) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(2, 2) for _ in range(layers)), nn.Linear(2, 2)
        self.order, self.batches = order, 0

    def forward(self, input: Tensor) -> Tensor:
        self.batches += 1
        return self.head(self.layers[self.order(self.batches)](input))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("layers", "order"), [(3, lambda batch: batch % 3), (2, lambda batch: int(batch == 10))])
def test_parts_that_are_trained_by_turns_are_no_finding(layers: int, order: Callable[[int], int]) -> None:
    assert list_warnings(manager(ByTurns(layers, order))) == []


def test_what_phases_with_the_same_parts_train_by_turns_is_no_finding() -> None:
    tm = manager(ByTurns(2, lambda batch: batch > 6))

    def train(tm: TrainManager) -> None:
        with tm.run():
            for number in range(4):
                with tm.phase(f"phase {number}"):
                    tm.train_epochs(1)

    assert list_warnings(tm, train) == []


def test_a_switch_turns_it_off_on_an_object_or_a_class() -> None:
    class Quiet(TrainManager):
        check_parameters = False

    tm = manager(Net())
    tm.check_parameters = False
    model = Net()
    quiet = Quiet(model=model, loss=F.cross_entropy, optimizer=sgd, train_data=make_batches(3))

    assert (list_warnings(tm), list_warnings(quiet), tm.findings) == ([], [], [])


def test_a_model_that_trains_itself_is_passed_over() -> None:
    class Itself:
        def train_step(self, batch: Any) -> Tensor:
            return torch.zeros(())

    assert list_warnings(TrainManager(model=Itself(), train_data=make_batches(1))) == []


# ---- names -----------------------------------------------------------------------------------------------------------


def shown(model: nn.Module, chosen: Iterable[str]) -> list[str]:
    parameters, names = dict(model.named_parameters()), {id(p): name for name, p in model.named_parameters()}
    return places({id(parameters[name]): parameters[name] for name in chosen}, names)


def test_a_module_of_many_parameters_is_named_in_their_place() -> None:
    model = nn.ModuleDict({"body": nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))), "head": nn.Linear(2, 2)})
    body = [name for name, _ in model.named_parameters() if name.startswith("body")]

    assert shown(model, [*body, "head.bias"]) == ["body.*", "head.bias"]
    assert shown(model, body[:-1]) == body[:-1]


def test_a_parameter_that_is_not_of_the_model_is_told_by_its_shape() -> None:
    extra = nn.Parameter(torch.zeros(3))

    assert places({id(extra): extra}, {}) == ["a tensor of shape (3,)"]


# ---- modules that train mode wakes -----------------------------------------------------------------------------------

WOKEN = (
    "a module without trained parameters was in eval mode, and its BatchNorm or dropout is in train mode now: trunk "
    '(keep it in eval mode: FreezeModules("trunk", dropout="off"))'
)


class Resting(Net):
    """A net whose trunk has a norm or dropout, is frozen, and is in eval mode."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        del self.unused
        self.trunk = nn.Sequential(nn.Linear(2, 4), inner)  # type: ignore[assignment]
        self.trunk.requires_grad_(False).eval()


def trained_head(model: Net) -> Optimizer:
    return SGD(model.head.parameters(), lr=0.1)


@pytest.mark.parametrize("inner", [nn.BatchNorm1d(4), nn.Dropout()], ids=lambda one: type(one).__name__)
def test_a_frozen_module_that_train_mode_wakes_is_told_once_by_its_outermost_name(inner: nn.Module) -> None:
    assert list_warnings(manager(Resting(inner), trained_head)) == [WOKEN]


def test_a_module_in_no_optimizer_that_train_mode_wakes_is_told() -> None:
    model = Resting(nn.BatchNorm1d(4))
    model.trunk.requires_grad_(True)

    assert any(text.endswith(WOKEN) for text in list_warnings(manager(model, trained_head)))


def test_batches_of_ones_own_wake_a_module_too() -> None:
    tm = manager(Resting(nn.BatchNorm1d(4)), trained_head)

    assert list_warnings(tm, lambda tm: [tm.train_on_batch(batch) for batch in make_batches(2)]) == [WOKEN]


def test_a_module_that_is_kept_in_eval_mode_is_not_told() -> None:
    tm = manager(Resting(nn.BatchNorm1d(4)), trained_head, FreezeModules("trunk", dropout="off"))

    assert list_warnings(tm) == []


def test_modules_in_eval_mode_that_are_trained_or_have_neither_norm_nor_dropout_are_not_told() -> None:
    trained = without_unused().eval()
    plain = Resting(nn.ReLU())

    assert list_warnings(manager(trained)) == list_warnings(manager(plain, trained_head)) == []


def test_a_frozen_module_that_was_in_train_mode_is_not_told() -> None:
    model = Resting(nn.BatchNorm1d(4))
    model.train()

    assert list_warnings(manager(model, trained_head)) == []


def test_of_a_model_that_comes_in_eval_mode_as_a_whole_a_norm_is_told_and_dropout_is_not() -> None:
    norm, dropout = Resting(nn.BatchNorm1d(4)).eval(), Resting(nn.Dropout()).eval()

    assert list_warnings(manager(norm, trained_head)) == [WOKEN]
    assert list_warnings(manager(dropout, trained_head)) == []
