from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

from tests.support.resuming import Kill, Resume, round_trip
from train_manager import Book, Extension, TrainManager
from train_manager.errors import CheckpointError
from train_manager.extensions import Throughput
from train_manager.metrics.averages import WeightedMean
from train_manager.testing import tiny_manager


class Holds(Extension):
    """Holds what it is given, in attributes of these names."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def post_run(self) -> None:
        pass


class HoldsWithState(Holds):
    """Writes a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {"own": 1}

    def load_state_dict(self, state: Any) -> None:
        pass


class Does(Holds):
    """Calls a function with itself after each step."""

    def __init__(self, do: Callable[[Any], object], **attributes: Any) -> None:
        self.do = do
        super().__init__(**attributes)

    def post_train_step_batch(self) -> None:
        self.do(self)


def saved(extension: Extension, tm: TrainManager | None = None) -> dict[str, Any]:
    """The state of an extension after two steps."""
    tm = tm or tiny_manager()
    tm.add_extension(extension, "it")
    tm.train_steps(2)
    found: dict[str, Any] = tm.state_dict()["extensions"]["it"]
    return found


def loaded(extension: Extension, state: dict[str, Any], *, strict: bool = True) -> TrainManager:
    """A manager in which an extension has loaded its state, among that of a training of two steps."""
    other = tiny_manager(epochs=2)
    other.add_extension(Holds(), "it")
    other.train_steps(2)
    whole = other.state_dict()
    whole["extensions"]["it"] = state
    tm = tiny_manager(epochs=2)
    tm.add_extension(extension, "it")
    tm.load_state_dict(round_trip(whole), strict=strict)
    return tm


# ---- what is saved ---------------------------------------------------------------------------------------------------


def test_a_module_and_an_optimizer_are_saved_also_under_private_names() -> None:
    module = nn.Linear(1, 1)

    state = saved(Holds(module=module, _optimizer=SGD(module.parameters())))

    assert list(state["attributes"]) == ["module", "_optimizer"]
    assert state["attributes"]["module"]["bias"].equal(module.bias)


def test_what_the_checkpoint_already_holds_is_not_saved_again() -> None:
    tm: Any = tiny_manager()
    tm.second = nn.Linear(1, 1)
    inner = nn.Sequential(tm.model)

    state = saved(
        Holds(
            model=tm.model,
            part=tm.model[0],
            wrapped=inner,
            weight=tm.model[0].weight,
            optimizer=tm.optimizer,
            history=tm.history,
            data=tm.train_data,
            second=tm.second,
        ),
        tm,
    )

    assert state == {}


def test_no_manager_and_no_extension_is_saved_also_behind_a_weak_proxy() -> None:
    tm = tiny_manager()
    proxies = {"proxy": weakref.proxy(tm), "of_model": weakref.proxy(tm.model)}
    holds = Holds(tm=tm, other=tiny_manager(), extension=HoldsWithState(), kind=nn.Linear, **proxies)

    assert saved(holds, tm) == {}


def test_a_tensor_is_saved_if_it_has_changed_since_the_run_began() -> None:
    def change(it: Any) -> None:
        it.in_place.add_(1)
        it.replaced = it.replaced + 1

    state = saved(Does(change, argument=torch.ones(1), in_place=torch.zeros(1), replaced=torch.zeros(1)))

    assert state == {
        "attributes": {"in_place": torch.tensor([2.0]), "replaced": torch.tensor([2.0])},
        "replaced": {"replaced": "cpu"},
    }


def test_a_tensor_that_replaces_one_each_time_is_saved_though_it_has_the_memory_of_the_first() -> None:
    def replace(it: Any) -> None:
        del it.value  # the next tensor may have its address
        it.value = torch.ones(1)

    assert saved(Does(replace, value=torch.zeros(1)))["attributes"] == {"value": torch.ones(1)}


def test_a_tensor_with_a_graph_is_not_saved() -> None:
    weight = nn.Parameter(torch.ones(1))

    def keep(it: Any) -> None:
        it.loss = weight * 2

    assert saved(Does(keep)) == {}


def test_a_class_with_a_state_of_its_own_saves_no_more() -> None:
    assert saved(HoldsWithState(module=nn.Linear(1, 1))) == {"own": 1}


def test_private_attributes_of_the_librarys_extensions_are_not_saved() -> None:
    assert saved(Throughput()) == {}


def test_a_book_is_saved_with_the_values_of_what_is_open() -> None:
    book = Book(WeightedMean, per="manager")

    class Measures(Extension):
        def __init__(self) -> None:
            self.mean = book

        def post_train_step_batch(self, loss: Tensor, train_manager: Any = None) -> None:
            self.mean.of(train_manager).append(loss.detach(), weight=1)

    assert saved(Measures())["attributes"]["mean"][""]


# ---- what is loaded --------------------------------------------------------------------------------------------------


def test_an_argument_that_was_edited_in_the_program_wins() -> None:
    it = Holds(weights=torch.full((1,), 7.0))

    loaded(it, saved(Holds(weights=torch.ones(1))))

    assert it.weights.item() == 7


def test_a_tensor_is_loaded_in_place_if_it_was_changed_in_place() -> None:
    state = saved(Does(lambda it: it.scale.add_(1), scale=torch.zeros(1)))
    scale = torch.zeros(1)

    loaded(it := Holds(scale=scale), state)

    assert it.scale is scale
    assert scale.item() == 2


def test_a_tensor_that_was_replaced_leaves_the_argument_alone_that_others_may_have() -> None:
    def replace(it: Any) -> None:
        it.scale = it.scale + 1

    state, scale = saved(Does(replace, scale=torch.zeros(1))), torch.zeros(1)

    loaded(it := Holds(scale=scale), state)

    assert (it.scale.item(), scale.item()) == (2, 0)


def test_a_tensor_is_there_before_the_hook_that_looks_for_it() -> None:
    def sum_up(it: Any) -> None:
        it.total = torch.ones(()) if it.total is None else it.total + 1

    it = Does(sum_up, total=None)
    loaded(it, saved(Does(sum_up, total=None))).train_steps(1)

    assert it.total.item() == 3


def test_a_module_waits_until_the_hook_that_looks_for_it_makes_it() -> None:
    def count(it: Any) -> None:
        if it.counter is None:
            it.counter = nn.BatchNorm1d(1)
        it.counter(torch.ones(2, 1))

    it = Does(count, counter=None)
    tm = loaded(it, saved(Does(count, counter=None)))
    tm.train_steps(1)

    assert it.counter.num_batches_tracked.item() == 3
    assert type(it) is Does
    assert not tm.findings


def test_what_waits_is_saved_again() -> None:
    state = saved(Holds(module=nn.Linear(1, 1)))

    again = loaded(Holds(), state).state_dict()["extensions"]["it"]

    assert again["attributes"]["module"]["bias"].equal(state["attributes"]["module"]["bias"])


def test_what_no_hook_makes_is_told_as_the_run_ends() -> None:
    tm = loaded(Holds(), saved(Holds(module=nn.Linear(1, 1))))
    tm.eval()
    assert not tm.findings

    with pytest.warns(UserWarning, match="which was never made"):
        tm.train_steps(1)

    (found,) = tm.findings
    assert str(found) == (
        "warning: the checkpoint has a state of module of extension 'it', which was never made [attribute-never-made]\n"
        "  do     make it as before, in __init__ or in a hook; its state is saved again until then"
    )


def test_an_object_that_is_made_anew_in_each_step_begins_anew() -> None:
    def make(it: Any) -> None:
        it.made = nn.Linear(1, 1)
        with torch.no_grad():
            it.made.bias.fill_(5)

    def make_and_keep(it: Any) -> None:
        it.made = nn.Linear(1, 1)
        it.biases.append(it.made.bias.item())

    it = Does(make_and_keep, biases=[])
    tm = loaded(it, saved(Does(make)))
    tm.train_steps(1)

    assert it.biases != [5]
    assert str(tm.findings[0]) == (
        "note: made of extension 'it' was made anew in train_step_batch, without its state in the checkpoint "
        "[attribute-made-anew]\n"
        "  do     if it is to resume, look for it first: if self.made is None"
    )


class Teaches(Holds):
    """Copies a teacher at the end of each epoch, and looks for it in each step."""

    def post_train_step_batch(self) -> None:
        self.is_taught = self.teacher is not None

    def post_train_step_epoch(self) -> None:
        self.teacher = nn.Linear(1, 1)


def test_a_warning_names_an_object_that_hooks_have_missed_until_it_was_made_anew() -> None:
    state = saved(Teaches(teacher=nn.Linear(1, 1)))
    tm = loaded(it := Teaches(teacher=None), state)

    with pytest.warns(UserWarning, match="teacher of extension 'it' was made anew in train_step_epoch"):
        tm.train_epochs(1)

    assert not it.teacher.bias.equal(state["attributes"]["teacher"]["bias"])


def test_an_extension_that_has_left_tensors_alone_may_be_missing() -> None:
    tm, other = tiny_manager(Does(lambda it: vars(it).update(last=torch.ones(1)))), tiny_manager(epochs=2)
    tm.train_steps(2)

    other.load_state_dict(tm.state_dict())

    assert other.step_num == 2


def test_an_extension_that_has_left_a_module_must_be_there() -> None:
    tm = tiny_manager(Holds(module=nn.Linear(1, 1)))
    tm.train_steps(2)

    with pytest.raises(CheckpointError, match="the checkpoint has a state of extension 'holds', which the training"):
        tiny_manager(epochs=2).load_state_dict(tm.state_dict())


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (nn.Linear(2, 1), nn.Linear(1, 1), "it of extension 'it': weight is 1x2 here, but 1x1 in the checkpoint"),
        (
            SGD([torch.zeros(1), torch.zeros(1)]),
            SGD([torch.zeros(1)]),
            "it of extension 'it' has groups of [2] parameters here, but of [1] in the checkpoint",
        ),
        (nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3)), "it of extension 'it' is 2 here, but 3 in the"),
    ],
    ids=["module", "optimizer", "tensor"],
)
def test_a_state_that_does_not_fit_is_refused(here: Any, there: Any, told: str) -> None:
    def change(it: Any) -> None:
        if isinstance(there, Tensor):
            with torch.no_grad():
                there.add_(1)

    with pytest.raises(CheckpointError) as refused:
        loaded(Holds(it=here), saved(Does(change, it=there)))

    assert f"\n  - {told}" in str(refused.value)


@pytest.mark.filterwarnings("ignore:the checkpoint fits this training in part")
def test_without_strict_what_does_not_fit_stays_as_it_is() -> None:
    here = nn.Parameter(torch.ones(2))

    loaded(Holds(it=here), {"attributes": {"it": torch.zeros(3)}}, strict=False)

    assert here.tolist() == [1, 1]


def test_a_state_that_does_not_fit_what_a_hook_makes_is_refused_there() -> None:
    def make(it: Any) -> None:
        if it.module is None:
            it.module = nn.Linear(2, 1)

    tm = loaded(Does(make, module=None), saved(Holds(module=nn.Linear(1, 1))))

    with pytest.raises(CheckpointError, match="module of extension 'it': weight is 1x2 here, but 1x1 in the checkp"):
        tm.train_steps(1)


def test_a_file_cannot_replace_a_method() -> None:
    state = {"attributes": {"state_dict": torch.ones(1)}, "replaced": {"state_dict": "cpu"}}

    with pytest.raises(CheckpointError) as refused:
        loaded(Holds(), state)

    assert "state_dict of extension 'it' is a method here, but a tensor in the checkpoint" in str(refused.value)


def test_a_parameter_that_a_hook_makes_is_loaded_into_the_one_that_its_optimizer_has() -> None:
    class Trains(Extension):
        def pre_train(self) -> None:
            self.scale = nn.Parameter(torch.ones(()))
            self.optimizer = Adam([self.scale], lr=0.1)

        def post_train_step_batch(self) -> None:
            self.scale.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def end_of(resume: Resume | None = None) -> float:
        tiny_manager(it := Trains(), *([] if resume is None else [resume]), epochs=2).train()
        return it.scale.item()

    tiny_manager(Trains(), kill := Kill(), epochs=2).train()

    assert {end_of(Resume(state)) for state in [*kill.states.values()][:-1]} == {end_of()}
