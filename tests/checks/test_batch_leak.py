"""Leaks between the examples of a batch: found in the right module, and none where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.checks.cases import Case
from tests.checks.clean_models import CLEAN, NOTED
from tests.checks.leaking_models import LEAKING
from tests.checks.named_leaks import Centred, named
from tests.checks.rolled import rolled
from tests.checks.unjudged_models import DROPPED, UNCHANGEABLE, UNJUDGED, UNSTEADY_LEAKING
from tests.support.rotation import part_of, places_of
from train_manager.checks.batch_leak import check_batch_leak
from train_manager.telling.findings import Findings


def looked_at(case: Case, mode: str) -> Findings:
    torch.manual_seed(0)
    model = case.make().train(mode == "train")
    torch.manual_seed(1)
    return check_batch_leak(model, case.batch(), **case.options)


def in_modes(cases: Sequence[Case]) -> list[Any]:
    """Each case in one of its modes, in turn, or in all."""
    pairs = [(case, mode) for number, case in enumerate(cases) for mode in places_of(number, case.modes)]
    return [pytest.param(case, mode, id=f"{case.name}, {mode}") for case, mode in pairs]


NAMED_INSIDE = {"a hidden state from row to row": "body.block.part.cell", "an LSTM's state kept on the module": "rnn"}
"""Leaks of which the cell is named that gets the row of one example and the state of another, not its caller."""


@pytest.mark.parametrize(("case", "mode"), in_modes(LEAKING))
def test_a_leak_is_found_in_its_module(case: Case, mode: str) -> None:
    errors = Findings([one for one in looked_at(case, mode) if one.level == "error"])
    name = NAMED_INSIDE.get(case.name, case.culprit)

    assert [(named(errors), one.numbers["way"]) for one in errors] == [(name, case.way)]


@pytest.mark.parametrize(("case", "mode"), in_modes(part_of(CLEAN, 2)))
def test_a_clean_model_is_clean(case: Case, mode: str) -> None:
    found = looked_at(case, mode)

    found.require_none()
    assert not found


@pytest.mark.parametrize(("case", "mode"), in_modes(part_of(CLEAN, 6, 1)))
def test_a_clean_model_that_rolls_its_input_leaks_itself(case: Case, mode: str) -> None:
    found = looked_at(rolled(case), mode)

    assert [(named(found), one.level) for one in found] == [("", "error")]


@pytest.mark.parametrize(("case", "mode"), in_modes(UNJUDGED))
def test_of_a_clean_model_that_cannot_all_be_judged_it_says_what_was_left_out(case: Case, mode: str) -> None:
    found = looked_at(case, mode)

    assert not found
    assert "drew other random numbers" in found.covered[0].text or "differ" in found.covered[0].text


@pytest.mark.parametrize(("case", "mode"), in_modes(DROPPED))
def test_dropout_of_which_a_row_has_what_those_before_it_leave_is_no_leak(case: Case, mode: str) -> None:
    looked_at(case, mode).require_none()


@pytest.mark.parametrize(("case", "mode"), in_modes(UNSTEADY_LEAKING))
def test_a_leak_in_a_model_that_is_never_the_same_is_found_by_its_gradients(case: Case, mode: str) -> None:
    found = looked_at(case, mode)

    assert [(named(found), one.numbers["way"]) for one in found] == [(case.culprit, "backward")]


@pytest.mark.parametrize(("case", "mode"), in_modes(UNCHANGEABLE))
def test_a_batch_in_which_nothing_can_be_changed_is_not_clean(case: Case, mode: str) -> None:
    found = looked_at(case, mode)

    assert not found
    assert not found.is_clean


def test_a_norm_over_the_batch_is_a_note() -> None:
    found = looked_at(NOTED[0], "train")

    found.require_none()
    assert str(found) == (
        "batch leak  note: BatchNorm1d mixes the examples of a batch on purpose in train mode; what is before\n"
        "              and after was judged [norm-over-batch]\n              where  norm\n"
        "            looked at: 12 of 12 changes ran, train mode"
    )


def test_an_allowed_module_is_passed_over() -> None:
    assert looked_at(NOTED[1], "train").is_clean
    assert not looked_at(NOTED[1]._replace(options={}), "train").is_clean


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, 0)


class Detached(nn.Module):
    """Leaks on the way back alone, into what is before it."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.square().mean(0)
        return x + (mean - mean.detach())


@pytest.mark.parametrize("leak", [Rolled(), Detached()])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_allowed_module_hides_no_leak_before_or_after_it(leak: nn.Module, is_first: bool) -> None:
    parts = (leak, Centred()) if is_first else (Centred(), leak)
    model = nn.Sequential(nn.Linear(3, 4), *parts, nn.Linear(4, 2))
    name = "1" if is_first else "2"

    found = check_batch_leak(model, torch.randn(8, 3), allow=[parts[is_first]])

    assert named(found) == name


def test_the_finding_names_the_example_that_is_affected() -> None:
    class ThirdIntoFifth(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = x.clone()
            out[5] += x[3]
            return out

    found = check_batch_leak(nn.Sequential(nn.Linear(3, 2), ThirdIntoFifth()), torch.randn(8, 3))

    assert str(found[0]) == (
        "error: what the model returns for example 5 depends on other examples [output-leak]\n"
        "  where  1 (ThirdIntoFifth)\n"
        "  do     look in its forward for a view, a reduction, an index or a state that mixes examples; "
        "if that is intended, pass allow=['1']"
    )


def test_each_pair_of_examples_is_compared() -> None:
    @dataclass
    class Into(nn.Module):
        source: int
        other: int

        def __post_init__(self) -> None:
            super().__init__()

        def __hash__(self) -> int:
            return id(self)

        def forward(self, x: Tensor) -> Tensor:
            out = x.clone()
            out[self.other] += x[self.source]
            return out

    x = torch.randn(5, 2)
    pairs = [(source, other) for source in range(5) for other in range(5) if source != other]
    found = [check_batch_leak(Into(*pair), x)[0].numbers for pair in pairs]

    assert [one["example"] for one in found] == [other for _, other in pairs]


def test_the_order_of_the_examples_in_a_folded_output_is_found() -> None:
    class Folded(nn.Module):
        def __init__(self, is_time_first: bool) -> None:
            super().__init__()
            self.is_time_first = is_time_first

        def forward(self, x: Tensor) -> Tensor:
            return (x.transpose(0, 1) if self.is_time_first else x).flatten(0, 1)

    for is_time_first in (True, False):
        model = Folded(is_time_first)
        check_batch_leak(model, torch.randn(6, 4, 3)).require_none()
        assert not check_batch_leak(nn.Sequential(Rolled(), model), torch.randn(6, 4, 3)).is_clean


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (torch.randn(1, 3), "the batch has one example only"),
        ({}, "the batch has no tensor, and no list, with an entry for each example"),
        (torch.ones(8, 3), "0 of 12 changes ran, eval mode; 6 failed with ValueError; 6 changed nothing"),
    ],
)
def test_where_nothing_could_be_looked_at_is_never_clean(batch: Any, reason: str) -> None:
    class Fussy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not bool((x == 1).all()):
                raise ValueError("ones only")
            return x

    model = nn.Linear(3, 2) if len(batch) == 1 else Fussy().eval()
    found = check_batch_leak(model, batch)

    assert not found.is_clean
    assert [(one.text, one.could_look) for one in found.covered] == [(reason, False)]


def test_a_model_that_returns_its_loss_alone_could_not_be_looked_at() -> None:
    class Loss(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.square().mean()

    found = check_batch_leak(Loss(), torch.randn(8, 3))

    assert str(found) == "batch leak  could not look: no output of the model has a part for each example"


def test_what_belongs_to_no_example_is_said() -> None:
    class WithLoss(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": 2 * x, "loss": x.mean()}

    found = check_batch_leak(WithLoss(), torch.randn(4, 3))

    assert str(found) == "batch leak  clean: 8 of 8 changes ran, train mode; not judged: loss, of no example"


class Packed(nn.Module):
    """A stack of two LSTMs over sequences without their padding, with dropout between the two."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0, sparse=sparse)
        self.lstm = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(packed)[1][0][-1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_inside_of_a_recurrent_layer_drops_other_rows_of_other_lengths_and_is_no_leak(sparse: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 20, (16, 6), generator=generator)
    tokens[torch.arange(6) >= torch.arange(16)[:, None] % 5 + 2] = 0
    model = Packed(sparse=sparse)

    check_batch_leak(model, tokens).require_none()
    assert not check_batch_leak(nn.Sequential(Rolled(), model), tokens).is_clean


def test_what_a_model_holds_outside_of_its_modules_does_not_look_like_a_leak() -> None:
    held = {"sum": torch.zeros(0)}

    class Follows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            before = held["sum"] if len(held["sum"]) == len(x) else torch.zeros_like(x)
            held["sum"] = (before + x).detach()
            return before + x

    clean = check_batch_leak(Follows(), torch.randn(4, 3))
    leaking = check_batch_leak(nn.Sequential(Centred(), Follows()), torch.randn(4, 3))

    assert "two runs of the same batch differ, so that only their gradients were judged" in clean.covered[0].text
    assert clean.is_clean
    assert (named(leaking), leaking[0].numbers["way"]) == ("0", "backward")


def test_a_model_that_is_never_the_same_and_has_no_gradient_could_not_be_looked_at() -> None:
    source = torch.Generator()

    def noise(x: Tensor) -> Tensor:
        return x.detach() + torch.randn(x.shape, generator=source)

    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return noise(x)

    found = check_batch_leak(Noisy(), torch.randn(4, 3))

    assert not found.is_clean
    assert [(one.text, one.could_look) for one in found.covered] == [
        (
            "8 of 8 changes ran, train mode; two runs of the same batch differ, so that only their gradients were "
            "judged; nothing that was returned has a gradient to judge",
            False,
        )
    ]


@pytest.mark.parametrize("leaks", [False, True])
def test_of_a_model_that_refuses_to_be_walked_back_the_outputs_are_judged(leaks: bool) -> None:
    def refuse(gradient: Tensor) -> None:
        raise AssertionError("in train mode only")

    class OneWay(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = 2 * x
            if y.requires_grad:
                y.register_hook(refuse)
            return y

    found = check_batch_leak(nn.Sequential(OneWay(), Centred() if leaks else nn.Tanh()), torch.randn(4, 3))

    assert [named(found)] == ["1"] if leaks else found.is_clean
    told = "train mode; walking back failed with AssertionError, so that only the outputs were judged"
    assert found.covered[0].text.endswith(told)


@pytest.mark.parametrize("leaks", [False, True])
def test_a_model_that_takes_no_gradients_at_its_inputs_is_judged_without_them(leaks: bool) -> None:
    class ByNumpy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(x.numpy() + 1)

    found = check_batch_leak(nn.Sequential(ByNumpy(), Centred() if leaks else nn.Linear(3, 2)), torch.randn(4, 3))

    assert [named(found)] == ["1"] if leaks else found.is_clean


def test_hooks_that_a_model_registers_in_its_first_call_are_registered_once_a_run() -> None:
    class Tapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)
            self.is_tapped = False

        def forward(self, x: Tensor) -> list[Tensor]:
            self.seen: list[Tensor] = []
            if not self.is_tapped:
                self.inner.register_forward_hook(lambda module, args, output: self.seen.append(output))
                self.is_tapped = True
            return [self.inner(x), *self.seen]

    model = Tapped()
    found = check_batch_leak(model, torch.randn(4, 3))

    assert str(found) == "batch leak  clean: 8 of 8 changes ran, train mode"
    assert len(model(torch.randn(4, 3))) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_model_is_looked_at_and_its_leak_is_named_by_what_is_around_it() -> None:
    clean, leaking = (torch.jit.script(nn.Sequential(nn.Linear(3, 2), last)) for last in (nn.Tanh(), Centred()))
    x = torch.randn(4, 3)

    assert str(check_batch_leak(clean, x)) == "batch leak  clean: 8 of 8 changes ran, train mode"
    assert named(check_batch_leak(leaking, x)) == ""
    assert named(check_batch_leak(nn.Sequential(nn.Linear(3, 3), Centred(), clean), x)) == "1"


def test_a_leak_is_named_in_a_model_whose_parts_are_called_from_outside() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 4), "two": nn.ModuleDict({"inside": Centred()})})

    found = check_batch_leak(model, torch.randn(4, 3), call=lambda _, x: model["two"]["inside"](model["one"](x)))  # type: ignore[index]

    assert named(found) == "two.inside"


def test_a_leak_is_named_where_two_modules_call_each_other() -> None:
    class Calling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.other = [self]

        def forward(self, x: Tensor, depth: int = 3) -> Tensor:
            y: Tensor = self.linear(x - x.mean(0)) if depth == 0 else self.other[0](x, depth - 1)
            return y

    model = nn.ModuleList([Calling(), Calling()])
    model[0].other, model[1].other = [model[1]], [model[0]]  # type: ignore[assignment]

    found = check_batch_leak(model, torch.randn(4, 3), call=lambda _, x: model[0](x))

    assert named(found) in ("0", "1")
