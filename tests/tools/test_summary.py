"""The table of a model's layers."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Rprop

from tests.support.training import shuffled
from train_manager import InputError, TrainManager, groups, summary
from train_manager.testing import Recorder, tiny_manager


def lines(of: Any, inputs: Any = None) -> list[str]:
    return repr(summary(of, inputs)).splitlines()


def test_each_layer_has_its_shapes_and_its_parameters() -> None:
    assert lines(tiny_manager()) == [
        "layer       input  output  parameters",
        "Sequential  16x2   16x2",
        "  0 Linear  16x2   16x8            24",
        "  1 ReLU    16x8   16x8",
        "  2 Linear  16x8   16x2            18",
        "42 parameters (168 B), all trained",
    ]


def test_a_module_is_called_with_the_inputs_that_are_given() -> None:
    assert lines(nn.Linear(2, 3), torch.ones(5, 2))[1] == "Linear  5x2    5x3              9"


def test_modules_in_a_row_that_are_alike_are_shown_once() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(12)))
    found = summary(model, torch.ones(1, 2))

    assert repr(found).splitlines()[2] == "  0 … 11 Sequential, 12 times 6  1x2    1x2"
    assert (found.parameters, len(repr(found).splitlines())) == (72, 6)


def test_a_shared_parameter_is_counted_once_and_told() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    found = summary(model, torch.ones(1, 2))

    assert (found.parameters, found.model.layers[1].note) == (4, "weight is 0.weight")


def test_a_shared_module_is_told() -> None:
    linear = nn.Linear(2, 2)
    found = summary(nn.Sequential(linear, nn.ReLU(), linear), torch.ones(1, 2))

    assert (found.parameters, found.model.layers[2].note) == (6, "the same as 0")
    assert found.model.layers[0].note == "called 2 times"


def test_frozen_parameters_are_told() -> None:
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    found = summary(model, torch.ones(1, 2))

    assert [layer.note for layer in found.model.layers] == ["frozen", "2 frozen"]
    assert (found.parameters, found.trainable) == (12, 4)
    assert repr(found).endswith("12 parameters (48 B), 4 of them trained")


def test_a_module_that_is_not_called_is_told() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Any:
            return self.used(x)

    assert [layer.note for layer in summary(Half(), torch.ones(1, 2)).model.layers] == ["", "not called"]


def test_a_lazy_model_stays_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    found = lines(model, torch.ones(1, 2))

    assert found[2] == "  0 LazyLinear                             weight has no shape yet, bias has no shape yet"
    assert found[-1] == "shapes are unknown: the model has lazy parameters, which its first batch will make"
    assert isinstance(model[0], nn.LazyLinear)


def test_nothing_is_changed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    model[1].eval()
    recorder = Recorder()
    tm = tiny_manager(recorder, model=model, train_data=shuffled())
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    summary(tm)

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == [True, True, False, True, True]
    assert not any(module._forward_hooks for module in model.modules())
    assert recorder.stages == []


def test_of_data_that_can_be_read_once_the_shapes_are_unknown() -> None:
    data = (batch for batch in [(torch.ones(1, 2), torch.zeros(1))])
    tm = tiny_manager(train_data=data, eval_data=None)

    assert lines(tm)[-1] == "shapes are unknown: there is no data that can be read again; call summary(tm, inputs)"
    assert len(list(data)) == 1


def test_without_inputs_the_parameters_are_told() -> None:
    assert lines(nn.Linear(2, 3))[1:] == [
        "Linear                          9",
        "9 parameters (36 B), all trained",
        "shapes are unknown: no inputs were given; call summary(model, inputs)",
    ]


def test_of_a_forward_that_fails_the_error_is_told() -> None:
    assert lines(nn.Linear(2, 3), torch.ones(1, 4))[-1] == (
        "shapes are unknown: the forward pass failed: "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x4 and 2x3)"
    )


def test_own_methods_of_a_manager_are_called() -> None:
    class Own(TrainManager):
        def unpack_batch(self, batch: Any) -> Any:
            return batch[0] * 2, batch[1]

        def model_forward(self, model: Any, inputs: Tensor) -> Any:
            return model(inputs[:5])

    toy = tiny_manager()
    tm = Own(model=toy.model, train_data=toy.train_data)

    assert lines(tm)[1] == "Sequential  5x2    5x2"


def test_it_is_shown_in_a_notebook() -> None:
    html = summary(tiny_manager())._repr_html_()

    assert (html.count("<tr>"), "42 parameters" in html) == (5, True)


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(InputError) as error:
        summary("model")  # type: ignore[arg-type]

    assert str(error.value) == (
        "summary takes a TrainManager or a torch.nn.Module, but was given a str\n"
        "  summary(tm), or summary(model, inputs)"
    )


# ---- parameter groups ------------------------------------------------------------------------------------------------


def test_the_groups_of_an_optimizer_are_a_table_below() -> None:
    made = groups({"*.bias": {"weight_decay": 0}, "0": partial(SGD, lr=1 / 3)}, default=AdamW)
    found = summary(tiny_manager(optimizer=made))

    assert repr(found).splitlines()[5:] == [
        "42 parameters (168 B), all trained",
        "",
        "group    optimizer  tensors  parameters      lr  weight_decay",
        "0              SGD        1          16  0.3333             0",
        "*.bias       AdamW        2          10   0.001             0",
        "default      AdamW        1          16   0.001          0.01",
    ]
    assert found._repr_html_().count("<table") == 2


def test_groups_without_names_have_numbers_and_the_name_of_one_of_several_optimizers() -> None:
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    of_body = [{"params": [one]} for one in model["body"].parameters()]
    tm = TrainManager(model=model, optimizer={"body": Rprop(of_body), "head": SGD})

    assert lines(tm)[-3:] == [
        "group    optimizer  tensors  parameters    lr  weight_decay",
        "body: 0      Rprop        1           4  0.01",
        "body: 1      Rprop        1           2  0.01",
    ]
