"""Self-supervised phases: what they train, what they read, and what the same loops do that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW

from tests.learner.files import SIMCLR, dataset, learner_of, network, options
from train_manager import Extension
from train_manager.learner import create_dataloader, create_learner, load_model


def trunk_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the trunk, and the statistics of its BatchNorm."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("trunk.")}


def are_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def have_moved(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return not any(one[name].equal(other[name]) for name in one)


def noisy(points: Tensor) -> Tensor:
    return points + 0.1 * torch.randn_like(points)


def simclr_by_hand(model: Any) -> None:
    """Two epochs of SimCLR on all training rows, as a program without the library would train them."""
    trunk = model.trunk
    head = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 64))
    optimizer = AdamW([*trunk.parameters(), *head.parameters()], lr=3e-3)
    data = create_dataloader(dataset()).unlabelled()
    for _ in range(2):
        for batch in data:
            one, other = (F.normalize(head(trunk(noisy(batch["inputs"])))) for _ in range(2))
            similar, own = one @ other.T / 0.5, torch.arange(len(one))
            loss = (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def labels_by_hand(model: Any, epochs: int, *, is_frozen: bool) -> None:
    """Epochs of labels on noisy points, perhaps with a frozen trunk."""
    trained = model.head if is_frozen else model
    optimizer = SGD(trained.parameters(), lr=0.1, momentum=0.5)
    data = create_dataloader(dataset()).train_data
    model.trunk.train(not is_frozen)
    for _ in range(epochs):
        for batch in data:
            with torch.set_grad_enabled(not is_frozen):
                features = model.trunk(noisy(batch["inputs"]))
            optimizer.zero_grad()
            F.cross_entropy(model.head(features), batch["targets"]).backward()
            optimizer.step()


def test_epochs_after_a_phase_equal_a_loop_by_hand_to_the_bit() -> None:
    learner = learner_of()
    learner.ss_learn()
    for _ in range(3):
        learner.train_epoch()
    learner.close()
    torch.manual_seed(3)
    by_hand = load_model(network())
    torch.manual_seed(7)
    simclr_by_hand(by_hand)
    labels_by_hand(by_hand, 3, is_frozen=True)

    assert are_equal(dict(learner.tm.model.state_dict()), dict(by_hand.state_dict()))


def test_epochs_without_a_phase_equal_a_loop_by_hand_to_the_bit() -> None:
    learner = learner_of(given={"seed": 7})
    learner.train_epoch()
    learner.train_epoch()
    learner.close()
    torch.manual_seed(3)
    by_hand = load_model(network())
    torch.manual_seed(7)
    labels_by_hand(by_hand, 2, is_frozen=False)

    assert are_equal(dict(learner.tm.model.state_dict()), dict(by_hand.state_dict()))


def test_a_phase_of_masked_values_trains_the_trunk() -> None:
    learner = learner_of(given=options(self_supervised=[{"use": "Masked", "at": "trunk", "epochs": 1}]))
    before = trunk_of(learner.tm.model)
    learner.ss_learn()

    assert have_moved(before, trunk_of(learner.tm.model))


def test_a_phase_has_an_optimizer_and_a_batch_size_of_its_own() -> None:
    seen: list[tuple[str, float, int]] = []

    def look(train_manager: Any, true_batch_size: int) -> None:
        optimizer = train_manager.optimizer
        seen.append((type(optimizer).__name__, optimizer.param_groups[0]["lr"], true_batch_size))

    optimizer = {"use": "SGD", "lr": 0.02}
    learner = learner_of(given=options(self_supervised=[{**SIMCLR, "optimizer": optimizer, "batch_size": 24}]))
    learner.tm.add_extension(Extension.of(post_train_step_batch=look))
    learner.ss_learn()
    assert seen == 4 * [("SGD", 0.02, 24)]
    learner.train_epoch()
    assert seen[4:] == 3 * [("SGD", 0.1, 8)]


def test_phases_are_trained_one_after_the_other() -> None:
    names: list[Any] = []
    masked = {"use": "Masked", "at": "head", "epochs": 1}
    learner = learner_of(given=options(self_supervised=[SIMCLR, masked]))
    learner.tm.add_extension(Extension.of(pre_train=lambda phase_name: names.append(phase_name)))
    learner.ss_learn()
    learner.train_epoch()

    assert names == ["SimCLR at trunk", "Masked at head", None]


class Unread(Tensor):
    """Labels that raise an error when they are read, from the moment that they are sealed."""

    is_sealed = False

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if cls.is_sealed:
            raise AssertionError(f"a label was read by {function}")
        return super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_no_label_is_read_in_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    data = create_dataloader(dataset())
    for one in data._datasets:
        monkeypatch.setattr(one, "targets", {name: t.as_subclass(Unread) for name, t in one.targets.items()})
    data.train_data._targets = data._datasets[0].targets  # type: ignore[union-attr]
    model = load_model(network())
    learner = create_learner(data, model, SGD(model.parameters(), lr=0.1), options())
    monkeypatch.setattr(Unread, "is_sealed", True)
    learner.ss_learn()
    assert learner.tm.step_num == 12
    with pytest.raises(AssertionError, match="a label was read"):
        learner.train_epoch()
