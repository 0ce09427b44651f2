"""Parameter groups by patterns of names, against optimizers of torch made by hand."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from tests.support.training import refusal
from train_manager import TrainManager, groups, recorded
from train_manager.errors import CheckpointError
from train_manager.extensions import Checkpoints, RunRecord
from train_manager.model.combined_optimizer import CombinedOptimizer
from train_manager.model.group_facts import group_facts
from train_manager.runs.record.made_objects import parameter_rows_of
from train_manager.runs.record.run_file import read_runs
from train_manager.testing import tiny_manager

NO_DECAY: dict[str, Any] = {"weight_decay": 0}


@recorded
def is_vector(parameter: Tensor) -> bool:
    return parameter.ndim < 2


class Block(nn.Module):
    """A norm and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2)
        self.fc = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.fc(self.norm(inputs))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A stack of blocks between a stem and a head, in the order of timm's VisionTransformer."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, 2))
        self.stem = nn.Linear(2, 2)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(inputs) + self.position)))  # type: ignore[no-any-return]


def rates_and_decays(model: nn.Module, optimizer: Optimizer) -> dict[str, tuple[float, float]]:
    """The learning rate and the weight decay of each parameter by its name."""
    names = {id(one): name for name, one in model.named_parameters()}
    found = optimizer.param_groups
    return {names[id(one)]: (group["lr"], group["weight_decay"]) for group in found for one in group["params"]}


def names_in(model: nn.Module, optimizer: Any) -> list[list[str]]:
    names = {id(one): name for name, one in model.named_parameters()}
    return [[names[id(one)] for one in group["params"]] for group in optimizer.param_groups]


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    assert all(map(torch.equal, one.parameters(), other.parameters()))


def train_steps(model: nn.Module, optimizers: list[Optimizer], steps: int) -> None:
    generator = torch.Generator().manual_seed(steps)
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(3, 2, generator=generator)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


# ---- the same steps as by hand ---------------------------------------------------------------------------------------

PATTERNS = ["*.bias", "*.weight", "0.*", "[12]", "1.weight", "*"]
VALUES: list[Any] = [
    {"weight_decay": 0.5},
    {"lr": 0.01, "betas": (0.5, 0.9)},
    {},
    SGD,
    partial(SGD, lr=0.1, momentum=0.9),
    partial(Adam, lr=0.02),
    partial(AdamW, lr=0.03),
    partial(RMSprop, lr=0.01),
    partial(Adagrad, initial_accumulator_value=0.5),
]
DEFAULT = partial(AdamW, lr=0.05)


def by_hand(model: nn.Module, patterns: Mapping[str, Any]) -> tuple[list[Optimizer], dict[str, Any]]:
    """An optimizer for each pattern, and the patterns that mean a parameter."""
    left, made, used = dict(model.named_parameters()), list[Optimizer](), dict[str, Any]()
    for pattern, value in {**patterns, "*": patterns.get("*", {})}.items():
        own = {name: one for name, one in left.items() if any(fnmatchcase(it, pattern) for it in (name, name[0]))}
        if own:
            make = value if callable(value) else partial(DEFAULT, **value)
            made.append(make(list(own.values())))
            used[pattern] = value
        left = {name: one for name, one in left.items() if name not in own}
    return made, {pattern: value for pattern, value in used.items() if pattern in patterns}


@settings(deadline=None)
@given(
    layers=st.integers(1, 3),
    patterns=st.dictionaries(st.sampled_from(PATTERNS), st.sampled_from(VALUES), max_size=4),
    before=st.integers(0, 2),
)
def test_groups_step_as_an_optimizer_for_each_would_before_and_after_a_resume(
    layers: int, patterns: dict[str, Any], before: int
) -> None:
    torch.manual_seed(0)
    hand = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
    model = copy.deepcopy(hand)
    optimizers, used = by_hand(hand, patterns)
    optimizer = groups(used, DEFAULT)(model)
    train_steps(hand, optimizers, before)
    train_steps(model, [optimizer], before)
    resumed = copy.deepcopy(model)
    again = groups(used, DEFAULT)(resumed)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train_steps(hand, optimizers, 2)
    train_steps(resumed, [again], 2)

    assert_same_weights(resumed, hand)
    assert len(optimizer.param_groups) == len(optimizers)


def test_a_decay_of_matrices_alone_equals_configure_optimizers_of_nanogpt() -> None:
    torch.manual_seed(0)
    hand = Transformer()
    model = copy.deepcopy(hand)
    decayed = [one for one in hand.parameters() if one.dim() >= 2]
    other = [one for one in hand.parameters() if one.dim() < 2]
    of_hand = [{"params": decayed, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}]
    adamw = partial(AdamW, lr=6e-4, betas=(0.9, 0.95))
    train_steps(hand, [adamw(of_hand)], 5)
    train_steps(model, [groups({is_vector: NO_DECAY}, default=partial(adamw, weight_decay=0.1))(model)], 5)

    assert_same_weights(model, hand)


def test_rates_fall_by_layers_as_those_of_timm() -> None:
    # Recorded from param_groups_layer_decay of timm 1.0.31, with the group_matcher of VisionTransformer.
    model = Transformer()
    made = partial(AdamW, lr=1e-3, weight_decay=0.05)
    optimizer = groups({is_vector: NO_DECAY, "position": NO_DECAY}, default=made, layer_decay=0.75)(model)

    of_layers = [0.00031640625, 0.000421875, 0.0005625000000000001, 0.00075, 0.001]
    found = rates_and_decays(model, optimizer)
    assert type(optimizer) is AdamW
    assert (found["position"], found["stem.weight"]) == ((of_layers[0], 0), (of_layers[0], 0.05))
    for number in range(3):
        assert found[f"blocks.{number}.fc.weight"] == (of_layers[number + 1], 0.05)
        assert found[f"blocks.{number}.norm.bias"] == (of_layers[number + 1], 0)
    assert (found["norm.weight"], found["norm.bias"]) == ((of_layers[3], 0), (of_layers[3], 0))
    assert (found["head.weight"], found["head.bias"]) == ((of_layers[4], 0.05), (of_layers[4], 0))


# ---- which parameters a pattern means --------------------------------------------------------------------------------


def test_the_first_pattern_that_means_a_parameter_has_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    found = names_in(model, groups({"0": NO_DECAY, "*.bias": {"lr": 0.5}}, default=AdamW)(model))

    assert found == [["0.weight", "0.bias"], ["1.bias"], ["1.weight"]]


def test_a_tied_parameter_is_once_in_a_group_under_any_of_its_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight

    assert names_in(model, groups({"1": NO_DECAY}, default=AdamW)(model)) == [["0.weight"]]


def test_a_frozen_parameter_is_in_its_group_and_needs_none() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)

    assert names_in(model, groups({"0": SGD}, default=SGD)(model))[0] == ["0.weight", "0.bias"]
    assert names_in(model, groups({"1": SGD})(model)) == [["1.weight", "1.bias"]]


def test_a_compiled_model_has_the_names_of_the_model_inside_it() -> None:
    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = nn.Sequential(nn.Linear(2, 2))

    assert len(groups({"0.bias": NO_DECAY}, default=AdamW)(Compiled()).param_groups) == 2


def test_the_parameters_of_a_loss_are_in_groups_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(prediction * self.scale, targets)

    tm = tiny_manager(loss=Scaled(), optimizer=groups({"loss.*": {"lr": 0.5}}, default=SGD))
    assert isinstance(tm.optimizer, SGD)
    assert tm.optimizer.param_groups[0]["params"] == [tm.loss.scale]


def test_each_of_several_optimizers_may_have_groups() -> None:
    parts = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    tm = TrainManager(model=parts, optimizer={"body": groups({"bias": NO_DECAY}, default=AdamW), "head": SGD})

    assert [len(one.param_groups) for one in tm.optimizers.values()] == [2, 1]


# ---- one optimizer ---------------------------------------------------------------------------------------------------


def test_each_class_or_function_makes_a_part_and_the_last_is_the_default() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(4)))
    optimizer = groups({"0": partial(AdamW, lr=0.5), "1": {"lr": 0.25}, "2": SGD}, default=AdamW)(model)

    assert isinstance(optimizer, CombinedOptimizer)
    assert [type(part) for part in optimizer.parts] == [AdamW, SGD, AdamW]
    assert [(group.name, group.lr) for group in group_facts(optimizer)] == [
        ("0", 0.5),
        ("2", 0.001),
        ("1", 0.25),
        ("default", 0.001),
    ]


def test_a_resume_with_other_groups_is_refused_by_name(tmp_path: Path) -> None:
    def trained(given: groups, **options: Any) -> None:
        tiny_manager(Checkpoints(**options), optimizer=given, train_dir=tmp_path).train()

    trained(groups({"*.bias": NO_DECAY, "0": SGD}, default=AdamW))
    for other, why in {
        groups({"0": SGD, "*.bias": NO_DECAY}, default=AdamW): "groups of [2, 1, 1] parameters here, but of [1, 2, 1]",
        groups({"2.bias": NO_DECAY, "*.bias": NO_DECAY, "0": SGD}, default=AdamW): "AdamW, AdamW, AdamW) here",
        groups({"*.bias": NO_DECAY, "0": Adam}, default=AdamW): "CombinedOptimizer(Adam, AdamW, AdamW) here",
        groups({"*.bias": NO_DECAY, "2": SGD}, default=AdamW): "trains 2.weight in group 0 here, but 0.weight",
    }.items():
        with pytest.raises(CheckpointError) as caught:
            trained(other, resume=True)
        assert why in str(caught.value)


def test_groups_are_rebuilt_from_a_checkpoint(tmp_path: Path) -> None:
    made = groups({is_vector: NO_DECAY, "0": partial(RMSprop, lr=0.5)}, default=AdamW, layer_decay=0.5)
    tm = tiny_manager(Checkpoints(), optimizer=made, train_dir=tmp_path, epochs=1)
    tm.train()
    again = TrainManager.from_checkpoint(tmp_path, model=tiny_manager().model)

    assert group_facts(again.optimizer) == group_facts(tm.optimizer)
    assert_same_weights(again.model, tm.model)


def test_an_override_that_the_state_would_undo_is_refused(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), optimizer=groups({"0": NO_DECAY}, AdamW), train_dir=tmp_path, epochs=1).train()
    with pytest.raises(CheckpointError) as caught:
        TrainManager.from_checkpoint(tmp_path, model=tiny_manager().model, overrides={"optimizer.default.lr": 0.5})

    assert str(caught.value).splitlines() == [
        "'optimizer.default.lr' cannot be overridden: the state of the optimizer has the options of its groups",
        '  set them afterwards: tm.optimizer.param_groups[0]["lr"] = ...',
    ]


def test_the_record_of_a_run_has_the_classes_and_the_options_of_the_groups(tmp_path: Path) -> None:
    made = groups({"*.bias": {"lr": 0.5}, "0": RMSprop}, default=AdamW)
    tiny_manager(RunRecord(), optimizer=made, train_dir=tmp_path, epochs=1).train()
    rows = parameter_rows_of(read_runs(tmp_path)[-1])

    assert {name: text for name, text in rows.items() if re.match("optimizer($|[.]| made)", name)} == {
        "optimizer": "groups",
        "optimizer.patterns.*.bias.lr": "0.5",
        "optimizer.patterns.0": "RMSprop",
        "optimizer.default": "AdamW",
        "optimizer.layer_decay": "1.0",
        "optimizer made": "CombinedOptimizer",
        "optimizer made.parts.0": "RMSprop",
        "optimizer made.parts.1": "AdamW",
        "optimizer made.parts.1.lr": "(0.5, 0.001)",
    }


# ---- what is refused -------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[Callable[[], groups], str]] = {
    "a class in place of patterns": (lambda: groups(AdamW), "takes a dict of patterns, but was given the class AdamW"),  # type: ignore[arg-type]
    "a typo in the name of an argument": (lambda: groups(defualt=AdamW), "did you mean 'default'?"),  # type: ignore[call-arg]
    "an option of the class": (lambda: groups(default=AdamW, lr=0.1), "default=partial(AdamW, lr=..."),  # type: ignore[call-arg]
    "nothing": (lambda: groups(), "no pattern and no default"),
    "a default that makes nothing": (lambda: groups(default="AdamW"), "default of groups must be a class"),  # type: ignore[arg-type]
    "a pattern that is none": (lambda: groups({3: SGD}), "must be a text or a function of a parameter, but is 3"),
    "a value that is none": (lambda: groups({"0": 3}), "needs options or a class of optimizers for '0'"),  # type: ignore[dict-item]
    "options without a default": (lambda: groups({"0": NO_DECAY}), "options for '0', but no default"),
    "a typo in a pattern": (lambda: groups({"*.bais": NO_DECAY}, SGD), "no parameter\n  did you mean '*.bias'?"),
    "a typo in a module": (lambda: groups({"bloks": NO_DECAY}, SGD), "did you mean 'blocks'?"),
    "a pattern of nothing": (lambda: groups({"x": NO_DECAY}, SGD), "the parameters are position, stem.weight"),
    "a class as a pattern": (lambda: groups({nn.LayerNorm: NO_DECAY}, SGD), "but is <class 'torch.nn"),
    "a function of nothing": (lambda: groups({Tensor.is_complex: NO_DECAY}, SGD), "'is_complex' means no parameter"),
    "a pattern that comes too late": (lambda: groups({"*": NO_DECAY, "head": SGD}, SGD), "put 'head' before them"),
    "strays": (lambda: groups({"blocks": SGD, "*.weight": SGD}), "means position, stem.bias, norm.bias, head.bias,"),
    "a typo in an option": (lambda: groups({"head": {"wieght_decay": 0}}, SGD), "did you mean 'weight_decay'?"),
    "an option below zero": (lambda: groups({"head": {"lr": -1}}, SGD), "lr of 'head' in groups must be a number"),
    "a function of other groups": (lambda: groups({"head": lambda _: None}, SGD), "a torch optimizer of the groups"),  # type: ignore[dict-item,return-value]
    "a closure among others": (lambda: groups({"head": LBFGS}, SGD), "cannot combine LBFGS with another class"),
    "a decay above 1": (lambda: groups(default=SGD, layer_decay=75), "above 0 and of at most 1, but is 75"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_what_is_wrong_and_the_cure(case: str) -> None:
    make, text = CASES[case]

    assert text in refusal(lambda: make()(Transformer()))


def test_layers_are_not_guessed_among_several_stacks() -> None:
    model = nn.ModuleDict({name: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for name in ("encoder", "decoder")})

    text = refusal(lambda: groups(default=SGD, layer_decay=0.5)(model))
    assert "but ModuleDict has several: encoder, decoder\n  leave layer_decay out" in text


def test_an_error_of_a_class_has_the_parameters_that_it_was_given() -> None:
    with pytest.raises(ValueError, match="Invalid learning rate") as caught:
        tiny_manager(optimizer=groups({"0": partial(SGD, lr=-1)}, default=AdamW))
    assert "'0', with 0.weight, 0.bias" in "".join(caught.value.__notes__)
