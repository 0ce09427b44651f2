from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from train_manager import Extensible, Extension, TrainManager, add_loss, every, fixture
from train_manager.errors import StageError
from train_manager.extensions import EMA, Accumulate, MixedPrecision, UpdateRatios, WarmUp
from train_manager.testing import tiny_manager
from train_manager.tools import Moment


def manager(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    """Return a manager of a class, with the arguments of ``tiny_manager``."""
    tiny = tiny_manager()
    given: dict[str, Any] = {"model": tiny.model, "loss": tiny.loss, "train_data": tiny.train_data}
    given |= {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.5), "extensions": list(extensions)}
    return kind(**{**given, **options})


class Twice(TrainManager):
    """Trains on each batch twice, the second time from the moment before the first."""

    def train_batch(self) -> None:
        moment = Moment(self)
        self.update(self.forward())
        moment.restore()
        self.update(self.forward())


def weights(tm: TrainManager) -> Tensor:
    return parameters_to_vector(tm.model.parameters())


# ---- fixtures --------------------------------------------------------------------------------------------------------


class Worker(Extensible):
    numbers: list[int]

    @fixture("work")
    def drawn(self) -> int:
        self.numbers.append(len(self.numbers))
        return self.numbers[-1]

    def work(self, do: Callable[[], object]) -> None:
        self.numbers = []
        with self.staged("work", {"size": 1}):
            do()


def test_fixtures_that_were_defined_modified_or_computed_since_are_as_they_were() -> None:
    worker = Worker()

    def work() -> None:
        moment, fixtures = Moment(worker), worker.fixtures
        for _ in range(2):
            with worker.staged("inner"):
                fixtures["inner"] = 1
                fixtures.define("outer", 2, stage="work")
                fixtures.modify("size", 3)
                assert fixtures["drawn"] == 0
            moment.restore()
            assert (set(fixtures), worker.numbers, fixtures["size"]) == ({"size", "drawn"}, [], 1)
        assert dict(moment.fixtures) == {"size": 1}
        assert moment.path == ("work",)
        assert repr(moment) == "<moment of work: size>"

    worker.work(work)

    assert list(worker.fixtures) == []


def test_what_a_recursion_has_put_aside_is_put_back_too() -> None:
    worker, aside = Extensible(), [1]
    with worker.staged("walk", {"node": aside}):
        with worker.staged("walk", {"node": "inner"}):
            moment = Moment(worker)
            aside.append(2)
            worker.fixtures.modify("node", "changed")
            moment.restore()

            assert worker.fixtures["node"] == "inner"

        assert worker.fixtures["node"] == [1]


def test_attributes_of_the_extensible_and_of_extensions_are_put_back() -> None:
    class Counting(Extension):
        def __init__(self) -> None:
            self.seen = [0]
            self.even = 0

        def post_inner(self) -> None:
            self.seen.append(1)

        @every(2)
        def pre_inner(self) -> None:
            self.even += 1

    counting = Counting()
    worker: Any = Extensible([counting])
    worker.count = 0
    with worker.staged("outer"):
        moment = Moment(worker)
        for _ in range(3):
            worker.count += 1
            with worker.staged("inner"):
                pass
            assert (worker.count, counting.seen, counting.even) == (1, [0, 1], 0)
            moment.restore()

    assert (worker.count, counting.seen) == (0, [0])


# ---- a batch of a TrainManager ---------------------------------------------------------------------------------------


EXTENSIONS: dict[str, Callable[[], Extension]] = {
    "gradients gathered over batches": lambda: Accumulate(batches=2),
    "an average of the weights": lambda: EMA(decay=0.5),
    "a rate that grows": lambda: WarmUp(5),
    "a loss scale": lambda: MixedPrecision(torch.float16),
    "numbers of each layer": lambda: UpdateRatios(),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_extensions_keep_is_put_back(name: str) -> None:
    twice, plain = (manager(kind, EXTENSIONS[name]()) for kind in (Twice, TrainManager))
    (kept,), (expected,) = twice.extensions.values(), plain.extensions.values()
    twice.held = kept  # type: ignore[attr-defined]  # as an attribute too: it is still an extension
    twice.train()
    plain.train()

    assert torch.equal(weights(twice), weights(plain))
    assert twice.optimizer_updates == plain.optimizer_updates
    assert str(kept.state_dict()) == str(expected.state_dict())


def test_terms_that_the_model_adds_count_once() -> None:
    class Adding(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            add_loss(self.weight.square().sum(), "decay")
            return super().forward(inputs)

    kept: list[Tensor] = []

    class Keep(Extension):
        def post_train_step_batch(self, loss: Tensor, losses: dict[str, Tensor]) -> None:
            kept.extend([loss.detach(), losses["decay"].detach()])

    for kind in (Twice, TrainManager):
        torch.manual_seed(0)
        manager(kind, Keep(), model=Adding(2, 2)).train()

    assert len(kept) == 12
    assert kept[:6] == kept[6:]


def test_a_moment_inside_the_forward_pass_is_of_its_stage() -> None:
    paths: list[tuple[str, ...]] = []

    class Inside(TrainManager):
        def model_forward(self, model: nn.Module, inputs: Tensor) -> Tensor:
            moment = Moment(self)
            model(inputs)
            moment.restore()
            paths.append(moment.path)
            prediction: Tensor = model(inputs)
            return prediction

    inside, plain = manager(Inside), manager(TrainManager)
    inside.train()
    plain.train()

    assert torch.equal(weights(inside), weights(plain))
    assert {path[-1] for path in paths} == {"train_model_forward"}


def test_a_batch_of_an_evaluation_is_put_back() -> None:
    class Evaluated(TrainManager):
        def eval_batch(self) -> None:
            moment = Moment(self)
            self.forward()
            moment.restore()
            assert "prediction" not in self.fixtures
            self.forward()

    data = tiny_manager().eval_data

    assert manager(Evaluated, eval_data=data).eval() == manager(TrainManager, eval_data=data).eval()


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_a_moment_needs_an_open_stage() -> None:
    with pytest.raises(StageError) as caught:
        Moment(Extensible())

    assert str(caught.value) == (
        "a Moment is of an open stage, and no stage is open\n  make it inside `with self.staged(...):`"
    )


def test_a_moment_of_a_manager_needs_an_open_batch() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(StageError) as caught:
        Moment(tm)

    assert str(caught.value) == (
        "a Moment of a TrainManager is of one batch, and no batch is open\n"
        "  open stages  run\n"
        "  make it in train_batch(self) or eval_batch(self); checkpoints keep a training as a whole"
    )


@pytest.mark.parametrize("does", ["makes", "restores"])
def test_a_hook_neither_makes_nor_restores_a_moment(does: str) -> None:
    moments: list[Moment] = []

    class Hooked(Extension):
        def pre_inner(self, extensible: Extensible) -> None:
            Moment(extensible) if does == "makes" else moments[0].restore()

    worker = Extensible([Hooked()])
    with worker.staged("outer"), pytest.raises(StageError) as caught:
        moments.append(Moment(worker))
        with worker.staged("inner"):
            pass

    assert str(caught.value) == (
        f"Hooked.pre_inner {does} a Moment, "
        "but the hooks of a stage cannot run again from their middle\n"
        "  open stages  outer > inner\n"
        "  make it and restore it in a method of the extensible"
    )


def test_a_moment_is_restored_in_its_own_stages_only() -> None:
    worker = Extensible()
    with worker.staged("outer"):
        moment = Moment(worker)
        with worker.staged("inner"), pytest.raises(StageError) as caught:
            moment.restore()

        moment.restore()

    assert str(caught.value) == (
        "a Moment of outer is restored where these stages are not open, or others are too\n"
        "  open stages  outer > inner\n"
        "  restore it in the same `with` block, and outside of stages inside this block"
    )
    with pytest.raises(StageError, match="a Moment of outer is restored where"):
        moment.restore()


def test_another_thread_neither_makes_nor_restores_a_moment() -> None:
    worker = Extensible()
    with worker.staged("outer"), ThreadPoolExecutor(1) as pool:
        errors = [pool.submit(does).exception() for does in (Moment(worker).restore, lambda: Moment(worker))]

    assert [str(error) for error in errors] == 2 * [
        "stages were touched by another thread than the one that opened them\n"
        "  use one Extensible for each thread, or hand the values over as arguments"
    ]
