"""How `check_batch_leak` is asked: what is refused and allowed, and that it leaves all as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.checks.named_leaks import Centred, named
from train_manager.checks.batch_leak import check_batch_leak
from train_manager.telling.errors import InputError
from train_manager.testing import tiny_manager


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        check_batch_leak(tiny_manager(), torch.ones(4, 2))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "check_batch_leak takes a model, but was given a TrainManager\n"
        "  give a torch.nn.Module; diagnose(tm) takes a TrainManager"
    )


def test_a_shared_part_may_be_named_by_a_text_alone() -> None:
    class Weighted(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x @ mask.T

    batch = {"x": torch.randn(4, 3), "mask": torch.randn(4, 3)}
    assert not check_batch_leak(Weighted(), batch).is_clean
    check_batch_leak(Weighted(), batch, shared="mask").require_none()


def test_a_name_that_no_module_has_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        check_batch_leak(nn.Sequential(nn.Linear(3, 2)), torch.randn(4, 3), allow=["norm"])

    assert str(raised.value) == "check_batch_leak finds no module 'norm' in the model (Sequential)\n  its modules are 0"


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Centred(), Centred()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(2 * self.first(x))
        return out


@pytest.mark.parametrize("allow", [Centred, [Centred], ["first", "second"], "*", ["first", Centred]])
def test_classes_names_and_patterns_are_allowed(allow: Any) -> None:
    assert not check_batch_leak(Normed(), torch.randn(8, 3)).is_clean
    check_batch_leak(Normed(), torch.randn(8, 3), allow=allow).require_none()


def test_modules_are_allowed_alone_and_in_a_list() -> None:
    model = Normed()

    check_batch_leak(model, torch.randn(8, 3), allow=[model.first, model.second]).require_none()
    assert named(check_batch_leak(model, torch.randn(8, 3), allow=model.first)) == "second"


def test_a_class_that_no_module_is_of_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        check_batch_leak(nn.Sequential(nn.Linear(3, 2)), torch.randn(4, 3), allow=[nn.BatchNorm1d])

    assert str(raised.value) == (
        "check_batch_leak finds no BatchNorm1d in the model (Sequential)\n  its modules are of the classes "
        "Sequential, Linear"
    )


class BesideItsLoss(nn.Module):
    """Returns a loss of the batch beside its output, and leaks after it."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.centred = WithBalance(), Centred()

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.experts(x)
        out: Tensor = self.centred(hidden)
        return out


class WithBalance(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * x, x.mean()


def test_a_loss_beside_an_output_is_not_named_if_another_module_leaks() -> None:
    assert named(check_batch_leak(BesideItsLoss(), torch.randn(8, 3))) == "centred"


def test_outputs_in_no_known_order_are_told_beside_those_that_are_judged() -> None:
    class WithWords(nn.Module):
        def forward(self, words: Tensor) -> dict[str, Tensor]:
            return {"logits": 2 * words, "words": words[words > 0]}

    found = check_batch_leak(WithWords(), torch.tensor([[1.0, -1, 2], [3, 4, 5], [-1, 2, 3], [1, 1, -1]]))

    assert str(found) == (
        "batch leak  clean: 8 of 8 changes ran, train mode; not judged: words, in which the examples lie in\n"
        "              no order that is known"
    )


class LastOfEach(nn.Module):
    """Runs an RNN over each of a list of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        return torch.stack([self.rnn(one[None])[1][0, 0] for one in sequences])


def test_a_list_of_tensors_of_one_shape_may_be_examples_or_arguments_and_is_refused() -> None:
    batch = [torch.randn(5, 3) for _ in range(5)]

    with pytest.raises(InputError) as raised:
        check_batch_leak(LastOfEach(), batch, call=lambda model, given: model(given))

    assert str(raised.value) == (
        "batch is a list of 5 tensors of shape (5, 3): are these examples, or arguments?\n"
        "  examples: give [batch], and call gets that list; arguments: give tuple(batch)"
    )


def test_a_list_of_tensors_of_one_shape_in_a_list_is_of_examples_and_in_a_tuple_of_arguments() -> None:
    batch = [torch.randn(5, 3) for _ in range(4)]
    pair = torch.randn(4, 3), torch.randn(4, 3)

    check_batch_leak(LastOfEach(), [batch], call=lambda model, given: model(given[0])).require_none()
    check_batch_leak(nn.Bilinear(3, 3, 2), pair, call=lambda model, given: model(*given)).require_none()


def test_the_model_the_batch_and_all_random_states_are_as_before() -> None:
    class Remembering(nn.Module):
        seen: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("seen", torch.zeros(()))
            self.history: list[float] = []
            self.hidden: Tensor | None = None
            self.generator = torch.Generator().manual_seed(5)

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            self.history.append(float(x.sum()))
            self.hidden = self.norm(self.linear(x.clone()))
            x += torch.rand(x.shape) + torch.rand(x.shape, generator=self.generator)
            return self.hidden + x.mean(0)

    model, batch = Remembering(), torch.randn(8, 3)
    model(batch.clone()).sum().backward()
    history, hidden, gradient = model.history, model.hidden, model.linear.weight.grad
    before = copy.deepcopy((model.state_dict(), history, gradient, batch))
    states = torch.get_rng_state(), model.generator.get_state()

    assert not check_batch_leak(model, batch).is_clean

    after = (model.state_dict(), model.history, model.linear.weight.grad, batch)
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert before[1] == after[1]
    assert before[2] is not None
    assert gradient is not None
    assert torch.equal(before[2], gradient)
    assert torch.equal(before[3], after[3])
    assert (model.history, model.hidden, model.linear.weight.grad) == (history, hidden, gradient)
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], model.generator.get_state())
    assert model.training
    assert model.norm.training
    assert not model._forward_hooks


@pytest.mark.parametrize("is_random", [True, False])
def test_a_batch_into_which_the_model_writes_is_as_before(is_random: bool) -> None:
    class Writing(nn.Module):
        def forward(self, rows: list[Tensor], words: dict[str, Tensor]) -> Tensor:
            for row in rows:
                row += torch.rand(()) if is_random else 1
            words["ids"].zero_()
            return torch.stack(rows).cumsum(0)

    batch = [torch.zeros(3) + number for number in range(4)], {"ids": torch.arange(4)}

    assert not check_batch_leak(Writing(), batch).is_clean
    assert [row.tolist() for row in batch[0]] == [[number] * 3 for number in range(4)]
    assert batch[1]["ids"].tolist() == [0, 1, 2, 3]


def test_an_error_of_the_model_travels_and_leaves_the_model_as_before() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            self.norm(x)
            raise KeyError("mine")

    model = Failing()
    with pytest.raises(KeyError, match="mine"):
        check_batch_leak(model, torch.randn(4, 3))

    assert model.norm.training
    assert float(model.norm.running_mean.abs().sum()) == 0  # type: ignore[union-attr]


def calls_of(model: nn.Module, batch: Any, size: Callable[[Any], int]) -> list[int]:
    """The batch sizes with which a model is called in a check."""
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, args: sizes.append(size(args)))
    check_batch_leak(model, batch).require_none()
    return sizes


def test_a_clean_batch_of_64_with_one_leaf_takes_27_runs() -> None:
    sizes = calls_of(nn.Linear(3, 2), torch.randn(64, 3), lambda args: len(args[0]))

    assert (sizes.count(64), sizes.count(63), len(sizes)) == (26, 1, 27)


@pytest.mark.whole  # torch.compile is imported for seconds
def test_a_compiled_model_is_looked_at_as_it_was_written() -> None:
    model = nn.Sequential(nn.Linear(3, 4), Centred())
    compiled: Any = torch.compile(model, backend="eager")
    x = torch.randn(8, 3)
    compiled(x)

    assert named(check_batch_leak(compiled, x)) == "1"
    assert named(check_batch_leak(model, x, call=lambda _, batch: compiled(batch))) == "1"


def test_a_misspelt_part_of_the_batch_is_refused() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask

    with pytest.raises(InputError) as caught:
        check_batch_leak(Masked(), {"x": torch.randn(4, 3), "mask": torch.ones(4, 3)}, shared=["mask", "maks"])

    assert str(caught.value) == (
        "shared names 'maks', but the batch has no such part\n  did you mean 'mask'? its parts are 'x', 'mask'"
    )


def test_a_model_that_gives_nan_for_the_batch_could_not_be_looked_at() -> None:
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, float("nan"))
    found = str(check_batch_leak(nn.Sequential(layer), torch.randn(8, 4)))

    assert found.startswith("batch leak  could not look: the model gives nan for the batch as it is")
