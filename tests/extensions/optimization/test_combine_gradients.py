from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import At, weights
from train_manager import InputError, TrainManager, WeightedLosses, add_loss, modifies, report_loss
from train_manager.data.shares import Place
from train_manager.extensions import SAM, Accumulate, CombineGradients, MixedPrecision

RATE, FAR = 0.05, 3.0


class Heads(nn.Module):
    """Two tasks on one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.near, self.far = nn.Linear(3, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        hidden = self.trunk(inputs).relu()
        return {"near": self.near(hidden), "far": self.far(hidden)}


def heads() -> Heads:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Heads()


def batches(count: int = 4) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return batches, of which each second one is smaller, so that Accumulate multiplies its loss."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(4 if number % 2 else 16, 3, generator=generator) for number in range(count)]
    return [(x, {"near": x.sum(1, keepdim=True), "far": -x.sum(1, keepdim=True)}) for x in inputs]


def losses() -> WeightedLosses:
    return WeightedLosses({"near": F.mse_loss, "far": (F.mse_loss, FAR)})


def manager(*extensions: Any, **given: Any) -> TrainManager:
    options: dict[str, Any] = {"loss": losses(), "optimizer": lambda parameters: SGD(parameters, lr=RATE)}
    kind = given.pop("kind", TrainManager)
    options |= {"model": heads(), "train_data": batches(), "eval_at": (), "extensions": [*extensions]} | given
    made: TrainManager = kind(**options)
    return made


def trained(*extensions: Any, **given: Any) -> Tensor:
    tm = manager(*extensions, **given)
    tm.train()
    return weights(tm.model)


def total(matrix: Tensor) -> Tensor:
    return matrix.sum(0)


def noting(matrices: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the sum, as a function that keeps each matrix."""

    def note(matrix: Tensor) -> Tensor:
        matrices.append(matrix)
        return total(matrix)

    return note


def surgery(matrix: Tensor) -> Tensor:
    """PCGrad of two tasks: each loses its part against the other (Yu et al. 2020, algorithm 1)."""
    product = matrix[0] @ matrix[1]
    if product >= 0:
        return matrix.sum(0)
    one, other = matrix[0], matrix[1]
    return one - product / (other @ other) * other + other - product / (one @ one) * one


def penalty(model: nn.Module) -> Tensor:
    return 0.1 * torch.stack([weight.square().sum() for weight in model.parameters()]).sum()


def by_hand(combine: Callable[[Tensor], Tensor], window: int = 1, penalised: bool = False) -> Tensor:
    """Train without this library."""
    model = heads()
    parameters = list(model.parameters())
    optimizer = SGD(parameters, lr=RATE)
    sizes = [len(inputs) for inputs, _ in batches()]
    for number, (inputs, targets) in enumerate(batches()):
        predicted = model(inputs)
        parts = [
            F.mse_loss(predicted["near"], targets["near"]),
            FAR * F.mse_loss(predicted["far"], targets["far"]),
        ]
        matrix = torch.stack([flat_gradient(part, parameters) for part in parts])
        gradient = combine(matrix) + (flat_gradient(penalty(model), parameters) if penalised else 0.0)
        weight = sizes[number] / sum(sizes[number // window * window :][:window])
        for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
            before = 0.0 if parameter.grad is None else parameter.grad
            parameter.grad = before + part.view_as(parameter) * weight
        if (number + 1) % window == 0:
            optimizer.step()
            optimizer.zero_grad()
    return weights(model)


def flat_gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


def adds_penalty() -> At:
    return At("post_train_loss_forward", modifies("loss")(lambda loss, model: loss + penalty(model)))


def adds_penalty_late() -> At:
    return At(
        "pre_train_backward", modifies("backward_loss")(lambda backward_loss, model: backward_loss + penalty(model))
    )


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


# ---- what is trained -------------------------------------------------------------------------------------------------


def test_the_tasks_of_these_tests_are_in_conflict() -> None:
    assert not torch.allclose(by_hand(surgery), by_hand(total), rtol=1e-2)


@pytest.mark.parametrize("combine", [total, surgery])
@pytest.mark.parametrize("window", [1, 2])
def test_it_equals_the_loop_by_hand(combine: Callable[[Tensor], Tensor], window: int) -> None:
    assert_close(trained(Accumulate(window), CombineGradients(combine)), by_hand(combine, window))


@pytest.mark.parametrize("combine", [total, surgery])
@pytest.mark.parametrize("hook", [adds_penalty, adds_penalty_late])
def test_a_penalty_that_a_hook_adds_keeps_its_gradient(
    combine: Callable[[Tensor], Tensor], hook: Callable[[], At]
) -> None:
    assert_close(trained(hook(), CombineGradients(combine)), by_hand(combine, penalised=True))


def test_the_sum_changes_nothing_in_float16_with_windows_and_a_penalty() -> None:
    def others() -> list[Any]:
        return [Accumulate(2), MixedPrecision(torch.float16), adds_penalty()]

    assert_close(trained(*others(), CombineGradients(total)), trained(*others()))


def test_in_float16_a_gradient_below_its_smallest_number_is_combined() -> None:
    found: list[Tensor] = []
    small = WeightedLosses({"near": (F.mse_loss, 1e-7), "far": (F.mse_loss, 1e-7)})
    note = CombineGradients(noting(found))

    trained(MixedPrecision(torch.float16), note, loss=small, train_data=batches(1))
    trained(note, loss=small, train_data=batches(1))

    torch.testing.assert_close(found[0], found[1], rtol=2e-2, atol=1e-9)


def test_gradients_that_overflow_are_left_to_the_loss_scale() -> None:
    found: list[Tensor] = []
    large = WeightedLosses({"near": (F.mse_loss, 1e6), "far": (F.mse_loss, 1e6)})
    note = CombineGradients(noting(found))

    tm = manager(MixedPrecision(torch.float16), note, loss=large, train_data=batches(1))
    tm.train()

    assert (found, tm.update_num) == ([], 0)


def test_a_hook_that_multiplies_the_loss_multiplies_the_step() -> None:
    double = At("post_train_loss_forward", modifies("loss")(lambda loss: 2 * loss))

    assert_close(
        trained(double, CombineGradients(surgery), train_data=batches(1)) - weights(heads()),
        2 * (trained(CombineGradients(surgery), train_data=batches(1)) - weights(heads())),
    )


def test_the_value_of_the_loss_stays() -> None:
    seen: list[tuple[float, float]] = []
    look = At("post_train_backward", lambda loss, backward_loss: seen.append((loss.item(), backward_loss.item())))

    trained(CombineGradients(surgery), look)

    assert [loss for loss, _ in seen] == [backward for _, backward in seen]


def test_parameters_that_are_frozen_have_no_column() -> None:
    model = heads()
    matrices: list[Tensor] = []
    model.trunk.requires_grad_(False)

    trained(CombineGradients(noting(matrices)), model=model, train_data=batches(1))

    assert [tuple(matrix.shape) for matrix in matrices] == [(2, 18)]


@pytest.mark.parametrize("name", ["PCGrad", "MGDA", "IMTLG"])
def test_it_takes_the_aggregators_of_torchjd(name: str) -> None:
    combine = getattr(pytest.importorskip("torchjd.aggregation"), name)()

    assert_close(trained(CombineGradients(combine)), by_hand(combine))


# ---- what is refused -------------------------------------------------------------------------------------------------


def message(*extensions: Any, **given: Any) -> str:
    with pytest.raises(InputError) as caught:
        trained(*extensions, **given)
    return str(caught.value)


def test_a_loss_of_one_part_is_refused() -> None:
    assert message(CombineGradients(total), loss=WeightedLosses({"near": F.mse_loss})) == (
        "CombineGradients needs a loss of at least two parts, but it has only 'near'\n"
        '  give a function for each task: loss=WeightedLosses({"digit": F.cross_entropy, "slant": F.mse_loss})'
    )


def test_a_loss_without_named_parts_is_refused() -> None:
    def loss(prediction: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(prediction["near"], targets["near"])

    assert message(CombineGradients(total), loss=loss).startswith(
        "CombineGradients needs a loss of at least two parts, but it has none\n"
    )


def test_sam_is_refused_by_name() -> None:
    assert message(CombineGradients(total), SAM()) == (
        "the loss of optimizer 'optimizer' must be computed anew, but its gradients are not those of one loss\n"
        "  leave out Accumulate, CombineGradients, float16 and hooks that modify the loss"
    )


def test_a_loss_beside_forward_is_refused() -> None:
    class Own(TrainManager):
        def train_batch(self, model: Heads, inputs: Tensor, targets: dict[str, Tensor]) -> None:
            self.update(losses()(model(inputs), targets))

    assert message(CombineGradients(total), kind=Own) == (
        "CombineGradients needs the loss of forward(), but optimizer 'optimizer' is given another loss\n"
        "  train on it: self.update(self.forward())"
    )


def test_a_part_whose_weight_was_not_named_is_refused() -> None:
    def loss(prediction: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
        terms = {name: F.mse_loss(prediction[name], targets[name]) for name in prediction}
        for name, term in terms.items():
            report_loss(term, name)
        return terms["near"] + 0.5 * terms["far"]

    assert message(CombineGradients(total), loss=loss) == (
        "the part 'far' of the loss must have the weight 1 in it, but has 0.5\n"
        "  name its weight, report_loss(value, name, weight=0.5), and update with self.forward() as it is"
    )


def test_a_part_whose_weight_was_named_is_combined() -> None:
    def loss(prediction: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
        near, far = (F.mse_loss(prediction[name], targets[name]) for name in ("near", "far"))
        report_loss(near, "near")
        report_loss(far, "far", weight=FAR)
        return near + FAR * far

    assert_close(trained(CombineGradients(surgery), loss=loss), by_hand(surgery))


def test_a_term_beside_a_loss_that_train_batch_multiplies_is_refused() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            loss = 2 * self.forward()
            add_loss(penalty(self.model), "penalty")
            self.update(loss)

    assert message(CombineGradients(total), kind=Own).startswith(
        "the part 'penalty' of the loss must have the weight 1 in it, but has 0.5\n"
    )


@pytest.mark.parametrize(
    ("combine", "returned"), [(torch.sum, "shape ()"), (lambda matrix: matrix, "shape (2, 50)"), (max, "another")]
)
def test_a_result_of_another_shape_is_refused(combine: Any, returned: str) -> None:
    combine = (lambda _: None) if combine is max else combine
    found = "a NoneType" if returned == "another" else returned

    assert message(CombineGradients(combine)) == (
        f"combine must return a vector of 50 numbers, one for each parameter, but returned {found}\n"
        "  reduce the tasks, the rows of the matrix: lambda matrix: matrix.sum(0)"
    )


@pytest.mark.parametrize("combine", [None, nn.Identity])
def test_what_is_not_a_function_is_refused(combine: Any) -> None:
    with pytest.raises(InputError) as caught:
        CombineGradients(combine)
    assert str(caught.value) == (
        f"combine must be a function of a matrix, but is {combine!r}\n"
        "  give a function, or an aggregator of torchjd: CombineGradients(PCGrad())"
    )


def test_an_aggregator_with_a_state_is_refused() -> None:
    combine = pytest.importorskip("torchjd.aggregation").GradVac()

    with pytest.raises(InputError) as caught:
        CombineGradients(combine)
    assert str(caught.value) == (
        "combine must have no state, but GradVac has one, which a checkpoint would not have\n"
        "  take another aggregator: PCGrad(), MGDA() or IMTLG()"
    )


def test_several_processes_are_refused() -> None:
    manager: Any = SimpleNamespace(ranks=SimpleNamespace(place=Place(0, 2)))

    with pytest.raises(InputError) as caught:
        CombineGradients(total).pre_run(manager)
    assert str(caught.value) == (
        "CombineGradients would combine the gradients of the rows of each process, not of the batch\n"
        "  train in one process, without Distributed; or leave CombineGradients out"
    )
