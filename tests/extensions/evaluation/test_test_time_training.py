"""A model that adapts to evaluation sets without their labels, and is put back to the bit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InMemory, InputError, TrainManager, every
from train_manager.data.random_state import random_state
from train_manager.extensions import EMA, TestTimeTraining
from train_manager.extensions.evaluation.test_time_training import entropy
from train_manager.testing import tiny_manager


def shifted(count: int = 64) -> tuple[Tensor, Tensor]:
    """Return two classes in a plane, far from where those of the training are."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 2, generator=generator)
    return 5 + 3 * inputs, (inputs[:, 0] > 0).long()


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    inputs, labels = shifted()
    train = InMemory((inputs - 5) / 3, labels, batch_size=16)
    given = {"model": model, "train_data": train, "eval_data": {"clean": train, "shifted": sets(inputs, labels)}}
    return tiny_manager(*extensions, **{**given, "eval_at": (), **options})


def sets(inputs: Tensor, labels: Tensor) -> InMemory:
    return InMemory(inputs, labels, batch_size=16)


def everything(tm: TrainManager) -> list[Any]:
    """Return what an evaluation must leave as it was."""
    modules, parameters = [*tm.model.modules()], [*tm.model.parameters()]
    assert tm.optimizer is not None
    return [
        [one.clone() for one in tm.model.state_dict().values()],
        [one.training for one in modules],
        [one.requires_grad for one in parameters],
        [one.grad for one in parameters],
        tm.optimizer.state_dict(),
        random_state(),
    ]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor | np.ndarray):
        return bool((one == other).all())
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def drawing(model: nn.Module, inputs: Tensor) -> Tensor:
    """A loss that draws from every random state."""
    scale = random.random() + float(np.random.rand()) + torch.rand(())
    result: Tensor = (model(inputs) * scale).square().mean()
    return result


strong: dict[str, Any] = {"steps": 3, "lr": 0.1}


@pytest.mark.parametrize("kind", ["eval", "predict"])
def test_everything_is_put_back_to_the_bit(kind: str) -> None:
    tm = manager(TestTimeTraining(drawing, modules=["0", "4"], **strong), epochs=2)
    tm.train()
    for parameter in tm.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    tm.model[4].weight.requires_grad_(False)
    before = everything(tm)

    tm.eval() if kind == "eval" else tm.predict(shifted()[0])

    assert same(before, everything(tm))


def test_an_error_in_the_middle_of_a_set_puts_it_back_too() -> None:
    tm = manager(TestTimeTraining(**strong))
    tm.add_extension(post_eval_step_batch=every(3)(lambda: 1 / 0), name="breaks")
    before = everything(tm)

    with pytest.raises(ZeroDivisionError):
        tm.eval()

    assert same(before, everything(tm))


def test_the_other_sets_are_read_with_the_random_states_that_they_had_without_it() -> None:
    inputs, labels = shifted()
    results = []
    for extensions in ([], [TestTimeTraining(drawing, sets="first", modules=["0"], **strong)]):
        tm = manager(*extensions)
        torch.manual_seed(1)
        drawn: list[Tensor] = []
        tm.add_extension(post_eval_step_batch=lambda drawn=drawn: drawn.append(torch.rand(2)), name="draws")
        tm.eval({"first": sets(inputs, labels), "second": sets(inputs, labels)})
        results.append(torch.stack(drawn))

    assert torch.equal(*results)


def test_a_loss_draws_other_numbers_for_each_batch() -> None:
    drawn: list[float] = []

    def noting(model: nn.Module, inputs: Tensor) -> Tensor:
        drawn.append(torch.rand(()).item())
        result: Tensor = model(inputs).square().mean()
        return result

    manager(TestTimeTraining(noting)).eval()

    assert len(set(drawn[:4])) == 4


def test_a_graph_from_before_the_evaluation_can_still_run_backward() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    tm = manager(TestTimeTraining(modules=["0", "1", "3"], **strong), model=model)
    inputs, labels = shifted()
    loss = nn.functional.cross_entropy(tm.model(inputs), labels)

    tm.eval()
    loss.backward()

    assert tm.model[0].weight.grad is not None


def test_batch_statistics_alone_are_those_of_the_batch() -> None:
    tm = manager(TestTimeTraining(steps=0), epochs=5)
    tm.train()
    inputs = shifted()[0][:16]
    norm = nn.BatchNorm1d(8)
    norm.load_state_dict(tm.model[1].state_dict())

    model = nn.Sequential(tm.model[0], norm, tm.model[2], tm.model[4])
    with torch.no_grad():
        expected = model(inputs)

    assert torch.equal(tm.predict(inputs), expected)


def test_a_step_follows_the_gradient_as_by_hand() -> None:
    tm = manager(TestTimeTraining(steps=2, lr=0.1), epochs=2)
    tm.train()
    first, second = shifted()[0][:32].split(16)

    found = tm.predict([first, second])

    norm = tm.model[1]
    tm.model.eval()
    norm.train()
    adam = torch.optim.Adam(norm.parameters(), lr=0.1)
    for batch in (first, second):
        for _ in range(2):
            adam.zero_grad()
            entropy(tm.model(batch)).backward()
            adam.step()
        with torch.no_grad():
            expected = tm.model(batch)
    assert torch.equal(found[16:], expected)


def test_an_evaluation_and_a_prediction_adapt_alike() -> None:
    seen: list[Tensor] = []
    tm = manager(TestTimeTraining(**strong))
    tm.add_extension(post_eval_step_batch=lambda prediction: seen.append(prediction), name="seen")
    inputs, labels = shifted()

    tm.eval({"shifted": sets(inputs, labels)})

    assert torch.equal(torch.cat(seen), tm.predict(list(inputs.split(16))))


def test_other_labels_change_no_prediction() -> None:
    found = []
    for labels in (shifted()[1], 1 - shifted()[1]):
        tm, seen = manager(TestTimeTraining(**strong)), list[Tensor]()
        tm.add_extension(post_eval_step_batch=lambda prediction, seen=seen: seen.append(prediction), name="seen")
        tm.eval({"shifted": sets(shifted()[0], labels)})
        found.append(torch.cat(seen))

    assert torch.equal(*found)


def test_it_adapts_to_the_named_sets_alone() -> None:
    tm, plain = manager(TestTimeTraining(sets="shifted", **strong)), manager()

    found, expected = tm.eval(), plain.eval()

    assert found["clean"] == expected["clean"]
    assert found["shifted"] != expected["shifted"]


def test_a_frozen_parameter_can_adapt() -> None:
    tm = manager(TestTimeTraining(**strong))
    before = tm.predict(shifted()[0])
    tm.model[1].requires_grad_(False)

    assert torch.equal(tm.predict(shifted()[0]), before)
    assert not tm.model[1].weight.requires_grad


def test_the_average_of_ema_is_what_adapts() -> None:
    inputs = shifted()[0]
    tm = manager(TestTimeTraining(**strong), ema := EMA(decay=0.5, use_buffers=True), epochs=2)
    tm.train()

    other = manager(TestTimeTraining(**strong))
    other.model.load_state_dict(ema.average)

    assert torch.equal(tm.predict(inputs), other.predict(inputs))


# ---- what is refused -------------------------------------------------------------------------------------------------


def of_targets(prediction: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(prediction, targets)


def of_all(**fixtures: Any) -> Tensor:
    return torch.zeros(())


@pytest.mark.parametrize(("loss", "name"), [(of_targets, "targets"), (of_all, "all fixtures (**)")])
def test_a_loss_that_would_read_labels_is_refused(loss: Any, name: str) -> None:
    with pytest.raises(InputError) as error:
        TestTimeTraining(loss)

    assert str(error.value) == (
        f"the loss of TestTimeTraining may not ask for {name}, which has labels\n"
        "  make it a function of inputs, model or prediction"
    )


def test_a_model_without_norms_needs_the_names_of_modules() -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(TestTimeTraining()).train()

    assert str(error.value).splitlines()[:2] == [
        "TestTimeTraining finds no parameters of norms in the model (Sequential)",
        '  name the modules that adapt: TestTimeTraining(modules=["trunk"])',
    ]


def test_a_loss_without_a_gradient_is_refused() -> None:
    with pytest.raises(InputError) as error:
        manager(TestTimeTraining(lambda inputs: inputs.mean())).eval()

    assert str(error.value).splitlines()[:2] == [
        "the loss of TestTimeTraining has no gradient for the parameters that adapt",
        "  compute it from the model, or from prediction; or name other modules",
    ]


def test_a_set_that_is_not_there_is_refused_before_the_first_step() -> None:
    with pytest.raises(InputError) as error:
        manager(TestTimeTraining(sets=["shifted", "foggy"])).train()

    assert str(error.value).splitlines()[:2] == [
        "TestTimeTraining was given the set 'foggy', but eval_data has 'clean' and 'shifted'",
        "  name the sets as in eval_data: TestTimeTraining(sets=[...])",
    ]


def test_a_batch_of_one_example_has_no_statistics_and_the_error_says_what_to_do() -> None:
    inputs, labels = shifted(17)
    tm = manager(TestTimeTraining(), eval_data={"shifted": sets(inputs, labels)})

    with pytest.raises(ValueError, match="Expected more than 1 value per channel") as error:
        tm.eval()

    assert error.value.__notes__[-1] == (
        "TestTimeTraining lets BatchNorm use the statistics of the batch, and a batch of one example has none: give "
        "batches of several examples, or TestTimeTraining(batch_statistics=False)"
    )
