from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.resuming import assert_resumes
from train_manager import (
    Endless,
    Extension,
    InMemory,
    InputError,
    Interleaved,
    Rows,
    SeededDataLoader,
    Together,
    TrainManager,
)
from train_manager.extensions import HardExamples, MetricStore
from train_manager.loop.losses import WeightedLosses
from train_manager.metrics.example_losses import ExampleLoss
from train_manager.runs.showing.page import write_report
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager

X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 1).long()


def in_memory(**options: Any) -> InMemory:
    return InMemory(X, Y, **{"batch_size": 16, "shuffle": True, **options})


def trained(*others: Extension, **options: Any) -> TrainManager:
    tm = tiny_manager(HardExamples(), *others, **{"train_data": in_memory(), "epochs": 3, **options})
    tm.train()
    return tm


def by_number(tm: TrainManager) -> dict[int, ExampleLoss]:
    return {one.number: one for one in tm["hard_examples"].hardest(1000)}


class Predictions(Extension):
    """Keep the predictions of each example, by its number."""

    def __init__(self) -> None:
        self.seen: dict[int, list[Tensor]] = {}

    def post_train_step_batch(self, prediction: Any, example_index: Tensor) -> None:
        for number, one in zip(example_index.tolist(), prediction, strict=True):
            self.seen.setdefault(number, []).append(one.detach().clone())


# ---- the numbers -----------------------------------------------------------------------------------------------------


def test_mean_variability_epochs_and_forgetting_are_those_of_the_predictions_of_the_training() -> None:
    tm = trained(seen := Predictions(), epochs=6)

    found = by_number(tm)
    assert len(found) == 40
    for number, predictions in seen.seen.items():
        losses = torch.stack([F.cross_entropy(one, Y[number]) for one in predictions]).double()
        right = [bool(one.argmax() == Y[number]) for one in predictions]
        one = found[number]
        assert one.loss == pytest.approx(losses.mean().item(), rel=1e-5)
        assert one.variability == pytest.approx(losses.std(correction=0).item(), rel=1e-4, abs=1e-6)
        assert one.forgotten == sum(before and not after for before, after in pairwise(right))
        assert (one.learned, one.epochs) == (any(right), 6)


def by_hand(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction, targets)


LOSSES: Mapping[str, Any] = {
    "a function of torch": F.cross_entropy,
    "a module of torch": nn.CrossEntropyLoss(),
    "a module that adds up": nn.CrossEntropyLoss(reduction="sum"),
    "a function called by names": by_hand,
    "another function": lambda output, target: F.cross_entropy(output, target),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_losses_are_the_same_however_the_loss_is_written(loss: Any) -> None:
    """Each is that of the first epoch, and one step in it, from the same weights."""
    options: dict[str, Any] = {"epochs": 1, "train_data": in_memory(batch_size=40)}

    found, expected = by_number(trained(loss=loss, **options)), by_number(trained(**options))
    assert {number: one.loss for number, one in found.items()} == pytest.approx(
        {number: one.loss for number, one in expected.items()}, rel=1e-5
    )


def test_the_weights_of_classes_are_in_the_losses() -> None:
    weights = torch.tensor([1.0, 9.0])
    tm = trained(seen := Predictions(), loss=nn.CrossEntropyLoss(weight=weights), epochs=1)

    for number, [prediction] in seen.seen.items():
        expected = weights[Y[number]] * F.cross_entropy(prediction, Y[number])
        assert by_number(tm)[number].loss == pytest.approx(expected.item(), rel=1e-5)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"class": self.first(x), "sum": self.second(x), "size": self.second(x)}


def test_the_losses_of_several_heads_are_added_up_with_their_weights() -> None:
    loss = WeightedLosses(
        {"class": (F.cross_entropy, 2.0), "sum": (nn.MSELoss(), 0.5), "size": (lambda head: head.abs().mean(), 3.0)}
    )
    data = InMemory({"x": X, "class": Y, "sum": X.sum(1, keepdim=True)}, batch_size=16)

    class Heads(TrainManager):
        def unpack_batch(self, batch: Any) -> tuple[Any, ...]:
            return batch["x"], {"class": batch["class"], "sum": batch["sum"]}

    made: list[dict[str, Tensor]] = []
    tm = Heads(
        model=(model := TwoHeads()),
        loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_data=data,
        extensions=[HardExamples()],
    )
    tm.add_extension(post_train_step_batch=lambda prediction: made.append(prediction))
    tm.train()

    for number in (0, 39):
        head = {name: one[number % 16 : number % 16 + 1].detach() for name, one in made[number // 16].items()}
        expected = 2 * F.cross_entropy(head["class"], Y[number : number + 1])
        expected += 0.5 * (head["sum"] - X[number].sum()).square().mean() + 3 * head["size"].abs().mean()
        assert by_number(tm)[number].loss == pytest.approx(expected.item(), rel=1e-5)


def test_an_own_loss_forward_is_called_for_each_row() -> None:
    class Own(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor, inputs: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets) * (1 + inputs.sum())

    tm = Own(
        model=(model := nn.Linear(2, 2)),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_data=in_memory(),
        extensions=[HardExamples(), seen := Predictions()],
    )
    tm.train()
    for number, [prediction] in seen.seen.items():
        expected = F.cross_entropy(prediction, Y[number]) * (1 + X[number].sum())
        assert by_number(tm)[number].loss == pytest.approx(expected.item(), rel=1e-5)


def test_a_regression_has_losses_and_nothing_that_is_forgotten() -> None:
    data = InMemory(X, X.sum(1, keepdim=True), batch_size=16)
    tm = trained(model=nn.Linear(2, 1), loss=F.mse_loss, train_data=data, eval_data=None)

    assert {(one.forgotten, one.learned, one.epochs) for one in by_number(tm).values()} == {(None, None, 3)}


def test_an_example_that_is_never_learned_is_told_as_such() -> None:
    tm = trained(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))

    unlearned = [one for one in tm["hard_examples"].hardest(40) if not one.learned]
    assert unlearned
    assert "never learned" in str(tm["hard_examples"])


# ---- the data --------------------------------------------------------------------------------------------------------


class Pairs:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return X[number], Y[number]


DATA: Mapping[str, Any] = {
    "InMemory": in_memory,
    "Rows": lambda: Rows(Pairs(), batch_size=16, shuffle=True),
    "SeededDataLoader": lambda: SeededDataLoader(Pairs(), batch_size=16, shuffle=True),
    "Endless": lambda: Endless(in_memory()),
}


@pytest.mark.parametrize("make", DATA.values(), ids=DATA)
def test_all_data_that_number_their_examples_will_do(make: Any, tmp_path: Path) -> None:
    tm = trained(MetricStore(), train_data=make(), steps_per_epoch=3, train_dir=tmp_path)

    assert len(by_number(tm)) == 40
    assert [*(tmp_path / "plots").glob("hard_examples-*.png")]


def test_examples_that_are_read_again_for_the_picture_draw_no_random_numbers(tmp_path: Path) -> None:
    class Noisy(Pairs):
        def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
            return X[number] + torch.rand(2) / 100, Y[number]

    def state_after(*extensions: Extension, folder: str) -> Tensor:
        data = SeededDataLoader(Noisy(), batch_size=16)
        tiny_manager(*extensions, MetricStore(), train_data=data, train_dir=tmp_path / folder, seed=0).train()
        return torch.get_rng_state()

    assert state_after(HardExamples(), folder="one").equal(state_after(folder="two"))


def test_each_of_several_sets_has_numbers_of_its_own() -> None:
    tm = trained(train_data=Interleaved({"one": in_memory(), "two": in_memory()}))

    assert {(one.source, one.number) for one in tm["hard_examples"].hardest(100)} == {
        (source, number) for source in ("one", "two") for number in range(40)
    }
    assert str(tm["hard_examples"]).splitlines()[1].split()[0] in ("one", "two")


@pytest.mark.parametrize(
    ("data", "kind"),
    [([(X, Y)], "list"), (Together({"one": in_memory()}), "Together"), (Endless([(X, Y)]), "Endless")],
    ids=["list", "Together", "Endless"],
)
def test_data_without_numbers_are_told_before_the_first_step_with_the_cure(data: Any, kind: str) -> None:
    tm = tiny_manager(HardExamples(), train_data=data, steps_per_epoch=1)
    with pytest.raises(InputError) as caught:
        tm.train()

    assert tm.step_num == 0
    assert str(caught.value).startswith(
        f"HardExamples needs the numbers of examples, which train_data ({kind}) do not give\n"
        "  give the data as InMemory(x, y, ...), Rows(dataset, ...) or SeededDataLoader(dataset, ...)"
    )


def test_a_loss_that_the_model_makes_is_told_before_the_first_step_with_the_cure() -> None:
    class Model(nn.Linear):
        def forward(self, inputs: Tensor) -> Any:
            return {"loss": super().forward(inputs).square().mean()}

    tm = tiny_manager(HardExamples(), model=Model(2, 2), loss=None, train_data=in_memory(), eval_data=None)
    with pytest.raises(InputError) as caught:
        tm.train()

    assert tm.step_num == 0
    assert str(caught.value).splitlines()[0] == (
        "HardExamples needs a loss that it can call, but the loss is made in train_batch, or in the model"
    )
    assert caught.value.cure == "pass loss=..., or override loss_forward(self, ...)"


def test_batches_of_a_loop_of_ones_own_are_left_out() -> None:
    tm = tiny_manager(HardExamples(), train_data=in_memory())
    tm.train_on_batch((X, Y))

    assert str(tm["hard_examples"]) == "no example was seen so far"


def test_an_example_that_is_drawn_more_often_counts_more_often() -> None:
    tm = trained(train_data=in_memory(drop_last=True), epochs=4)

    assert sum(one.epochs for one in by_number(tm).values()) == 4 * 32


# ---- what it shows ---------------------------------------------------------------------------------------------------


def test_the_table_has_the_hardest_in_aligned_lines() -> None:
    tm = tiny_manager(HardExamples(show=3), train_data=in_memory(), epochs=2)
    tm.train()

    lines = str(tm["hard_examples"]).splitlines()
    assert lines[0].split() == ["example", "loss", "variability", "forgotten", "epochs"]
    assert [int(line.split()[0]) for line in lines[1:]] == [one.number for one in tm["hard_examples"].hardest(3)]
    assert len({len(line) for line in lines}) == 1
    assert tm["hard_examples"]._repr_html_().count("<tr>") == 4


def test_the_report_shows_the_examples_and_what_is_known_of_them(tmp_path: Path) -> None:
    tm = trained(MetricStore(), train_dir=tmp_path)

    [rows] = [rows for series, rows in MetricReader(tmp_path).texts().items() if series.name == "hard_examples"]
    assert rows[-1][1] == str(tm["hard_examples"])
    page = write_report(tmp_path).read_text()
    assert "hard_examples" in page
    assert "variability" in page


# ---- what it leaves alone --------------------------------------------------------------------------------------------


class Noisy(nn.Module):
    """A loss that draws, and that counts its calls in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(prediction + torch.rand_like(prediction), targets)


def test_the_training_is_the_same_to_the_bit_also_with_a_loss_that_draws_and_counts() -> None:
    def weights(*extensions: Extension) -> list[Tensor]:
        tm = tiny_manager(*extensions, loss=Noisy(), train_data=in_memory(), seed=0, epochs=2)
        tm.train()
        assert isinstance(tm.loss, Noisy)
        return [*tm.model.state_dict().values(), tm.loss.calls, torch.get_rng_state()]

    assert all(map(torch.equal, weights(), weights(HardExamples())))


def test_the_numbers_of_a_training_that_resumes_are_equal() -> None:
    assert_resumes(lambda: tiny_manager(HardExamples(), train_data=in_memory(), epochs=3), TrainManager.train, [2, 6])


def test_a_phase_has_examples_of_its_own() -> None:
    tm = tiny_manager(HardExamples(), train_data=in_memory())
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("more", train_data=InMemory(X[:8], Y[:8], batch_size=8)):
            tm.train_epochs(2)
            assert {one.epochs for one in tm["hard_examples"].hardest(40)} == {2}
        tm.train_epochs(1)

    assert {one.epochs for one in tm["hard_examples"].hardest(40)} == {2}
    assert len(tm["hard_examples"].hardest(40)) == 40


@pytest.mark.parametrize("value", [0, 1.5, "ten"])
def test_a_wrong_number_to_show_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="show must be a whole number of at least 1"):
        HardExamples(value)


def test_a_loss_that_compares_examples_is_refused_at_the_end_of_an_epoch() -> None:
    def contrast(prediction: Tensor) -> Tensor:
        return F.cross_entropy(prediction @ prediction.T, torch.arange(len(prediction)))

    tm = tiny_manager(HardExamples(), loss=contrast, train_data=in_memory(shuffle=False), eval_data=None)

    with pytest.raises(InputError) as error:
        tm.train()

    assert str(error.value) == (
        "the loss of an epoch is 2.62, but that of each of its examples by itself is 0\n"
        "  leave HardExamples out: a loss that compares the examples of a batch is of none of them alone"
    )
